"""Plots of the laboratory."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.system.plotting import COLOURS, MARKERS, bars, check, figure

__all__ = ["COLOURS", "MARKERS", "Curve", "bars", "check", "curves", "figure", "legend", "line"]


class Curve(NamedTuple):
    """A line of a plot. `ends` says why the line ends early, and is "" for a complete line."""

    name: str
    across: Sequence[float]
    up: Sequence[float]
    ends: str = ""


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


def line(
    name: str,
    rows: Sequence[dict[str, Any]],
    across: str,
    up: str,
    scale: float = 1.0,
    ends: str = "",
) -> Curve:
    """The curve of a column, times a scale, over another one, where the rows have it."""
    here = [row for row in rows if row.get(up) is not None]
    return Curve(name, [row[across] for row in here], [row[up] * scale for row in here], ends)


def curves(axis: Any, lines: Sequence[Curve], x: str, y: str, title: str) -> None:
    """Draw lines over a logarithmic x axis.

    The y axis is logarithmic if values span more than a factor of ten; otherwise it starts at 0.
    """
    for index, line in enumerate(lines):
        colour = COLOURS[index % len(COLOURS)]
        style = {"color": colour, "marker": MARKERS[index % len(MARKERS)], "ms": 4}
        name = textwrap.fill(line.name, 90)
        axis.plot(line.across, line.up, label=name, linewidth=1.4, **style)
        if line.ends and len(line.across):
            axis.annotate(
                line.ends,
                (line.across[-1], line.up[-1]),
                textcoords="offset points",
                xytext=(0, 6),
                ha="right",
                fontsize=7,
                color=colour,
            )
    axis.set_xscale("log", base=2)
    values = [value for line in lines for value in line.up]
    if values and max(values) > 10 * min(values):
        axis.set_yscale("log")
        axis.margins(y=0.12)  # room for the text at the end of a line
    else:
        axis.set_ylim(0, 1.15 * max(values, default=1.0))
    ticks = sorted({value for line in lines for value in line.across})
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
