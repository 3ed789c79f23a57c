"""Progress: a bar on a terminal, a line every 30 seconds in a log."""

import contextlib
import io
import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

SECONDS_BETWEEN_LINES = 30.0  # in a log file, which keeps every state of the bar


def on_a_terminal() -> bool:
    """Whether somebody sees a bar: stderr is a terminal, and not closed."""
    return sys.stderr is not None and sys.stderr.isatty()


def progress_bar(
    items: Iterable[Any] | None = None,
    *,
    description: str,
    total: int | None = None,
    show: bool = True,
    **how: Any,
) -> Any:
    """A tqdm bar on stderr, over `items` or advanced by hand.

    Args:
        items: the items to iterate over; None for a bar that the caller updates.
        description: the text before the bar.
        total: the number of items, if `items` has no length.
        show: whether to show it; otherwise it can only be updated.
        how: further arguments of tqdm, such as `unit`.
    """
    if not show and items is None:
        return contextlib.nullcontext(SimpleNamespace(update=bool))
    from tqdm import tqdm  # a slow import

    if not on_a_terminal():
        how.setdefault("mininterval", SECONDS_BETWEEN_LINES)
        how.setdefault("ascii", True)
    file = sys.stderr or io.StringIO()  # closed, as of a daemon, it shows nothing
    return tqdm(
        items, desc=description, total=total, file=file, dynamic_ncols=True,
        disable=not show or sys.stderr is None, **how,
    )  # fmt: skip
