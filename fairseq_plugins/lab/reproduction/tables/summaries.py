"""Copying and pretraining of summarization models, side by side. No paper has this table."""

from .table import BASELINE, ROUGE, Row, Table

# name, title, recipe, blocks of the reduced encoder
SYSTEMS = (
    (BASELINE, "Transformer", "transformer_2048_cnn_dm", ""),
    ("fastformer", "Fastformer", "fastformer_cnn_dm", ""),
    ("fastformer-tc", "Fastformer, time compression", "fastformer_tc_cnn_dm", "1,1"),
)
_LOSS = "--criterion label_smoothed_cross_entropy_fused --label-smoothing 0.1"
_COPY = f"{_LOSS} --copy-attention --copy-next"
# by importance: suffix of the row's name, whether it copies, options, data on which it begins
VARIANTS = (
    ("-copy", "yes", _COPY, ""),
    ("", "no", _LOSS, ""),
    ("-lead", "yes", _COPY, "lead"),
    ("-gap", "yes", _COPY, "gap"),
)

SUMMARIES = Table(
    title="Summaries: copying and pretraining",
    columns=("system", "copies", "pretraining"),
    rows=[
        Row(
            name + suffix, (system, copies, begins or "no"), recipe, words,
            reduced=f"{words} --encoder-blocks {blocks}" if blocks else None, begins=begins,
        )
        for suffix, copies, words, begins in VARIANTS
        for name, system, recipe, blocks in SYSTEMS
    ],
    metrics=ROUGE,
    reduced=("reduced_cpu", "reduced_summaries"),
    generation="generate_cnn_dm",
    reduced_generation="generate_headlines",
    remarks=(
        "All rows have the same loss, with label smoothing 0.1. Rows that copy have --copy-next.",
        "Pretraining: on the documents of train without their summaries. lead: the first sentences "
        "are the summary of the rest; gap: those that have most in common with it.",
    ),
)  # fmt: skip
