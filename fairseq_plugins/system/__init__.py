"""The machine and its terminal: processors, processes, progress bars and logs."""
