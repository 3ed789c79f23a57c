"""Commands of the laboratory, which `python -m fairseq_plugins` finds by their files' names."""
