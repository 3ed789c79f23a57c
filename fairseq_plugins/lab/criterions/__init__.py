"""Criterions of the papers' tables that are no part of the product. Importing registers them."""

from .news_recommendation import NewsRecommendationCriterion

__all__ = ["NewsRecommendationCriterion"]
