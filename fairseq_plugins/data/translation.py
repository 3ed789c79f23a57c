"""Prepare a parallel corpus of any language pair: from raw text to fairseq's data."""

import argparse
import collections
import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.arguments import add_number
from fairseq_plugins.data import report
from fairseq_plugins.data.cleaning import Limits
from fairseq_plugins.data.like import learn_or_copy
from fairseq_plugins.data.readers import RAW, SPLITS, TOO_LONG, check_counts
from fairseq_plugins.data.report import translation_report
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import (
    LONGEST_LINE,
    columns_written,
    digest,
    read_input,
    read_input_pairs,
    read_lines,
    read_pairs,
    write_columns,
    write_lines,
)
from fairseq_plugins.preparation.binarise import binarise, read_types
from fairseq_plugins.preparation.steps import Preparation
from fairseq_plugins.prepared_folder import Prepared, stored_settings
from fairseq_plugins.text.languages import main_script
from fairseq_plugins.text.processing import Processing, normalise
from fairseq_plugins.text.subwords import KINDS
from fairseq_plugins.workers import add_workers_option, map_file

# subfolders of the prepared folder
TOKENISED = "text/tokenised"
SUBWORDS = "text/subwords"
# settings that belong to a subword model and its dictionaries
SHARED_BY_LIKE = (
    "tokenizer", "lowercase", "subword", "vocab_size", "joined_dictionary", "moses_codes",
    "normalization",
)  # fmt: skip
CHANGED_SHOWN = 3  # lines of a language in the report
SCRIPT_LINES = 1000  # of train, to detect the script of a language
# subfolders that exist only during the preparation
ALL_RAW = "work/raw"
ALL_TOKENISED = "work/tokenised"


def find_files(
    prefixes: dict[str, Sequence[str]], languages: Sequence[str]
) -> dict[str, list[str]]:
    """The checksums of the files with these prefixes, by split and language.

    Raises:
        ConfigurationError: a file is missing.
    """
    found = {}
    for split, names in prefixes.items():
        for language in languages:
            paths = [Path(f"{name}.{language}") for name in names]
            for path in paths:
                if not path.is_file():
                    raise ConfigurationError(
                        "{} does not exist: --{} PREFIX stands for PREFIX.{} and PREFIX.{}".format(
                            path, split, *languages
                        )
                    )
            found[f"{split}.{language}"] = [digest(path) for path in paths]
    return found


def read_text(
    prefixes: dict[str, Sequence[str]],
    languages: Sequence[str],
    folder: Path,
) -> dict[str, int]:
    """Join the files of each split into the folder's `ALL_RAW`, pair by pair.

    Args:
        prefixes: the prefixes of the files of each split.
        languages: the endings of the files.
        folder: the folder of the preparation.

    Returns:
        The number of training pairs that were left out, for each reason.

    Raises:
        ConfigurationError: two sides are not aligned, a line is not UTF-8, or a held-out line is
            too long.
    """
    left_out: dict[str, int] = collections.Counter()

    def usable(split: str, name: str) -> Iterator[list[str]]:
        sides = [Path(f"{name}.{language}") for language in languages]
        for number, pair in enumerate(read_input_pairs(*sides), 1):
            if None not in pair:
                yield [normalise(line or "") for line in pair]
            elif split == "train":
                left_out[TOO_LONG] += 1
            else:  # only complete sets have comparable scores
                raise ConfigurationError(
                    f"{name}, line {number} is longer than {LONGEST_LINE:,} bytes: such lines are "
                    "skipped only in train; shorten or remove it"
                )

    for split, names in prefixes.items():
        paths = [folder / ALL_RAW / f"{split}.{language}" for language in languages]
        write_columns(paths, (pair for name in names for pair in usable(split, name)))
    return left_out


