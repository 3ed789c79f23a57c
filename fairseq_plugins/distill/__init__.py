"""Data that teachers write, for small models to learn from."""
