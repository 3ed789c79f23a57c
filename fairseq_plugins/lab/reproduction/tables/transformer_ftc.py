"""Tables 1 and 2 of the TransformerFTC paper: IWSLT'14 German-English."""

from .table import BASELINE, Cited, Paper, Row, Table

FC, TC, FTC = "transformer_fc", "transformer_tc", "transformer_ftc"


def _row(
    name: str, model: str, blocks: str, bleu: float, seconds: int, recipe: str, words: str = "",
    pooling: str = "2",
) -> Row:  # fmt: skip
    """A row; blocks such as "2x3" become --encoder-blocks 3,3."""
    count, layers = blocks.split("x")
    if recipe != BASELINE:
        words = f"--encoder-blocks {','.join([layers] * int(count))} {words}".strip()
    return Row(name, (model, blocks, pooling), recipe, words, Paper((bleu,), (), seconds))


TABLES_1_AND_2 = Table(
    title="TransformerFTC, tables 1 and 2",
    columns=("model", "blocks x layers", "pooling"),
    rows=[
        _row("transformer", "Transformer", "1x6", 34.9, 216, BASELINE, pooling="-"),
        _row("fc-2x3", "Feature", "2x3", 34.8, 195, FC),
        _row("fc-2x4", "Feature", "2x4", 35.1, 202, FC),
        _row("fc-3x3", "Feature", "3x3", 34.7, 232, FC),
        _row("fc-4x4", "Feature", "4x4", 35.2, 380, FC),
        _row("fc-6x4", "Feature", "6x4", 34.9, 440, FC),
        _row("tc-2x3", "Time", "2x3", 35.0, 196, TC),
        _row("tc-2x4", "Time", "2x4", 35.1, 207, TC),
        _row("ftc-2x3", "Feature+Time", "2x3", 35.1, 163, FTC),
        _row("ftc-2x4", "Feature+Time", "2x4", 35.0, 181, FTC),
        _row("fc-2x3-window4", "Feature", "2x3", 35.2, 186, FC, "--feature-window 4", "4"),
        _row("fc-3x3-window4", "Feature", "3x3", 35.1, 212, FC, "--feature-window 4", "4"),
        _row(
            "fc-2x3-linear", "Feature", "2x3", 35.1, 204, FC, "--feature-pooling linear",
            "2 (linear)",
        ),
    ],
    cited=[
        Cited(("Statistical (Gehring et al. 2016)", "-", "-"), (28.4,)),
        Cited(("Pooling (Gehring et al. 2016)", "-", "-"), (19.7,)),
        Cited(("Convolutional (Gehring et al. 2016)", "-", "-"), (20.1,)),
        Cited(("LSTM (Gehring et al. 2016)", "-", "-"), (27.3,)),
        Cited(("BiLSTM (Gehring et al. 2016)", "-", "-"), (29.8,)),
        Cited(("Transformer (Vaswani et al. 2017)", "1x6", "-"), (34.4,)),
    ],
    settings=("reproduce_ftc",),
    precision="fp32",
    data_of_paper={"train": 160239},
    timed=True,
    fixed=("--encoder-layers",),
)  # fmt: skip
