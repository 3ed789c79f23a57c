"""Recommendation of news on MIND: preparation, impressions, scores, and the test of a model."""
