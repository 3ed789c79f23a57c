"""Tables 4 to 6 and figures 3 and 4 of the Fastformer paper (Wu et al., arXiv 2108.09084).

Figure 2, which measures time, is `benchmark figure2`.
"""

from collections.abc import Sequence

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


# table 4: accuracy, its deviation, macro F1 and its deviation on IMDB, Amazon and MIND
_FIGURES_4 = (
    (52.04, 0.50, 42.69, 0.47, 65.32, 0.35, 42.31, 0.33, 80.90, 0.20, 60.02, 0.21),
    (52.21, 0.36, 43.36, 0.38, 65.45, 0.39, 42.48, 0.44, 81.36, 0.21, 62.59, 0.23),
    (53.23, 0.46, 44.03, 0.44, 66.14, 0.42, 42.96, 0.40, 81.93, 0.24, 63.58, 0.26),
    (53.17, 0.59, 44.34, 0.57, 66.20, 0.49, 43.13, 0.48, 82.16, 0.28, 63.77, 0.30),
    (53.09, 0.47, 44.30, 0.49, 66.12, 0.42, 43.04, 0.44, 82.25, 0.23, 63.81, 0.22),
    (53.78, 0.51, 44.52, 0.50, 66.05, 0.44, 43.00, 0.45, 82.46, 0.24, 64.10, 0.26),
    (54.10, 0.42, 44.65, 0.44, 66.13, 0.29, 43.23, 0.30, 82.34, 0.19, 63.89, 0.20),
)
# table 6: ROUGE-1, 2 and L on CNN/DailyMail and PubMed
_FIGURES_6 = (
    (38.52, 16.04, 35.87, 34.26, 11.88, 31.64),
    (37.89, 15.46, 35.19, 36.92, 14.34, 33.75),
    (38.31, 15.78, 35.60, 37.73, 14.99, 34.51),
    (37.96, 15.58, 35.34, 37.22, 14.48, 34.02),
    (37.24, 14.87, 34.64, 36.43, 13.80, 33.21),
    (38.58, 16.16, 36.17, 37.82, 15.15, 34.63),
    (38.54, 16.22, 36.21, 38.09, 15.44, 34.81),
)


def _table_4(
    place: int, title: str, recipe: str, data: dict[str, int], *remarks: str, shorter: bool = True
) -> Table:
    """A column of table 4.

    Args:
        place: its first figure in `_FIGURES_4`.
        shorter: whether the paper's Transformer reads less, which is 512 positions.
    """
    rows = []
    for (name, system, mixer), figures in zip(SYSTEMS, _FIGURES_4):
        words = f"--encoder-token-mixer {mixer}"
        cut = " --max-positions 512" * (shorter and name == BASELINE)
        paper = Paper(figures[place : place + 4 : 2], figures[place + 1 : place + 4 : 2])
        rows.append(Row(name, (system,), recipe, words + cut, paper, reduced=words))
    return Table(
        title=f"Fastformer, table 4, {title}",
        columns=("system",),
        rows=rows,
        metrics=ACCURACY_AND_F1,
        reduced=_REDUCED_IMDB,
        seeds=(1, 2, 3),
        seeds_of_paper=5,
        data_of_paper=data,
        remarks=(_GLOVE, *remarks),
    )


TABLE_4 = _table_4(0, "IMDB", "imdb", _IMDB_SIZES)
TABLE_4_AMAZON = _table_4(
    4,
    "Amazon",
    "amazon",
    {"train": 40000, "valid": 5000, "test": 5000, "classes": 5},
    "The paper does not say which reviews of electronics it sampled: here the 5-core ones.",
    shorter=False,
)
TABLE_4_MIND = _table_4(
    8,
    "MIND",
    "mind_topics",
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


def _table_6(place: int, title: str, data: str, train: int) -> Table:
    """A column of table 6, with its first figure at this place of `_FIGURES_6`."""
    rows = []
    for (name, system, mixer), figures in zip(SYSTEMS, _FIGURES_6):
        # the paper's Transformer reads less
        recipe = f"{'transformer' if name == BASELINE else 'fastformer'}_{data}"
        paper = Paper(figures[place : place + 3])
        rows.append(Row(name, (system,), recipe, f"--encoder-token-mixer {mixer}", paper))
    return Table(
        title=f"Fastformer, table 6, {title}",
        columns=("system",),
        rows=rows,
        metrics=ROUGE,
        settings=("table6",),
        reduced=("reduced_cpu", "reduced_table6"),
        generation=f"generate_{data}",
        reduced_generation="generate_headlines",
        seeds=(1, 2, 3),
        seeds_of_paper=5,
        data_of_paper={"train": train},
        remarks=("The paper's ROUGE-L is the summary-level one, ROUGE-Lsum of `evaluate`.",),
    )


TABLE_6_CNN_DM = _table_6(0, "CNN/DailyMail", "cnn_dm", 287100)
TABLE_6_PUBMED = _table_6(3, "PubMed", "pubmed", 108500)


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
