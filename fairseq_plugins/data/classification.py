"""Prepare labelled texts: from raw text to fairseq's data.

The prepared folder holds

- `text/raw/SPLIT.source` (one text per line), `.target` (labels) and `.id` (names);
- `text/pieces/SPLIT`: the texts as tokens;
- `input0/` and `label/`: dictionaries and binary data for fairseq's `sentence_prediction`;
- `left_out.txt`: every text that could not be used, and why.
"""

import argparse
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairseq_plugins.arguments import add_flag, add_number
from fairseq_plugins.data import report
from fairseq_plugins.data.labelled import count_labels, imdb_items, read_labelled
from fairseq_plugins.data.like import learn_or_copy
from fairseq_plugins.data.readers import (
    LEFT_OUT,
    RAW,
    SPLITS,
    Item,
    line_items,
    write_documents,
)
from fairseq_plugins.data.report import form_of_text, left_out, table, unknown_tokens
from fairseq_plugins.data.summarization import PIECES, SAMPLE, sample_sentences
from fairseq_plugins.errors import ConfigurationError, flag
from fairseq_plugins.files import count_lines, write_lines, written_whole
from fairseq_plugins.preparation.binarise import binarise_one_side, count_unknown
from fairseq_plugins.preparation.steps import Preparation
from fairseq_plugins.text.processing import NFC
from fairseq_plugins.text.subwords import END, SentencePiece
from fairseq_plugins.text.units import TASK, find_cut
from fairseq_plugins.workers import add_workers_option, map_file

LABELS, BYTES = "work/labels.txt", "work/bytes.txt"
NOTES = "notes"  # lines for the report, in the result of `read_texts`


def read_texts(
    preparation: Preparation,
    files: dict[str, Path],
    imdb: Path | None,
    valid_every: int,
    workers: int,
) -> dict[str, Any]:
    """Write texts and labels to `RAW`.

    Args:
        preparation: see `write_documents`.
        files: for each split a file of lines ``label <TAB> text``; used without `imdb`.
        imdb: archive or folder, see `imdb_items`.
        valid_every: every n-th training text of it goes to valid.
        workers: number of processes.

    Returns:
        the result of `write_documents`.

    Raises:
        ConfigurationError: a file or archive cannot be used, or a split is empty.
    """
    splits, total = list(SPLITS), None
    items: Iterable[Item]
    if imdb is not None:
        items = imdb_items(imdb, valid_every)
    else:
        splits, total = list(files), sum(map(count_lines, files.values()))
        items = itertools.chain.from_iterable(line_items(*each) for each in files.items())
    return write_documents(preparation, items, read_labelled, workers, splits, total)


def cut_split(
    folder: Path, split: str, units: str, max_positions: int | None, workers: int
) -> dict[str, int]:
    """Write `PIECES` of a split; returns the counts of texts, tokens and cuts.

    A tab in a text separates the texts of a pair. Each text gets the full length limit, and the
    end symbol separates them.
    """
    cut = find_cut(units, folder)
    source = folder / RAW / f"{split}.source"
    numbers = dict.fromkeys("texts tokens longest cut_texts cut_tokens".split(), 0)

    def cut_sides(text: str) -> list[list[str]]:
        return [cut(side) for side in text.split("\t")]

    with written_whole(folder / PIECES / split) as out:
        for sides in map_file(cut_sides, source, workers, f"cut {split}"):
            kept = [side[: max_positions and max_positions - 1] for side in sides]
            length, whole = (sum(map(len, each)) for each in (kept, sides))
            numbers["texts"] += 1
            numbers["tokens"] += length
            numbers["longest"] = max(numbers["longest"], length + len(sides) - 1)
            numbers["cut_texts"] += length < whole
            numbers["cut_tokens"] += whole - length
            out.write(f" {END} ".join(map(" ".join, kept)) + "\n")
    return numbers


def prepare(preparation: Preparation, found: dict[str, Any], workers: int) -> None:
    """Learn pieces, cut texts into tokens, binarise, report; `RAW` must be in the folder.

    Args:
        preparation: a preparation with the settings of `classification_settings`.
        found: the result of `read_texts`.
        workers: number of processes.

    Raises:
        ConfigurationError: labels or vocabulary size do not fit the data.
    """
    folder, settings, step = preparation.folder, preparation.settings, preparation.step
    splits = list(found["documents"])
    targets = {split: folder / RAW / f"{split}.target" for split in splits}
    labels = step("count labels", count_labels, targets)
    if settings["units"] == "subwords":
        step("sample train", sample_sentences, folder, settings["sentencepiece_documents"], False)
        learn_or_copy(preparation, "pieces", SentencePiece, [folder / SAMPLE], None)
    how = (settings["units"], settings["max_positions"], workers)
    numbers = {split: step(f"cut {split}", cut_split, folder, split, *how) for split in splits}
    step("binarise", _binarise, folder, targets, settings["units"], labels, workers)
    pieces = {split: folder / PIECES / split for split in splits}
    known = dict.fromkeys(splits, folder / "input0" / "dict.txt")
    unknown = step("count unknown tokens", count_unknown, pieces, known)
    report.write(folder, _report(settings, found, labels, numbers, folder, unknown))
    preparation.finish(leave_out=["work"])


