"""The tables that `reproduce` can measure. A row is a recipe with options."""

from typing import Dict, NamedTuple, Optional, Sequence, Tuple

BASELINE = "transformer"  # a row of every table; time ratios are relative to it


class Paper(NamedTuple):
    """The published figures of a row."""

    bleu: float
    epoch_seconds: int


class Row(NamedTuple):
    """A row of a table, with its recipe and options."""

    name: str
    labels: Sequence[str]  # its cells in the columns of the table
    recipe: str
    words: str = ""
    paper: Optional[Paper] = None


class Table(NamedTuple):
    """Rows with the same settings for training and testing."""

    columns: Sequence[str]
    rows: Sequence[Row]
    settings: str  # a file of the package: settings of all rows
    precision: str = "auto"
    average: int = 0  # test the average of this many last checkpoints; 0 for the best on valid
    runs: Sequence[Tuple[str, int]] = ()  # default (row, seed) pairs, in training order


FC, TC, FTC = "transformer_fc", "transformer_tc", "transformer_ftc"
# tables 1 and 2 of the TransformerFTC paper
FTC_PAPER = Table(
    columns=("model", "blocks x layers", "pooling"),
    rows=[
        Row("transformer", ("Transformer", "1x6", "-"), BASELINE, "", Paper(34.9, 216)),
        Row("fc-2x3", ("Feature", "2x3", "2"), FC, "--encoder-blocks 3,3", Paper(34.8, 195)),
        Row("fc-2x4", ("Feature", "2x4", "2"), FC, "--encoder-blocks 4,4", Paper(35.1, 202)),
        Row("fc-3x3", ("Feature", "3x3", "2"), FC, "--encoder-blocks 3,3,3", Paper(34.7, 232)),
        Row("fc-4x4", ("Feature", "4x4", "2"), FC, "--encoder-blocks 4,4,4,4", Paper(35.2, 380)),
        Row(
            "fc-6x4", ("Feature", "6x4", "2"), FC,
            "--encoder-blocks 4,4,4,4,4,4", Paper(34.9, 440),
        ),
        Row("tc-2x3", ("Time", "2x3", "2"), TC, "--encoder-blocks 3,3", Paper(35.0, 196)),
        Row("tc-2x4", ("Time", "2x4", "2"), TC, "--encoder-blocks 4,4", Paper(35.1, 207)),
        Row("ftc-2x3", ("Feature+Time", "2x3", "2"), FTC, "--encoder-blocks 3,3", Paper(35.1, 163)),
        Row("ftc-2x4", ("Feature+Time", "2x4", "2"), FTC, "--encoder-blocks 4,4", Paper(35.0, 181)),
        Row(
            "fc-2x3-window4", ("Feature", "2x3", "4"), FC,
            "--encoder-blocks 3,3 --feature-window 4", Paper(35.2, 186),
        ),
        Row(
            "fc-3x3-window4", ("Feature", "3x3", "4"), FC,
            "--encoder-blocks 3,3,3 --feature-window 4", Paper(35.1, 212),
        ),
        Row(
            "fc-2x3-linear", ("Feature", "2x3", "2 (linear)"), FC,
            "--encoder-blocks 3,3 --feature-pooling linear", Paper(35.1, 204),
        ),
    ],
    settings="reproduce_ftc",
    precision="fp32",
)  # fmt: skip

# runs by importance: one seed of each model, then further seeds of two
_FIRST = ("transformer", "ftc", "ftc_rdrop", "ftc_simcut", "fastformer", "mscffn", "ftc_mscffn")
_LATER = [*((name, seed) for seed in (2, 3) for name in ("transformer", "ftc"))]
_LATER += [("fc", 1), ("tc", 1)]

# the recipes of this package
TRANSLATION = Table(
    columns=("recipe",),
    rows=[
        Row("transformer", ("Transformer",), BASELINE),
        Row("ftc", ("FTC",), FTC),
        Row("ftc_rdrop", ("FTC, R-Drop",), "ftc_rdrop"),
        Row(
            "ftc_simcut", ("FTC, SimCut",), FTC,
            "--criterion label_smoothed_cross_entropy_simcut",
        ),
        Row("fastformer", ("Fastformer",), "fastformer"),
        Row("mscffn", ("MSCFFN",), "mscffn"),
        Row("ftc_mscffn", ("FTC, MSCFFN",), "ftc_mscffn"),
        Row("ftc_deep", ("FTC 6,6 + 1",), "transformer_ftc_deep"),
        Row("fc", ("FC",), FC),
        Row("tc", ("TC",), TC),
    ],
    settings="reproduce_translation",
    average=10,
    runs=[*((name, 1) for name in (*_FIRST, "ftc_deep")), *_LATER],
)  # fmt: skip

# Multi30k as in Wu et al. 2021, "Good for Misconceived Reasons": 4 + 4 layers
_BLOCKS, _FUSED = "--encoder-blocks 2,2", "--criterion label_smoothed_cross_entropy_fused"
MULTI30K = Table(
    columns=("recipe",),
    rows=[
        Row("transformer", ("Transformer",), BASELINE, f"--encoder-layers 4 {_FUSED}"),
        Row("ftc", ("FTC",), FTC, f"{_BLOCKS} {_FUSED}"),
        Row("ftc_rdrop", ("FTC, R-Drop",), "ftc_rdrop", _BLOCKS),
        Row(
            "ftc_simcut", ("FTC, SimCut",), FTC,
            f"{_BLOCKS} --criterion label_smoothed_cross_entropy_simcut",
        ),
        Row("fastformer", ("Fastformer",), "fastformer", f"--encoder-layers 4 {_FUSED}"),
        Row("mscffn", ("MSCFFN",), "mscffn", f"--encoder-layers 4 {_FUSED}"),
        Row("ftc_mscffn", ("FTC, MSCFFN",), "ftc_mscffn", f"{_BLOCKS} {_FUSED}"),
        Row("fc", ("FC",), FC, f"{_BLOCKS} {_FUSED}"),
        Row("tc", ("TC",), TC, f"{_BLOCKS} {_FUSED}"),
    ],
    settings="multi30k",
    precision="bf16",
    average=10,
    runs=[*((name, 1) for name in _FIRST), *_LATER],
)  # fmt: skip

TABLES: Dict[str, Table] = {"ftc": FTC_PAPER, "translation": TRANSLATION, "multi30k": MULTI30K}
