"""Plots of the laboratory."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.system.plotting import COLOURS, MARKERS, bars, check, figure

__all__ = ["COLOURS", "MARKERS", "bars", "check", "curves", "figure", "legend"]


# name, values across and up, and why the line ends early; "" for a complete one
Line = tuple[str, list[float], list[float], str]


def time_and_bleu(path: Path, rows: Sequence[dict[str, Any]], title: str) -> None:
    """Draw each contender at its time ratio, with quartiles, and its BLEU."""
    with figure(path, width=6.5) as (axis,):
        for index, row in enumerate(rows):
            middle, (low, high) = row["time_ratio"], row["time_ratio_quartiles"]
            axis.errorbar(
                [middle],
                [row["bleu"]],
                xerr=[[max(0.0, middle - low)], [max(0.0, high - middle)]],
                color=COLOURS[index % len(COLOURS)],
                fmt=MARKERS[index % len(MARKERS)],
                capsize=3,
                label=row["contender"],
            )
        axis.set_xscale("log")
        axis.set_xlabel("time, ratio to the first")
        axis.set_ylabel("tokenised BLEU")
        axis.set_title(title)
        axis.legend(fontsize=7)


def curves(axis: Any, lines: Sequence[Line], x: str, y: str, title: str) -> None:
    """Draw lines over a logarithmic x axis.

    The y axis is logarithmic if values span more than a factor of ten; otherwise it starts at 0.
    """
    for index, (name, across, up, ends) in enumerate(lines):
        colour = COLOURS[index % len(COLOURS)]
        style = {"color": colour, "marker": MARKERS[index % len(MARKERS)], "ms": 4}
        axis.plot(across, up, label=textwrap.fill(name, 90), linewidth=1.4, **style)
        if ends and across:
            axis.annotate(
                ends,
                (across[-1], up[-1]),
                textcoords="offset points",
                xytext=(0, 6),
                ha="right",
                fontsize=7,
                color=colour,
            )
    axis.set_xscale("log", base=2)
    values = [value for _, _, up, _ in lines for value in up]
    if values and max(values) > 10 * min(values):
        axis.set_yscale("log")
        axis.margins(y=0.12)  # room for the text at the end of a line
    else:
        axis.set_ylim(0, 1.15 * max(values, default=1.0))
    ticks = sorted({value for _, across, *_ in lines for value in across})
    axis.set_xticks(ticks)
    axis.set_xticklabels([f"{tick:,}" for tick in ticks], rotation=45)
    axis.minorticks_off()
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.set_title(title)


def legend(axes: Sequence[Any]) -> None:
    """Draw one legend for all panels, above them."""
    handles, names = axes[0].get_legend_handles_labels()
    axes[0].figure.legend(handles, names, loc="outside upper center", fontsize=8)
