"""Progress: a bar on a terminal, a line every 30 seconds in a log."""

import contextlib
import io
import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

SECONDS_BETWEEN_LINES = 30.0  # in a log file, which keeps every state of the bar
IN_A_LOG = (
    "{desc}: {n_fmt} of {total_fmt}{unit} after {elapsed}, {rate_noinv_fmt}, {remaining} left"
)


def on_a_terminal() -> bool:
    """Whether somebody sees a bar: stderr is a terminal, and not closed."""
    return sys.stderr is not None and sys.stderr.isatty()


class _Log:
    """A file in which each state of a bar has a line of its own."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, text: str) -> None:
        if text.strip():
            self._file.write(text.strip() + "\n")

    def flush(self) -> None:
        self._file.flush()


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

    file: Any = sys.stderr or io.StringIO()  # closed, as of a daemon, it shows nothing
    if not on_a_terminal():
        how |= dict.fromkeys(("mininterval", "maxinterval", "delay"), SECONDS_BETWEEN_LINES)
        how["bar_format"] = IN_A_LOG
        file = _Log(file)
    return tqdm(
        items, desc=description, total=total, file=file, dynamic_ncols=True,
        disable=not show or sys.stderr is None, **how,
    )  # fmt: skip
