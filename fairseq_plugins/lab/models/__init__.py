"""Models of the papers' tables that are no part of the product. Importing registers them."""

from .news_recommender import NewsRecommenderModel
from .pair_classifier import PairClassifierModel

__all__ = ["NewsRecommenderModel", "PairClassifierModel"]
