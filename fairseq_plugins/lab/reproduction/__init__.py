"""Reproduce tables of papers and of this package: rows, runs and a report."""
