"""Table 3 of the MSCFFN paper: training steps per second with and without MSCFFN, and memory.

    python -m fairseq_plugins benchmark table3 --json table3.json --plot table3.svg     # one GPU
    python -m fairseq_plugins benchmark table3 --json F --sentences 1 --values 128,1024   # a CPU

Encoders of 6 layers, 768 features, 12 heads, inner dimension 3,072, with 32 sentences at each of
the lengths 128, 1K and 4K. The paper trains a classifier of bytes on a V100 GPU; here the step is
that of the encoder with a loss on its output, fixed embeddings and Adam.

Options are those of `growth`, with other defaults. Rerun to resume.
"""

import argparse
from typing import NamedTuple

from . import growth, results, timing

LENGTHS = (128, 1024, 4096)
# published steps per second at these lengths; None: out of memory on 32 GB
PUBLISHED: dict[str, list[float | None]] = {
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
    found = gains(args, report.rows)

    def gain(row: results.Row) -> Gain:
        return found.get((row["value"], row["contender"]), Gain(None, None))

    columns = [
        ("length", results.number("value", ",.0f")),
        ("encoder", lambda row: growth.title_of(args, row["contender"])),
        ("steps/s, paper", lambda row: shown(published(args, row))),
        ("steps/s, here", lambda row: shown(steps(row))),
        ("gain by MSCFFN, paper", lambda row: shown(gain(row).paper)),
        ("gain by MSCFFN, here (quartiles)", lambda row: shown_spread(gain(row).here)),
        ("peak, MiB", results.number("peak_bytes", ",.0f", 1 / growth.MIB)),
        ("", results.text("problem")),
    ]
    return report._replace(columns=columns, notes=[*report.notes, *agreement(found)])


class Gain(NamedTuple):
    """Steps per second with MSCFFN over those of the same encoder without."""

    paper: float | None
    here: timing.Spread | None


def gains(args: argparse.Namespace, rows: list[results.Row]) -> dict[tuple[int, str], Gain]:
    """The gain of each row with MSCFFN, by its length and contender."""
    without = {(row["value"], growth.title_of(args, row["contender"])): row for row in rows}
    found = {}
    for row in rows:
        title = growth.title_of(args, row["contender"])
        base = without.get((row["value"], title.rstrip("+")), {})
        if title.endswith("+") and base:
            ours, theirs = published(args, row), published(args, base)
            here = None
            if steps(row) and steps(base):
                # of each round, as all contenders are timed in turn
                here = timing.spread(timing.ratios(base["seconds"], row["seconds"]))
            paper = ours / theirs if ours and theirs else None
            found[row["value"], row["contender"]] = Gain(paper, here)
    return found


def agreement(found: dict[tuple[int, str], Gain]) -> list[str]:
    """The paper's claim (MSCFFN makes each encoder faster), computed."""
    here = [gain.here for gain in found.values() if gain.here]
    if not here:
        return []
    faster = sum(gain.low > 1 for gain in here)
    medians = [gain.median for gain in here]
    line = (
        f"with MSCFFN an encoder is faster in {faster} of {len(here)} comparisons (the lower "
        f"quartile is above 1), with {min(medians):.2f} to {max(medians):.2f} times as many steps"
    )
    paper = [gain.paper for gain in found.values() if gain.paper]
    if paper:
        line += (
            f"; in the paper in {sum(gain > 1 for gain in paper)} of {len(paper)}, with "
            f"{min(paper):.2f} to {max(paper):.2f} times as many"
        )
    return [line]


def steps(row: results.Row) -> float | None:
    return 1 / row["median_seconds"] if row.get("median_seconds") else None


def published(args: argparse.Namespace, row: results.Row) -> float | None:
    found = PUBLISHED.get(growth.title_of(args, row["contender"]))
    return found[LENGTHS.index(row["value"])] if found and row["value"] in LENGTHS else None


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def shown_spread(found: timing.Spread | None) -> str:
    return "-" if found is None else f"{found.median:.2f} ({found.low:.2f} - {found.high:.2f})"
