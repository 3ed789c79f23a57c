"""Scorers that fairseq lacks. Importing this package registers them."""

from .rouge import RougeScorer

__all__ = ["RougeScorer"]
