"""Evaluation of trained models: averaged checkpoints, scores, comparisons, baselines."""

TOKENISED_BLEU = "tokenised BLEU"


def form_of(metric: str) -> str:
    """The column of a translation that a metric scores: its text, or the tokens."""
    return "tokens" if metric == TOKENISED_BLEU else "hypothesis"
