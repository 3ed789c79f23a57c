"""Scorers for fairseq's --scoring. Importing this package registers them.

The scores of the command `evaluate` are in `evaluate/`: of translations in `translation.py`.
"""

from .rouge import RougeScorer

__all__ = ["RougeScorer"]
