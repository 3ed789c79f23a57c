"""Table 3 of the MSCFFN paper: training steps per second with and without MSCFFN, and memory.

    python -m fairseq_plugins benchmark table3 --json table3.json --plot table3.svg     # one GPU
    python -m fairseq_plugins benchmark table3 --json F --sentences 1 --values 128,1024   # a CPU

Encoders of 6 layers, 768 features, 12 heads, inner dimension 3,072, with 32 sentences at each of
the lengths 128, 1K and 4K. The paper trains a classifier of bytes on a V100 GPU; here the step is
that of the encoder with a loss on its output, fixed embeddings and Adam.

Options are those of `growth`, whose defaults differ here. Rerun to resume.
"""

import argparse
from typing import Any, Callable, Dict, List, Optional

from . import growth, results

LENGTHS = (128, 1024, 4096)
# published steps per second at these lengths; None: out of memory on 32 GB
PUBLISHED: Dict[str, List[Optional[float]]] = {
    "Transformer": [20.21, 3.45, None],
    "Longformer": [12.30, 2.44, None],
    "Performer": [25.48, 4.17, 1.18],
    "Flowformer": [14.29, 4.50, 1.16],
    "Transformer+": [29.09, 4.55, None],
    "Longformer+": [20.38, 2.70, None],
    "Performer+": [41.22, 6.67, 1.85],
    "Flowformer+": [24.93, 7.14, 1.82],
}
MIXERS = {"Transformer": "softmax"}
SIZES = (
    "--encoder-layers 6 --encoder-embed-dim 768 --encoder-ffn-embed-dim 3072 "
    "--encoder-attention-heads 12"
)


def encoder(title: str) -> str:
    """The contender of a row; "+" is the paper's sign for MSCFFN."""
    name = title.rstrip("+")
    network = "mscffn" if title.endswith("+") else "standard"
    mixer = MIXERS.get(name, name.lower())
    return f"mscffn_transformer --encoder-ffn {network} --encoder-token-mixer {mixer}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    growth.add_arguments(parser)
    parser.set_defaults(
        values=list(LENGTHS),
        sentences=32,
        part="encoder",
        what="training",
        contender=[encoder(title) for title in PUBLISHED],
        options=SIZES,
        rounds=3,
        titles={encoder(title): title for title in PUBLISHED},
    )


def run(args: argparse.Namespace) -> results.Report:
    """Measure with `growth.run`; the table gets steps per second, and the paper's beside them.

    Raises:
        ConfigurationError: see `growth.run`.
    """
    report = growth.run(args)
    columns = [
        ("length", results.number("value", ",.0f")),
        ("encoder", lambda row: growth.title_of(args, row["contender"])),
        ("steps/s, paper", lambda row: shown(published(args, row))),
        ("steps/s, here", lambda row: shown(steps(row))),
        ("gain by MSCFFN, paper", gain(args, report.rows, lambda row: published(args, row))),
        ("gain by MSCFFN, here", gain(args, report.rows, steps)),
        ("peak, MiB", results.number("peak_bytes", ",.0f", 1 / growth.MIB)),
        ("", results.text("problem")),
    ]
    return report._replace(columns=columns)


def steps(row: results.Row) -> Optional[float]:
    return 1 / row["median_seconds"] if row.get("median_seconds") else None


def published(args: argparse.Namespace, row: results.Row) -> Optional[float]:
    found = PUBLISHED.get(growth.title_of(args, row["contender"]))
    return found[LENGTHS.index(row["value"])] if found and row["value"] in LENGTHS else None


def gain(
    args: argparse.Namespace, rows: List[results.Row], figure: Callable[[Any], Optional[float]]
) -> Callable[[results.Row], str]:
    """A column: the figure of a row with MSCFFN over that of its row without."""

    def show(row: results.Row) -> str:
        title = growth.title_of(args, row["contender"])
        for other in rows:
            same = (other["value"], other["what"]) == (row["value"], row["what"])
            if same and growth.title_of(args, other["contender"]) + "+" == title:
                ours, theirs = figure(row), figure(other)
                return shown(ours / theirs) if ours and theirs else "-"
        return "-"

    return show


def shown(value: Optional[float]) -> str:
    return "-" if value is None else f"{value:.3g}"
