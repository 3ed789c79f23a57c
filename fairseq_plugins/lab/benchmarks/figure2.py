"""Figure 2 of the Fastformer paper: time of seven encoders against length.

    python -m fairseq_plugins benchmark figure2 --json figure2.json --plot figure2.svg
    python -m fairseq_plugins benchmark figure2 --json F --values 128,512 --tokens 4096   # a CPU

The encoders have the sizes of the paper's MIND column (table 9): 2 layers, 256 features, 16
heads, windows of 16 (Poolingformer 256), 16 global and 16 random tokens, 16 projected positions.
The inner dimension, which the paper does not give, is 1,024. Embeddings are fixed and tokens
random; the batch has the same number of tokens at every length (section 4.3).

Options are those of `growth`, with other defaults: the lengths are 128 to 65,536. Rerun to resume.
"""

import argparse
from typing import Any

from . import growth, results, workloads

FASTFORMER = "Fastformer"
_MIXER = "fastformer_encoder --encoder-token-mixer"
# windows as in the recipe of the paper's other tasks: BigBird counts blocks, and Poolingformer's
# second window is 4 times as wide as its first
ENCODERS = {
    "Transformer": f"{_MIXER} softmax",
    "Longformer": f"{_MIXER} longformer --longformer-window 16 --longformer-global-tokens 16",
    "BigBird": f"{_MIXER} bigbird --bigbird-block 8",
    "Linformer": f"{_MIXER} linformer --linformer-projected-length 16",
    "Linear Transformer": f"{_MIXER} linear",
    "Poolingformer": (
        f"{_MIXER} poolingformer --poolingformer-window 256 --poolingformer-pooling-window 1024"
    ),
    FASTFORMER: f"{_MIXER} fastformer",
}
SIZES = (
    "--encoder-layers 2 --encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 "
    "--encoder-attention-heads 16"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    growth.add_arguments(parser)
    parser.set_defaults(
        values=[128, 512, 2048, 8192, 32768, 65536],
        tokens=65536,
        part="encoder",
        contender=list(ENCODERS.values()),
        options=SIZES,
        rounds=3,
        titles={words: title for title, words in ENCODERS.items()},
    )


def run(args: argparse.Namespace) -> results.Report:
    """Measure with `growth.run`, and say where Fastformer is the fastest, as the paper states.

    Raises:
        ConfigurationError: see `growth.run`.
    """
    report = growth.run(args)
    return report._replace(notes=[*report.notes, *agreement(report.rows)])


def agreement(rows: list[dict[str, Any]]) -> list[str]:
    """The paper's claim ("much more efficient than other linear complexity variants"), computed."""
    notes = []
    for what in workloads.WHAT:
        lengths: dict[bool, list[str]] = {True: [], False: []}
        for value in sorted({row["value"] for row in rows}):
            seconds = {
                row["contender"]: row["median_seconds"]
                for row in rows
                if row["what"] == what and row["value"] == value and "median_seconds" in row
            }
            own = seconds.pop(ENCODERS[FASTFORMER], None)
            if own and seconds:
                best = min(seconds, key=lambda words: seconds[words])
                name = {words: title for title, words in ENCODERS.items()}.get(best, best)
                lengths[own < seconds[best]].append(
                    f"{value:,} ({name} takes {seconds[best] / own:.2f} of its time)"
                )
        for faster, found in lengths.items():
            word = "agrees with the paper" if faster else "disagrees with the paper"
            if found:
                notes.append(
                    f"{what}: Fastformer is {'' if faster else 'not '}the fastest ({word}) at "
                    f"length, with the next one: {', '.join(found)}"
                )
    return notes
