"""Recommendation of news on MIND: the data, and the model with its task, criterion and test."""
