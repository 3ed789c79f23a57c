"""Evaluation of trained models: averaged checkpoints, scores, comparisons, baselines."""
