"""Tables in Markdown."""

from collections.abc import Sequence


def table_line(cells: Sequence[str]) -> str:
    """A line of a table."""
    return "| " + " | ".join(cells) + " |"


def table_head(titles: Sequence[str]) -> list[str]:
    """The first two lines of a table."""
    return [table_line(titles), table_line(["---"] * len(titles))]
