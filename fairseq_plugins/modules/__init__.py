"""Layers and their parts. Each takes the few numbers that it needs, never the command line."""