def prepare(
    preparation: Preparation,
    workers: int,
    left_out: dict[str, int] | None = None,
    expected_pairs: dict[str, int] | None = None,
    like: Path | None = None,
) -> None:
    """Tokenise, clean, hold out, cut into subwords, binarise, report.

    The folder's `ALL_RAW` must hold raw text: train, optionally test, and valid unless it is drawn
    from train.

    Args:
        preparation: with the settings of `Processing` and `Limits`, `vocab_size`,
            `joined_dictionary` and `valid_every` (every n-th pair is held out; or None).
        workers: number of processes.
        left_out: the number of training pairs left out by `read_text`, for each reason.
        expected_pairs: the expected number of pairs of each split, or None for any.
        like: a prepared folder whose subword model and dictionaries are used.

    Raises:
        ConfigurationError: the text cannot be used, or the numbers of pairs differ.
    """
    folder, settings, step = preparation.folder, preparation.settings, preparation.step
    languages = [settings["source_lang"], settings["target_lang"]]
    processing = Processing.of(settings)

    for name in (f"{split}.{language}" for split in SPLITS for language in languages):
        if (folder / ALL_RAW / name).exists():
            step(f"tokenise {name}", tokenise, folder, name, processing, workers)
    cleaned = step("clean and split", clean, folder, languages, settings, left_out or {})
    check_counts("--expect-pairs", "pairs", cleaned["pairs"], expected_pairs)

    kind = KINDS[settings["subword"]]
    splits = [split for split in SPLITS if split in cleaned["pairs"]]
    train = [folder / TOKENISED / f"train.{language}" for language in languages]
    learnt = learn_or_copy(preparation, "subwords", kind, train, like)
    for name in (f"{split}.{language}" for split in splits for language in languages):
        step(f"cut {name}", cut, folder, name, kind, workers)
    how = (folder, settings["joined_dictionary"], workers, like)
    step("binarise", binarise, folder / SUBWORDS, splits, languages, *how)
    by = (processing, workers)
    changed = {
        language: step(f"read back valid.{language}", find_changed, folder, language, *by)
        for language in languages
    }
    subwords = {
        "learnt": learnt,
        "types": {language: len(read_types(folder, language)) for language in languages},
        "contents": kind(folder / kind.file_name).contents,
    }
    numbers = step("count", count, folder, splits, languages)
    report.write(folder, translation_report(settings, cleaned, subwords, numbers, changed))
    preparation.finish(leave_out=["work"])


def tokenise(folder: Path, name: str, processing: Processing, workers: int) -> None:
    """Convert raw text to tokens, lower-cased if the settings say so."""
    tokenisation = processing.tokenise(name.rpartition(".")[2])
    tokens = map_file(tokenisation, folder / ALL_RAW / name, workers, name)
    write_lines(folder / ALL_TOKENISED / name, tokens)


def clean(
    folder: Path, languages: Sequence[str], settings: dict[str, Any], left_out: dict[str, int]
) -> dict[str, Any]:
    """Remove unfit training pairs and draw the valid split; given valid and test files stay."""
    limits, every = Limits.of(settings), settings["valid_every"]
    dropped: dict[str, int] = collections.Counter(left_out)
    tokenised_before = Processing.of(settings).tokenised_before
    drawn = ("train", "valid") if every else ("train",)
    pairs = dict.fromkeys(drawn, 0)
    read = sum(left_out.values())
    with contextlib.ExitStack() as stack:
        write = {}
        for split in drawn:
            names = [f"{split}.{language}" for language in languages]
            paths = [folder / form / name for form in (RAW, TOKENISED) for name in names]
            write[split] = stack.enter_context(columns_written(paths))
        for raw, tokenised in zip(
            _pairs(folder / ALL_RAW, "train", languages),
            _pairs(folder / ALL_TOKENISED, "train", languages),
        ):
            read += 1
            reason = limits.reason_against(*tokenised, tokenised_before=tokenised_before)
            if reason is not None:
                dropped[reason] += 1
                continue
            kept = sum(pairs.values()) + 1
            split = "valid" if every and kept % every == 0 else "train"
            pairs[split] += 1
            write[split](raw + tokenised)
    if pairs["train"] == 0:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in dropped.items()) or "no text"
        advice = Limits.advice(settings, read, dropped)
        raise ConfigurationError(
            f"all {read:,} training pairs are unfit for training: {reasons}"
            + (f". {advice}" if advice else "")
        )
    if every and pairs["valid"] == 0:
        raise ConfigurationError(
            f"--valid-every {every}: only {pairs['train']:,} pairs are fit for training, so valid "
            "would be empty; give a smaller number, or --valid"
        )
    for split in ("valid", "test"):
        if (folder / ALL_RAW / f"{split}.{languages[0]}").exists():
            pairs[split] = _keep_whole(folder, split, languages)
    return {"read": read, "dropped": dropped, "pairs": pairs}


def _keep_whole(folder: Path, split: str, languages: Sequence[str]) -> int:
    """Copy a given valid or test set; returns its number of pairs."""
    pairs = sum(1 for _ in _pairs(folder / ALL_RAW, split, languages))
    if not pairs:
        raise ConfigurationError(
            f"{split} is empty, which fairseq cannot read: give text"
            + (", or no test set" if split == "test" else "")
        )
    for form, everything in ((RAW, ALL_RAW), (TOKENISED, ALL_TOKENISED)):
        for name in (f"{split}.{language}" for language in languages):
            write_lines(folder / form / name, read_lines(folder / everything / name))
    return pairs


def cut(folder: Path, name: str, kind: Any, workers: int, option: str = "--workers") -> None:
    """Cut tokens into subwords."""
    model = kind(folder / kind.file_name)
    pieces = map_file(model.cut, folder / TOKENISED / name, workers, name, option)
    write_lines(folder / SUBWORDS / name, pieces)


