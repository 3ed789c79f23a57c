"""Which differences between rows agree with the paper's."""

import itertools
from typing import Any

from fairseq_plugins.lab.reproduction.intervals import Difference, Sample, subtract
from fairseq_plugins.system.markdown import table
from fairseq_plugins.train.sweep_report import is_published, scores

CLAIMS = {"higher": 1, "not lower": 1, "lower": -1}
NOTE = (
    "Agreement is open if the 95 % interval of the difference here includes 0, or with one seed "
    "(Welch's t over the seeds; one comparison in 20 is clear by chance). Published deviations "
    "give the paper's differences an interval too; without them their sign counts."
)
AGREEMENT = {1: "agrees", 0: "open", -1: "disagrees"}


def agreement(results: dict[str, Any]) -> list[str]:
    """What agrees with the paper: each row against the row that the paper compares it with.

    Args:
        results: the content of results.json; nothing is concluded without a paper's figures.
    """
    if not is_published(results) or not any(row["runs"] for row in results["rows"]):
        return []
    metric = results["metrics"][0]
    rows = {row["name"]: row for row in results["rows"]}
    lines = []
    for row in results["rows"]:
        if row["against"] in rows and row["against"] != row["name"]:
            base = rows[row["against"]]
            here = _difference(scores(row, metric), scores(base, metric))
            theirs, claimed = _claimed(results, row, base)
            verdict = "not run"
            if here:
                verdict = AGREEMENT[here.sign * claimed]
                verdict = "clear only here" if here.sign and not claimed else verdict
            lines.append([row["name"], base["name"], theirs, _signed(here), verdict])
    head = f"Differences in {metric} [95 %], and whether they agree with the paper:"
    shown = table(["row", "against", "paper", "here", ""], lines)
    return [head, "", *shown, "", *pairs_in_order(results), NOTE, ""]


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


def _paper_sample(results: dict[str, Any], row: dict[str, Any]) -> Sample | None:
    """The published figure of a row; without a published deviation it counts as one run."""
    if not row["paper"]:
        return None
    (value, *_), count = row["paper"]["scores"], results["seeds_of_paper"]
    deviations = row["paper"].get("deviations")
    return Sample(value, deviations[0], count) if deviations and count > 1 else Sample(value, 0, 1)


def _claimed(results: dict[str, Any], row: dict[str, Any], base: dict[str, Any]) -> Any:
    """The paper's difference as text, and its sign: 0 if its own interval includes 0."""
    here, there = (_paper_sample(results, each) for each in (row, base))
    if not here or not there:
        return row["claim"] or "-", CLAIMS.get(row["claim"], 0)
    published = subtract(here, there)
    if published.half is not None:
        return _signed(published), published.sign
    return _signed(published), (published.value > 0) - (published.value < 0)


def _signed(difference: Difference | None) -> str:
    if not difference:
        return "-"
    value, half = difference
    return f"{value:+.2f}" + (
        "" if half is None else f" [{value - half:+.2f}, {value + half:+.2f}]"
    )
