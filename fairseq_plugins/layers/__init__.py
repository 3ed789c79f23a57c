"""Layers and their parts. Each takes only the numbers that it needs, never the model's options."""
