"""The report of a preparation: how much was read, kept, skipped and learnt."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from fairseq_plugins.errors import counted
from fairseq_plugins.files import written_whole

NAME = "report.txt"
REMOVED = "removed.txt"
NORMALISED = "All text was brought into Unicode's form NFC."
LONGEST_PROBLEM = 300  # characters


def write(folder: Path, lines: Iterable[str]) -> None:
    """Write the report of a folder."""
    with written_whole(folder / NAME, errors="backslashreplace") as file:  # for names of files
        file.writelines(line + "\n" for line in lines)


def show(folder: Path) -> None:
    """Print the report of a prepared folder."""
    print((folder / NAME).read_text(encoding="utf-8"))
    print(printable(f"{folder} is ready for training; this report is {folder / NAME}"))


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align cells in columns; the first column is aligned to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def lines_of(task: Any, results: dict[str, Any], notes: Iterable[str]) -> list[str]:
    """The lines of the report of a folder that the pipeline has made.

    Args:
        task: the kind of data.
        results: what the pipeline has counted.
        notes: more lines.
    """
    settings, types = task.settings, results["types"]
    sides = dict(zip(task.sides, task.longest))
    measured = {
        f"{split}.{side}": results["sides"][f"{split}.{side}"]
        for split in task.splits
        for side in sides
    }
    columns = ["words", "tokens", "longest", "empty"]
    columns += [
        name
        for name in ("truncated", "lost", "separators")
        if any(side[name] for side in measured.values())
    ]
    rows = [["", task.units, *columns]]
    for name, of_side in measured.items():
        sizes = [results["examples"][name.split(".")[0]], *(of_side[each] for each in columns)]
        rows.append([name, *(f"{size:,}" for size in sizes)])
    lines = [
        *(*table(rows), ""),
        "Words are separated by spaces in the text that is segmented. Tokens are what a model",
        "reads, without end symbols. Lost are the tokens of truncated texts.",
    ]
    for side, option in sides.items():
        longest = 1 + max(measured[f"{split}.{side}"]["longest"] for split in task.splits)
        lines.append(
            f"The longest {side} takes {longest:,} positions with its end symbol: {option}"
        )
    lines += ["", f"The training set had {counted(results['read'], task.units)}."]
    lines += [*removed_lines(results["removed"], task.units), ""]
    if "subwords" in results:
        asked = f"of {settings['vocab_size']:,} asked for"
        origin = "of another folder (--like)" if "like" in settings else asked
        lines += [f"Subwords: {results['subwords']} {origin}"]
        if (every := results.get("learnt_on_one_line_of", 1)) > 1:
            lines += [f"Subwords were learnt on one training line in {every:,}"]
    lines += ["Dictionary: " + ", ".join(f"{side} {types[side]:,} types" for side in sides)]
    lines[-1] += ", in one for both sides" * settings.get("joined_dictionary", False)
    return [*lines, *unknown_tokens(measured, "tokens"), NORMALISED, "", *notes]


def unknown_tokens(sides: dict[str, dict[str, int]], units: str) -> list[str]:
    """A line for each text with tokens missing from the dictionary: how many, of how many."""
    return [
        f"Unknown {units} in {name}: {side['unknown']:,} of {side['tokens']:,} "
        f"({100 * side['unknown'] / max(1, side['tokens']):.1f} %)"
        for name, side in sides.items()
        if side["unknown"]
    ]


def removed_lines(reasons: dict[str, int], units: str) -> list[str]:
    """How many texts were skipped, and why.

    Args:
        reasons: the number of texts by the reason.
        units: what the texts are, such as "documents".
    """
    count = sum(reasons.values())
    if not count:
        return [f"No {units[:-1]} was filtered out."]
    by_reason = [f"  {number:>9,}  {reason}" for reason, number in sorted(reasons.items())]
    return [f"Filtered out: {counted(count, units)}, which {REMOVED} names", *by_reason]


class Removed:
    """The texts that cannot be used: it writes them to a file and counts their reasons.

    Attributes:
        of_split: how many of each split have each reason, which is the part of a problem before its
            colon.
        first: the first one of each split.
    """

    def __init__(self, file: IO[str]):
        self.file = file
        self.first: dict[str, str] = {}
        self.of_split: dict[str, Counter[str]] = defaultdict(Counter)

    @property
    def reasons(self) -> dict[str, int]:
        """How many texts of all splits have each reason."""
        return dict(sum(self.of_split.values(), Counter()))

    def add(self, split: str, name: str, problem: str) -> None:
        """Write down a text that cannot be used, by its name; the problem may quote it."""
        problem = printable(" ".join(problem.split())[:LONGEST_PROBLEM])
        reason = problem.partition(":")[0]
        reason = "not UTF-8" if reason.endswith("is not UTF-8") else reason
        self.of_split[split][reason] += 1
        self.file.write(f"{split}\t{name}\t{problem}\n")
        self.first.setdefault(split, f"{split}  {name}  {problem}")


def printable(text: str) -> str:
    """The text with escapes for bytes that are not UTF-8, such as in file names."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
