"""Tables 4 to 6 and figures 3 and 4 of the Fastformer paper (Wu et al., arXiv 2108.09084).

Figure 2, which measures time, is `benchmark figure2`.
"""

from typing import Dict, Sequence

from .table import ACCURACY_AND_F1, BASELINE, ROUGE, Cited, Metric, Paper, Row, Table

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
_GLOVE = (
    "The paper starts from GloVe's word vectors; here embeddings start at random "
    "(--encoder-embed-path gives vectors)."
)


def _table_4(
    title: str,
    recipe: str,
    figures: Sequence[Sequence[float]],
    data: Dict[str, int],
    *remarks: str,
    shorter: bool = True,
) -> Table:
    """A column of table 4.

    Args:
        figures: accuracy, its deviation, macro F1 and its deviation, for each of `SYSTEMS`.
        shorter: whether the paper's Transformer reads less, which is 512 positions.
    """
    return Table(
        title=f"Fastformer, table 4, {title}",
        columns=("system",),
        rows=[
            Row(
                name, (system,), recipe,
                f"--encoder-token-mixer {mixer}"
                + " --max-positions 512" * (shorter and name == BASELINE),
                Paper(row[::2], row[1::2]),
                reduced=f"--encoder-token-mixer {mixer}",
            )
            for (name, system, mixer), row in zip(SYSTEMS, figures)
        ],
        metrics=ACCURACY_AND_F1,
        reduced=_REDUCED_IMDB,
        seeds=(1, 2, 3),
        seeds_of_paper=5,
        data_of_paper=data,
        remarks=(_GLOVE, *remarks),
    )  # fmt: skip


TABLE_4 = _table_4(
    "IMDB",
    "imdb",
    [
        (52.04, 0.50, 42.69, 0.47),
        (52.21, 0.36, 43.36, 0.38),
        (53.23, 0.46, 44.03, 0.44),
        (53.17, 0.59, 44.34, 0.57),
        (53.09, 0.47, 44.30, 0.49),
        (53.78, 0.51, 44.52, 0.50),
        (54.10, 0.42, 44.65, 0.44),
    ],
    _IMDB_SIZES,
)
TABLE_4_AMAZON = _table_4(
    "Amazon",
    "amazon",
    [
        (65.32, 0.35, 42.31, 0.33),
        (65.45, 0.39, 42.48, 0.44),
        (66.14, 0.42, 42.96, 0.40),
        (66.20, 0.49, 43.13, 0.48),
        (66.12, 0.42, 43.04, 0.44),
        (66.05, 0.44, 43.00, 0.45),
        (66.13, 0.29, 43.23, 0.30),
    ],
    {"train": 40000, "valid": 5000, "test": 5000, "classes": 5},
    "The paper does not say which reviews of electronics it sampled: here the 5-core ones.",
    shorter=False,
)
TABLE_4_MIND = _table_4(
    "MIND",
    "mind_topics",
    [
        (80.90, 0.20, 60.02, 0.21),
        (81.36, 0.21, 62.59, 0.23),
        (81.93, 0.24, 63.58, 0.26),
        (82.16, 0.28, 63.77, 0.30),
        (82.25, 0.23, 63.81, 0.22),
        (82.46, 0.24, 64.10, 0.26),
        (82.34, 0.19, 63.89, 0.20),
    ],
    {"train": 128800, "valid": 16100, "test": 16100, "classes": 18},
    "The paper's texts are bodies of news, which MIND's release lacks: without --bodies of "
    "prepare-mind, compare the rows here with each other only.",
)
TABLE_5 = Table(
    title="Fastformer, table 5, MIND (recommendation)",
    columns=("system",),
    rows=[
        Row(name, (system,), "recommendation", f"--encoder-token-mixer {mixer}", Paper(scores))
        for (name, system, mixer), scores in zip(
            SYSTEMS,
            [
                (68.22, 33.32, 36.35, 42.23),
                (67.98, 33.04, 36.18, 42.06),
                (68.14, 33.28, 36.30, 42.18),
                (68.02, 33.19, 36.22, 42.10),
                (67.76, 32.94, 36.16, 41.97),
                (68.54, 33.60, 36.69, 42.60),
                (69.11, 34.25, 37.26, 43.38),
            ],
        )
    ],
    metrics=[Metric(name, name) for name in ("AUC", "MRR", "nDCG@5", "nDCG@10")],
    reduced=("reduced_recommendation",),
    seeds=(1, 2, 3),
    seeds_of_paper=5,
    data_of_paper={"train": 2232748, "valid": 376471, "test": 2370727},
    cited=[
        Cited(("NRMS",), (68.18, 33.29, 36.31, 42.20)),
        Cited(("FIM",), (68.31, 33.42, 36.47, 42.35)),
        Cited(("PLM-NR",), (70.64, 35.39, 38.71, 44.38)),
        Cited(("Fastformer+PLM-NR",), (71.04, 35.91, 39.16, 45.03)),
        Cited(("Fastformer+PLM-NR, five models",), (72.68, 37.45, 41.51, 46.84)),
    ],
    remarks=(
        _GLOVE,
        "The labels of the paper's test set are not public: here MIND's dev set is the test.",
        "Rows with PLM-NR need a pretrained language model, which is not run here.",
    ),
)


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
