"""Data sets that fairseq lacks."""
