"""Evaluation of trained models: averaged checkpoints, scores, comparisons, baselines."""

TOKENISED_BLEU = "tokenised BLEU"
