"""Tables 4 and 6 and figures 3 and 4 of the Fastformer paper (Wu et al., arXiv 2108.09084).

Figure 2, which measures time, is `benchmark figure2`.
"""

from typing import Sequence

from .table import ACCURACY_AND_F1, BASELINE, ROUGE, Paper, Row, Table

SYSTEMS = (
    ("transformer", "Transformer", "softmax"),
    ("longformer", "Longformer", "longformer"),
    ("bigbird", "BigBird", "bigbird"),
    ("linformer", "Linformer", "linformer"),
    ("linear", "Linear Transformer", "linear"),
    ("poolingformer", "Poolingformer", "poolingformer"),
    ("fastformer", "Fastformer", "fastformer"),
)
_IMDB_SIZES = {"train": 108500, "valid": 13600, "test": 13600, "classes": 10}

_REDUCED_IMDB = ("reduced_cpu", "reduced_imdb")

# accuracy, its deviation, macro F1, its deviation
_IMDB = (
    (52.04, 0.50, 42.69, 0.47),
    (52.21, 0.36, 43.36, 0.38),
    (53.23, 0.46, 44.03, 0.44),
    (53.17, 0.59, 44.34, 0.57),
    (53.09, 0.47, 44.30, 0.49),
    (53.78, 0.51, 44.52, 0.50),
    (54.10, 0.42, 44.65, 0.44),
)
TABLE_4 = Table(
    title="Fastformer, table 4, IMDB",
    columns=("system",),
    rows=[
        Row(
            name, (title,), "imdb",
            # the paper's Transformer reads less
            f"--encoder-token-mixer {mixer}" + " --max-positions 512" * (name == BASELINE),
            Paper(figures[::2], figures[1::2]),
            reduced=f"--encoder-token-mixer {mixer}",
        )
        for (name, title, mixer), figures in zip(SYSTEMS, _IMDB)
    ],
    metrics=ACCURACY_AND_F1,
    reduced=_REDUCED_IMDB,
    seeds=(1, 2, 3),
    seeds_of_paper=5,
    data_of_paper=_IMDB_SIZES,
    remarks=(
        "The paper starts from GloVe's word vectors; here embeddings start at random "
        "(--encoder-embed-path gives vectors).",
        "Amazon and MIND, the other columns of table 4, are not run: use prepare-classification "
        "and the recipe imdb.",
    ),
)  # fmt: skip


def _table_6(title: str, data: str, figures: Sequence[Sequence[float]], train: int) -> Table:
    return Table(
        title=f"Fastformer, table 6, {title}",
        columns=("system",),
        rows=[
            Row(
                name, (system,),
                # the paper's Transformer reads less
                f"{'transformer' if name == BASELINE else 'fastformer'}_{data}",
                f"--encoder-token-mixer {mixer}", Paper(scores),
            )
            for (name, system, mixer), scores in zip(SYSTEMS, figures)
        ],
        metrics=ROUGE,
        settings=("table6",),
        reduced=("reduced_cpu", "reduced_table6"),
        generation=f"generate_{data}",
        reduced_generation="generate_headlines",
        seeds=(1, 2, 3),
        seeds_of_paper=5,
        data_of_paper={"train": train},
        remarks=("The paper's ROUGE-L is the summary-level one, ROUGE-Lsum of `evaluate`.",),
    )  # fmt: skip


TABLE_6_CNN_DM = _table_6(
    "CNN/DailyMail",
    "cnn_dm",
    [
        (38.52, 16.04, 35.87),
        (37.89, 15.46, 35.19),
        (38.31, 15.78, 35.60),
        (37.96, 15.58, 35.34),
        (37.24, 14.87, 34.64),
        (38.58, 16.16, 36.17),
        (38.54, 16.22, 36.21),
    ],
    287100,
)
TABLE_6_PUBMED = _table_6(
    "PubMed",
    "pubmed",
    [
        (34.26, 11.88, 31.64),
        (36.92, 14.34, 33.75),
        (37.73, 14.99, 34.51),
        (37.22, 14.48, 34.02),
        (36.43, 13.80, 33.21),
        (37.82, 15.15, 34.63),
        (38.09, 15.44, 34.81),
    ],
    108500,
)


def _ablation(title: str, column: str, rows: Sequence[Row]) -> Table:
    return Table(
        title=f"Fastformer, {title}, IMDB",
        columns=(column,),
        rows=[row._replace(words=f"--encoder-token-mixer fastformer {row.words}") for row in rows],
        metrics=ACCURACY_AND_F1,
        reduced=_REDUCED_IMDB,
        seeds=(1, 2, 3),
        data_of_paper=_IMDB_SIZES,
        remarks=(
            "The paper shows bars without figures: compared is what its text says of them.",
            "Amazon and MIND, the other panels, are not run.",
        ),
    )


def _option(option: str, value: str, against: str, claim: str = "") -> Row:
    return Row(value, (value,), "imdb", f"{option} {value}", None, against, claim)


_INTERACTION, _SHARING = "--fastformer-interaction", "--fastformer-sharing"
FIGURE_3 = _ablation(
    "figure 3",
    "interaction",
    [
        _option(_INTERACTION, "product", "product"),
        _option(_INTERACTION, "add", "product", "lower"),
        _option(_INTERACTION, "concat", "product", "lower"),
    ],
)
FIGURE_4 = _ablation(
    "figure 4",
    "shared parameters",
    [
        _option(_SHARING, "none", "none"),
        _option(_SHARING, "query-value", "none", "not lower"),
        _option(_SHARING, "head", "none", "lower"),
        _option(_SHARING, "layer", "none", "higher"),
        _option(_SHARING, "query-value,layer", "none", "higher"),
    ],
)
