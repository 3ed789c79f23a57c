"""Plots as SVG files. matplotlib is imported only if a plot is requested."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import replacing

logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it logs each font it looks at

# colours that colour-blind readers can distinguish (Okabe and Ito), each with its own marker
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def check(path: Path | None) -> None:
    """Check --plot before the measurement starts.

    Raises:
        ConfigurationError: matplotlib is missing, or the name does not end in .svg.
    """
    if path is None:
        return
    if path.suffix != ".svg":
        raise ConfigurationError(f"--plot {path}: the name must end in .svg")
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
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: Any = {"svg.hashsalt": "benchmark", "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(style):
        drawing = Figure(figsize=(width * columns, height * rows), layout="constrained")
        FigureCanvasSVG(drawing)
        axes = drawing.subplots(rows, columns, squeeze=False).flatten()
        for axis in axes:
            axis.grid(True, which="major", color="#dddddd", linewidth=0.6)
            axis.set_axisbelow(True)
        yield list(axes)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as part:
            drawing.savefig(part, format="svg", metadata={"Date": None})
