"""Which differences between rows agree with the paper's."""

import itertools
from typing import Any

from fairseq_plugins.lab.markdown import table_head, table_line
from fairseq_plugins.lab.reproduction.figures import paper_sample, scores
from fairseq_plugins.lab.reproduction.intervals import Difference, Sample, subtract

CLAIMS = {"higher": 1, "not lower": 1, "lower": -1}
AGREEMENT_NOTE = (
    "Agreement is open if the 95 % interval of the difference here includes 0, or with one seed "
    "(Welch's t over the seeds; one comparison in 20 is clear by chance). Published deviations "
    "give the paper's differences an interval too; without them their sign counts."
)
AGREEMENT = {1: "agrees", 0: "open", -1: "disagrees"}


def agreement(results: dict[str, Any]) -> list[str]:
    """What agrees with the paper: each row against the row that the paper compares it with."""
    metric = results["metrics"][0]
    rows = {row["name"]: row for row in results["rows"]}
    lines = ["", f"Differences in {metric} [95 %], and whether they agree with the paper:", ""]
    lines += table_head(["row", "against", "paper", "here", ""])
    for row in results["rows"]:
        if row["against"] in rows and row["against"] != row["name"]:
            base = rows[row["against"]]
            here = _difference(scores(row, metric), scores(base, metric))
            theirs, claimed = _claimed(results, row, base)
            verdict = "not run"
            if here:
                verdict = AGREEMENT[here.sign * claimed]
                verdict = "clear only here" if here.sign and not claimed else verdict
            lines.append(table_line([row["name"], base["name"], theirs, _signed(here), verdict]))
    return [*lines, "", *pairs_in_order(results)]


def pairs_in_order(results: dict[str, Any]) -> list[str]:
    """How many pairs of rows have a clear order here, and the same one as in the paper."""
    metric, rows = results["metrics"][0], results["rows"]
    counts = {1: 0, 0: 0, -1: 0, "alone": 0}
    for row, other in itertools.combinations([row for row in rows if row["paper"]], 2):
        here = _difference(scores(row, metric), scores(other, metric))
        if here:
            sign = here.sign * _claimed(results, row, other)[1]
            counts[sign if sign or not here.sign else "alone"] += 1
    total = sum(counts.values())
    if not total:
        return []
    return [
        f"Pairs of rows: {total}. Their order is clear here and as in the paper for {counts[1]}, "
        f"clear but reversed for {counts[-1]}, clear only here for {counts['alone']}, "
        f"and open for {counts[0]}."
    ]


def _difference(ours: list[float], theirs: list[float]) -> Difference | None:
    return subtract(Sample.of(ours), Sample.of(theirs)) if ours and theirs else None


def _claimed(results: dict[str, Any], row: dict[str, Any], base: dict[str, Any]) -> Any:
    """The paper's difference as text, and its sign: 0 if its own interval includes 0."""
    here, there = (paper_sample(results, each, 0) for each in (row, base))
    if not here or not there:
        return row["claim"] or "-", CLAIMS.get(row["claim"], 0)
    found = subtract(here, there)
    if found.half is not None:
        return _signed(found), found.sign
    return _signed(found), (found.value > 0) - (found.value < 0)


def _signed(found: Difference | None) -> str:
    if not found:
        return "-"
    if found.half is None:
        return f"{found.value:+.2f}"
    low, high = found.value - found.half, found.value + found.half
    return f"{found.value:+.2f} [{low:+.2f}, {high:+.2f}]"
