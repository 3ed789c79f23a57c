"""Tables of the papers, measured again: rows, runs and a report."""