def find_changed(
    folder: Path, language: str, processing: Processing, workers: int
) -> dict[str, Any]:
    """The lines of valid that their subwords do not restore; white space does not count.

    Returns:
        `lines`: how many; `shown`: some of them, each with the restored text.
    """
    name = f"valid.{language}"
    raw, pieces = folder / RAW / name, folder / SUBWORDS / name
    kind = KINDS[processing.subword]
    join, undo = kind(folder / kind.file_name).join, processing.tokenise(language).undo
    back = map_file(lambda line: undo(join(line)), pieces, workers, name)
    changed = []
    for line, found in zip(read_lines(raw), back):
        line = " ".join(normalise(line).split())
        line = line.lower() if processing.lowercase else line
        if found != line:
            changed.append((line, found))
    return {"lines": len(changed), "shown": changed[:CHANGED_SHOWN]}


def count(folder: Path, splits: Sequence[str], languages: Sequence[str]) -> dict[str, Any]:
    """Count the pairs of each split and, for each language, words, subwords, empty and unknown."""
    numbers: dict[str, Any] = {}
    for language in languages:
        types = read_types(folder, language)
        for split in splits:
            name = f"{split}.{language}"
            found = {
                "words": sum(len(line.split()) for line in read_lines(folder / TOKENISED / name)),
                **dict.fromkeys(("subwords", "longest", "empty", "unknown"), 0),
            }
            pairs = 0
            for line in read_lines(folder / SUBWORDS / name):  # millions do not fit in memory
                pieces = line.split()
                pairs += 1
                found["subwords"] += len(pieces)
                found["longest"] = max(found["longest"], len(pieces))
                found["empty"] += not pieces
                found["unknown"] += sum(piece not in types for piece in pieces)
            numbers.setdefault(split, {"pairs": pairs})[language] = found
    for split, same in also_in_train(folder, splits, languages).items():
        numbers[split]["in_train"] = same
    return numbers


def also_in_train(folder: Path, splits: Sequence[str], languages: Sequence[str]) -> dict[str, int]:
    """The number of pairs of each other split that also occur in train, after tokenisation."""
    others = {
        split: list(_pairs(folder / TOKENISED, split, languages))
        for split in splits
        if split != "train"
    }
    wanted = {pair for pairs in others.values() for pair in pairs}
    train = {pair for pair in _pairs(folder / TOKENISED, "train", languages) if pair in wanted}
    return {split: sum(pair in train for pair in pairs) for split, pairs in others.items()}


def _pairs(folder: Path, split: str, languages: Sequence[str]) -> Iterator[tuple[str, str]]:
    return read_pairs(*(folder / f"{split}.{language}" for language in languages))


def add_subword_options(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Add the options that every preparation of a language pair has.

    Args:
        parser: where to add them.
        default: the default of `--subword`; None if the command chooses.
    """
    parser.add_argument(
        "--subword",
        choices=sorted(KINDS),
        default=default,
        help="byte-pair encoding by subword-nmt, or SentencePiece (default: "
        + (default or "sentencepiece; bpe with --tokenizer")
        + ")",
    )
    add_number(
        parser, "--vocab-size", "maximum number of BPE merges or SentencePiece pieces, learnt on "
        "both sides of train", 10000,
    )  # fmt: skip
    joined = "two" if default else "one where both languages share a script"
    parser.add_argument(
        "--joined-dictionary",
        action=argparse.BooleanOptionalAction,
        help="one dictionary for both sides (needed for --share-all-embeddings), or two (default: "
        f"{joined})",
    )
    add_workers_option(parser)


def subword_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The settings of a preparation from these options."""
    return {
        "subword": args.subword,
        "vocab_size": args.vocab_size,
        "joined_dictionary": bool(args.joined_dictionary),
    }


def fits_one_dictionary(
    destination: Path, prefixes: dict[str, Sequence[str]], languages: Sequence[str]
) -> bool:
    """Whether both languages share a dictionary if no option decides.

    If the folder exists, as it has; else whether most letters at the start of train are of one
    script.
    """
    stored = stored_settings(destination).get("joined_dictionary")
    if stored is not None:
        return bool(stored)
    starts = (
        itertools.islice(read_input(Path(f"{prefixes['train'][0]}.{language}")), SCRIPT_LINES)
        for language in languages
    )
    return len({main_script(line or "" for line in start) for start in starts}) == 1


def show(folder: Path) -> None:
    """Print the report of a prepared folder, and what fairseq-generate needs."""
    name = KINDS[Prepared(folder).processing.subword].fairseq_name
    report.show(folder, f"fairseq-generate takes --remove-bpe {name}")
