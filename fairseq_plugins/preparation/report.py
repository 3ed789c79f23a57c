"""The report of a preparation: how much was read, kept, skipped and learnt."""

from typing import Any, Dict, List, Sequence

from fairseq_plugins.preparation.cleaning import Limits

NAME = "report.txt"
CHARACTERS = " (by BPE, as a unigram model found mostly single characters)"


def table(rows: Sequence[Sequence[str]]) -> List[str]:
    """Align cells in columns; the first column is aligned to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def unknown_tokens(unknown: Dict[str, int], tokens: Dict[str, int], units: str) -> List[str]:
    """A line for each text with tokens missing from the dictionary: how many, of how many."""
    return [
        f"Unknown {units} in {name}: {count:,} of {tokens[name]:,} "
        f"({100 * count / max(1, tokens[name]):.1f} %)"
        for name, count in unknown.items()
        if count
    ]


def form_of_text(settings: Dict[str, Any]) -> List[str]:
    """A line about changes to all texts."""
    form = settings.get("normalization")
    return [f"All text was brought into Unicode's form {form}."] if form else []


def left_out(reasons: Dict[str, int], units: str, names: str) -> List[str]:
    """How many texts were skipped, and why.

    Args:
        reasons: the number of texts by the reason.
        units: what the texts are, such as "documents".
        names: the file that names them.
    """
    count = sum(reasons.values())
    if not count:
        return [f"No {units[:-1]} was left out."]
    by_reason = [f"  {number:>9,}  {reason}" for reason, number in sorted(reasons.items())]
    return [f"{count:,} {units} were left out; {names} names them", *by_reason]


def translation_report(settings: Dict[str, Any], results: Dict[str, Any]) -> str:
    """A page about a prepared language pair.

    Args:
        settings: the settings of the preparation.
        results: `cleaned`, `subwords` and `splits`, from `preparation.translation.prepare`.
    """
    lines = ["{source_lang} to {target_lang}".format(**settings), ""]
    lines += _sizes_of_pairs(settings, results["splits"])
    lines += ["", *_cleaning(settings, results)]
    lines += ["", *_vocabulary(settings, results)]
    lines += ["", *_given_back(settings, results)]
    return "\n".join(lines) + "\n"


def _sizes_of_pairs(settings: Dict[str, Any], splits: Dict[str, Any]) -> List[str]:
    languages = settings["source_lang"], settings["target_lang"]
    head = ["", "pairs"]
    for what in ("words", "subwords", "longest", "empty"):
        head += [f"{language} {what}" for language in languages]
    rows = [head]
    for split, numbers in splits.items():
        row = [split, "{:,}".format(numbers["pairs"])]
        for what in ("words", "subwords", "longest", "empty"):
            row += [f"{numbers[language][what]:,}" for language in languages]
        rows.append(row)
    return [
        *table(rows),
        "",
        "Words are {}; longest is in subwords; empty sides are kept in valid and test.".format(
            "Moses tokens" if settings["tokenizer"] == "moses" else "what spaces separate"
        ),
    ]


def _cleaning(settings: Dict[str, Any], results: Dict[str, Any]) -> List[str]:
    cleaned = results["cleaned"]
    dropped = sum(cleaned["dropped"].values())
    lines = [
        "Training text: {:,} pairs read, {:,} kept, {:,} left out{}".format(
            cleaned["read"], cleaned["read"] - dropped, dropped, ":" if dropped else ""
        ),
    ]
    reasons = sorted(cleaned["dropped"].items(), key=lambda item: -item[1])
    lines += [f"  {number:>9,}  {reason}" for reason, number in reasons]
    uneven = cleaned["dropped"].get(Limits.uneven(settings["max_ratio"]), 0)
    if 2 * uneven > cleaned["read"]:
        lines += [
            f"Most pairs were left out for --max-ratio {settings['max_ratio']:g}. Text without "
            "spaces between words counts as one word a line: for it give --max-ratio 1000"
        ]
    if settings["valid_every"]:
        lines += [
            "valid is one in {} of the pairs kept, which train does not get".format(
                settings["valid_every"]
            )
        ]
    also = [
        f"{split} {numbers['in_train']:,} of {numbers['pairs']:,}"
        for split, numbers in results["splits"].items()
        if numbers.get("in_train")
    ]
    if also:
        lines += ["The same pairs stand in train too: " + ", ".join(also)]
    return lines


def _given_back(settings: Dict[str, Any], results: Dict[str, Any]) -> List[str]:
    lines = form_of_text(settings)
    pairs = results["splits"]["valid"]["pairs"]
    for language, changed in results["changed"].items():
        count = changed["lines"]
        if count:
            lines += [f"valid.{language}: subwords give {count:,} of {pairs:,} lines back changed"]
        else:
            lines += [f"valid.{language}: subwords give every line back"]
        for line, found in changed["shown"]:
            lines += [f"  {line}", f"  -> {found}"]
    if settings["tokenizer"] == "moses" and any(n["lines"] for n in results["changed"].values()):
        lines += [
            "Moses' rules change translations in the same way; prepare-translation with "
            "--tokenizer none --subword sentencepiece changes nothing"
        ]
    return lines


def _vocabulary(settings: Dict[str, Any], results: Dict[str, Any]) -> List[str]:
    languages = settings["source_lang"], settings["target_lang"]
    subwords = results["subwords"]
    what = "BPE merges" if settings["subword"] == "bpe" else "SentencePiece pieces"
    what += CHARACTERS if subwords.get("bpe") else ""
    origin = f"of {settings['vocab_size']:,} asked for, on both sides together"
    if "like" in settings:
        origin = "of another folder (--like)"
    lines = [f"Subwords: {subwords['learnt']:,} {what} {origin}"]
    sizes = subwords["types"]
    if settings["joined_dictionary"]:
        lines += [f"Vocabulary: {sizes[languages[0]]:,} types for both sides"]
    else:
        each = [f"{side} {sizes[side]:,} types" for side in languages]
        lines += ["Vocabulary: " + ", ".join(each)]
    for split, numbers in results["splits"].items():
        unknown = [numbers[language]["unknown"] for language in languages]
        if any(unknown):
            lines += [
                "Unknown subwords in {}: {}".format(
                    split, ", ".join("{} {:,}".format(*each) for each in zip(languages, unknown))
                )
            ]
    return lines