def _binarise(
    folder: Path,
    targets: dict[str, Path],
    units: str,
    labels: dict[str, dict[str, int]],
    workers: int,
) -> None:
    write_lines(folder / LABELS, (f"{label} {n}" for label, n in labels["train"].items()))
    binarise_one_side(targets, folder / "label", folder / LABELS)
    dictionary = None
    if units == "bytes":  # all 256, because later texts may contain bytes that train lacks
        dictionary = folder / BYTES
        write_lines(dictionary, (f"{byte:02x} 1" for byte in range(256)))
    texts = {split: folder / PIECES / split for split in targets}
    binarise_one_side(texts, folder / "input0", dictionary, workers)


def _report(
    settings: dict[str, Any],
    found: dict[str, Any],
    labels: dict[str, dict[str, int]],
    numbers: dict[str, dict[str, int]],
    folder: Path,
    unknown: dict[str, int],
) -> list[str]:
    units = settings["units"]
    rows = [["split", "texts", units, "longest", "cut off", f"{units} not kept"]]
    for split, n in numbers.items():
        share = 100 * n["cut_tokens"] / max(1, n["tokens"] + n["cut_tokens"])
        counts = f"{n['texts']:,}", f"{n['tokens'] / n['texts']:.1f}", f"{n['longest']:,}"
        rows.append([split, *counts, f"{n['cut_texts']:,}", f"{n['cut_tokens']:,} ({share:.1f} %)"])
    longest = 1 + max(n["longest"] for n in numbers.values())
    types = count_lines(folder / "input0" / "dict.txt")
    lines = table(rows) + [
        "",
        f"{units.capitalize()} are means over texts, after the cut.",
        f"With its end symbol the longest text takes {longest:,} positions: --max-positions must "
        "not be less, unless --shorten-method truncate cuts.",
        f"{types:,} entries in the dictionary of {units}.",
        *unknown_tokens(unknown, {split: n["tokens"] for split, n in numbers.items()}, units),
        "",
    ]
    names = list(labels["train"])
    shown = names if len(names) <= 50 else names[:50]
    rows = [["label", *labels]]
    rows += [[name, *(f"{counts.get(name, 0):,}" for counts in labels.values())] for name in shown]
    lines += table(rows)
    if len(names) > len(shown):
        lines.append(f"... and {len(names) - len(shown):,} more labels: label/dict.txt has all")
    lines += ["", *left_out(found["left_out"], "texts", LEFT_OUT), *form_of_text(settings)]
    return lines + found.get(NOTES, [])


OF_PIECES = {"vocab_size": 16000, "sentencepiece_documents": 20000}  # options only for subwords


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that set how texts become tokens."""
    units = parser.add_mutually_exclusive_group()
    add_flag(units, "--bytes", "use bytes as tokens instead of subwords")
    add_flag(units, "--words", "use words, separated by spaces, as tokens")
    pieces, texts = (f"(default: {default:,})" for default in OF_PIECES.values())
    add_number(
        parser,
        "--vocab-size",
        f"maximum number of SentencePiece pieces, learnt from train {pieces}",
    )
    add_number(
        parser, "--sentencepiece-documents", "learn pieces from at most N training texts, evenly "
        f"spaced {texts}",
    )  # fmt: skip
    add_number(
        parser, "--max-positions", "truncate texts to N positions, including the end symbol; the "
        "report counts what is cut off (default: keep all)", least=2,
    )  # fmt: skip
    add_workers_option(parser)


def units_of(args: argparse.Namespace) -> str:
    """The units of tokens, as chosen by the options of `add_options`."""
    return "bytes" if args.bytes else "words" if args.words else "subwords"


def classification_settings(args: argparse.Namespace, units: str) -> dict[str, Any]:
    """The settings of a preparation from these options.

    Raises:
        ConfigurationError: an option is out of range or has no effect.
    """
    settings = {"task": TASK, "units": units, "max_positions": args.max_positions}
    settings["normalization"] = NFC
    for name, default in OF_PIECES.items():
        given = getattr(args, name)
        if units == "subwords":
            settings[name] = default if given is None else given
        elif given is not None:
            raise ConfigurationError(
                f"{flag(name)} {given} is for SentencePiece, but tokens are {units}: remove it"
            )
    return settings
