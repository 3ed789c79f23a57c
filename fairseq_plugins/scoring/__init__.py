"""Scorers that fairseq lacks. Importing this registers them."""

from .rouge import RougeScorer

__all__ = ["RougeScorer"]
