"""A page for browsers: translations, and how much each of their subwords reads of the source."""

from collections.abc import Sequence
from html import escape

END = "end"  # the label of the end symbol
HEAD = """<!doctype html>
<meta charset="utf-8">
<title>Attention to the source</title>
<style>
body { font-family: sans-serif; margin: 2em; }
div { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; }
td { width: 2em; height: 1.6em; border: 1px solid #ddd; }
th { font-weight: normal; text-align: right; padding: 0 .4em; white-space: nowrap; }
thead th { writing-mode: vertical-rl; transform: rotate(180deg); text-align: left; }
</style>
<p>A row is a subword of the translation, and a column is one of the source. The darker a cell, the
more the model attended to the column when it wrote the row (cross-attention of the last decoder
layer, mean of its heads; each row has the sum 1). Point at a cell to see its value.</p>
"""


def section(
    number: int,
    line: str,
    translation: str,
    source: Sequence[str],
    target: Sequence[str],
    weights: Sequence[Sequence[float]],
) -> str:
    """The part of the page about one line.

    Args:
        number: the line's number, from 1.
        line: the line, and `translation`: what the model wrote.
        source: S subwords of the line, and `target`: T subwords of the translation.
        weights: (T + 1) x (S + 1) of `search.text.Output.attention`; empty for no table.
    """
    text = (
        f'<h2>{number}</h2>\n<p dir="auto">{escape(line)}<p dir="auto"><b>{escape(translation)}</b>'
    )
    if not weights:
        return f"{text}\n<p>There is no table, because the line was empty or translated in parts.\n"
    columns = "".join(f"<th>{escape(piece)}" for piece in [*source, END])
    rows = [f"<thead><tr><th>{columns}</thead>"]
    for piece, row in zip([*target, END], weights):
        cells = (
            f'<td style="background: rgb(0 114 178 / {weight:.2f})" title="{weight:.2f}">'
            for weight in row
        )
        rows.append(f"<tr><th>{escape(piece)}{''.join(cells)}")
    return "\n".join([text, "<div><table>", *rows, "</table></div>"]) + "\n"
