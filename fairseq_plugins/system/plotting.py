"""Plots as SVG or PNG files. matplotlib is imported only if a plot is requested."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import replacing

logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it logs each font it looks at

# colours that colour-blind readers can distinguish (Okabe and Ito), each with its own marker
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def check(path: Path | None, option: str = "--plot") -> None:
    """Check the file of a plot, the value of an option, before the work starts.

    Raises:
        ConfigurationError: matplotlib is missing, or the name does not end in .svg or .png.
    """
    if path is None:
        return
    if path.suffix not in (".svg", ".png"):
        raise ConfigurationError(f"{option} {path}: the name must end in .svg or .png")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigurationError("plots need matplotlib: pip install matplotlib") from None


@contextlib.contextmanager
def figure(
    path: Path, columns: int = 1, rows: int = 1, width: float = 5.2, height: float = 3.8
) -> Iterator[list[Any]]:
    """Yield the axes row by row; write the file atomically after the block.

    The same figures give the same bytes. `width` and `height` are inches per panel.
    """
    import matplotlib
    from matplotlib.figure import Figure

    style: Any = {"svg.hashsalt": "benchmark", "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(style):
        drawing = Figure(figsize=(width * columns, height * rows), layout="constrained")
        axes = drawing.subplots(rows, columns, squeeze=False).flatten()
        for axis in axes:
            axis.grid(True, which="major", color="#dddddd", linewidth=0.6)
            axis.set_axisbelow(True)
        yield list(axes)
        path.parent.mkdir(parents=True, exist_ok=True)
        kind: dict[str, Any] = {"format": "png", "dpi": 150}
        if path.suffix == ".svg":
            kind = {"format": "svg", "metadata": {"Date": None}}
        with replacing(path) as part:
            drawing.savefig(part, **kind)


def bars(path: Path, rows: Sequence[dict[str, Any]], title: str) -> None:
    """Draw time ratios with their quartiles, and a mark at each ratio of operations."""
    with figure(path, width=7.5, height=1.2 + 0.42 * len(rows)) as (axis,):
        places = list(range(len(rows)))[::-1]
        middle = [row["time_ratio"] for row in rows]
        ranges = [row["time_ratio_quartiles"] or [row["time_ratio"]] * 2 for row in rows]
        low, high = zip(*ranges)
        error = [
            [max(0.0, m - v) for m, v in zip(middle, low)],
            [max(0.0, v - m) for m, v in zip(middle, high)],
        ]
        axis.barh(places, middle, color=COLOURS[0], height=0.6, label="time (quartiles)")
        axis.errorbar(middle, places, xerr=error, fmt="none", ecolor="#000000", capsize=3)
        counted = [(row.get("flop_ratio"), place) for row, place in zip(rows, places)]
        counted = [(value, place) for value, place in counted if value is not None]
        if counted:
            axis.plot(*zip(*counted), "|", color=COLOURS[1], ms=16, mew=3, label="operations")
        axis.set_yticks(places)
        axis.set_yticklabels([row["contender"] for row in rows])
        axis.set_title(title)
        axis.set_xlabel("ratio")
        axis.set_xlim(left=0)
        axis.legend(loc="lower right", fontsize=8)
