"""The report of a preparation: how much was read, kept, skipped and learnt."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.data.cleaning import Limits
from fairseq_plugins.files import written_whole

NAME = "report.txt"


def write(folder: Path, lines: Iterable[str]) -> None:
    """Write the report of a folder."""
    with written_whole(folder / NAME, errors="backslashreplace") as file:  # for names of files
        file.writelines(line + "\n" for line in lines)


def show(folder: Path, *more: str) -> None:
    """Print the report of a prepared folder, and more lines for the user."""
    print((folder / NAME).read_text(encoding="utf-8"))
    print(f"{folder} is ready for training; this report is {folder / NAME}", *more, sep="\n")


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


def unknown_tokens(unknown: dict[str, int], tokens: dict[str, int], units: str) -> list[str]:
    """A line for each text with tokens missing from the dictionary: how many, of how many."""
    return [
        f"Unknown {units} in {name}: {count:,} of {tokens[name]:,} "
        f"({100 * count / max(1, tokens[name]):.1f} %)"
        for name, count in unknown.items()
        if count
    ]


def form_of_text(settings: dict[str, Any]) -> list[str]:
    """A line about changes to all texts."""
    form = settings.get("normalization")
    return [f"All text was brought into Unicode's form {form}."] if form else []


def left_out(reasons: dict[str, int], units: str, names: str | None = None) -> list[str]:
    """How many texts were skipped, and why.

    Args:
        reasons: the number of texts by the reason.
        units: what the texts are, such as "documents".
        names: the file that names them, if there is one.
    """
    count = sum(reasons.values())
    if not count:
        return [f"No {units[:-1]} was left out."]
    by_reason = [f"  {number:>9,}  {reason}" for reason, number in sorted(reasons.items())]
    where = "" if names is None else f"; {names} names them"
    return [f"{count:,} {units} were left out{where}", *by_reason]


def translation_report(
    settings: dict[str, Any],
    cleaned: dict[str, Any],
    subwords: dict[str, Any],
    splits: dict[str, Any],
    changed: dict[str, Any],
) -> list[str]:
    """Lines about a prepared language pair.

    Args:
        settings: the settings of the preparation.
        cleaned, splits, changed: results of `clean`, `count` and `find_changed`, see
            `data.translation`.
        subwords: about the subword model and the dictionaries.
    """
    lines = ["{source_lang} to {target_lang}".format(**settings), ""]
    lines += _sizes_of_pairs(settings, splits)
    lines += ["", *_cleaning(settings, cleaned, splits)]
    lines += ["", *_vocabulary(settings, subwords, splits)]
    return [*lines, "", *_given_back(settings, changed, splits["valid"]["pairs"])]


def _sizes_of_pairs(settings: dict[str, Any], splits: dict[str, Any]) -> list[str]:
    languages = settings["source_lang"], settings["target_lang"]
    columns = [(lang, n) for n in ("words", "subwords", "longest", "empty") for lang in languages]
    rows = [["", "pairs", *(f"{language} {what}" for language, what in columns)]]
    for split, numbers in splits.items():
        sizes = [numbers["pairs"], *(numbers[language][what] for language, what in columns)]
        rows.append([split, *(f"{size:,}" for size in sizes)])
    words = "Moses tokens" if settings["tokenizer"] == "moses" else "what spaces separate"
    about = f"Words are {words}; longest is in subwords; empty sides are kept in valid and test."
    return [*table(rows), "", about]


def _cleaning(
    settings: dict[str, Any], cleaned: dict[str, Any], splits: dict[str, Any]
) -> list[str]:
    read, dropped = cleaned["read"], sum(cleaned["dropped"].values())
    lines = [
        f"Training text: {read:,} pairs read, {read - dropped:,} kept, {dropped:,} left out"
        + ":" * (dropped > 0)
    ]
    reasons = sorted(cleaned["dropped"].items(), key=lambda item: -item[1])
    lines += [f"  {number:>9,}  {reason}" for reason, number in reasons]
    lines += filter(None, [Limits.advice(settings, read, cleaned["dropped"])])
    if settings["valid_every"]:
        every = settings["valid_every"]
        lines += [f"valid is one in {every} of the pairs kept, which train does not get"]
    also = [
        f"{split} {numbers['in_train']:,} of {numbers['pairs']:,}"
        for split, numbers in splits.items()
        if numbers.get("in_train")
    ]
    if also:
        lines += ["The same pairs stand in train too: " + ", ".join(also)]
    return lines


def _given_back(settings: dict[str, Any], changed: dict[str, Any], pairs: int) -> list[str]:
    lines = form_of_text(settings)
    for language, found in changed.items():
        count = found["lines"]
        what = f"{count:,} of {pairs:,} lines back changed" if count else "every line back"
        lines += [f"valid.{language}: subwords give {what}"]
        for line, back in found["shown"]:
            lines += [f"  {line}", f"  -> {back}"]
    if settings["tokenizer"] == "moses" and any(found["lines"] for found in changed.values()):
        lines += [
            "Moses' rules change translations in the same way; prepare-translation with "
            "--tokenizer none --subword sentencepiece changes nothing"
        ]
    return lines


def _vocabulary(
    settings: dict[str, Any], subwords: dict[str, Any], splits: dict[str, Any]
) -> list[str]:
    languages = settings["source_lang"], settings["target_lang"]
    origin = f"of {settings['vocab_size']:,} asked for, on both sides together"
    if "like" in settings:
        origin = "of another folder (--like)"
    lines = [f"Subwords: {subwords['learnt']:,} {subwords['contents']} {origin}"]
    sizes = subwords["types"]
    if settings["joined_dictionary"]:
        lines += [f"Vocabulary: {sizes[languages[0]]:,} types for both sides"]
    else:
        each = [f"{side} {sizes[side]:,} types" for side in languages]
        lines += ["Vocabulary: " + ", ".join(each)]
        lines += ["Small settings, such as low_resource, need one: --joined-dictionary"]
    for split, numbers in splits.items():
        unknown = {language: numbers[language]["unknown"] for language in languages}
        if any(unknown.values()):
            told = ", ".join(f"{language} {count:,}" for language, count in unknown.items())
            lines += [f"Unknown subwords in {split}: {told}"]
    return lines
