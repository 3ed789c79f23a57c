"""From examples to the data that fairseq reads: one pipeline for all tasks.

Examples are filtered and written to `text/raw`; a subword model is learnt or copied; each text is
segmented once; dictionaries and binary data are written; a report says what happened. Memory does
not grow with the corpus, but for the sizes of texts (16 bytes a pair).
"""

import contextlib
import itertools
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from fairseq_plugins.data import report
from fairseq_plugins.data.binary import Encoder, Symbols, build_dictionary, encode, write
from fairseq_plugins.data.preparation import LOCK, WORK, Preparation
from fairseq_plugins.data.prepared_folder import RECORD
from fairseq_plugins.data.readers import RAW, SPLITS, Corpus, Example, Parse, parsed
from fairseq_plugins.data.report import REMOVED
from fairseq_plugins.errors import ConfigurationError, counted
from fairseq_plugins.files import copy, read_lines
from fairseq_plugins.options.fields import option
from fairseq_plugins.system.progress import progress_bar
from fairseq_plugins.system.workers import Workers, map_groups
from fairseq_plugins.text.processing import normalise
from fairseq_plugins.text.sentences import is_blank
from fairseq_plugins.text.subwords import KINDS, step_of_lines

TOKENS = f"{WORK}/tokens"


class Task:
    """What the pipeline must know of one kind of data, such as language pairs.

    Attributes:
        units: what its examples are, in messages.
        sides: the endings of the files of sources and targets in `text/raw`.
        splits: the splits; none may be empty.
        texts: the folder of the texts that are segmented.
        subword: the kind of its subword model; None for none.
        complete: whether nothing may be left out of valid and test.
        valid_every: every n-th example of train goes to valid; None if valid is given.
        symbols: characters that are subwords of their own.
        names: whether the names of examples are written.
        longest: what the report says of the longest text of each side; it has only these sides.
    """

    units = "documents"
    sides: tuple[str, str] = ("source", "target")
    texts = RAW
    subword: str | None = "sentencepiece"
    complete, names = False, True
    longest: tuple[str, ...] = (
        "--max-source-positions must not be less, or give --truncate-source",
        "--max-target-positions must not be less",
    )
    valid_every: int | None = None
    symbols: Sequence[str] = ()

    def __init__(self, settings: dict[str, Any], splits: Sequence[str]):
        self.settings, self.splits = settings, tuple(splits)

    def convert(self, example: Example) -> tuple[str, tuple[str, ...]]:
        """Return the problem of an example and the columns of its texts, the raw ones first.

        It is called in several processes.
        """
        blank = is_blank(example.source) or is_blank(example.target)
        return "no visible text" * blank, (example.source, example.target)

    def check(self, folder: Path) -> dict[str, Any]:
        """Check all texts; returns what belongs to the results."""
        return {}

    def samples(self, folder: Path) -> list[Path]:
        """The files to learn subwords from."""
        raise NotImplementedError

    def encoders(self, model: Any, threads: int) -> tuple[Encoder, Encoder]:
        """The encoder of each side, with the subword model if the task has one."""
        raise NotImplementedError

    def files(self, split: str, side: str) -> tuple[str, str]:
        """The names of the binary data, without ending, and of the dictionary."""
        return f"{split}.{'-'.join(self.sides)}.{side}", f"dict.{side}.txt"

    def dictionaries(self, symbols: Sequence[Symbols], counts: Sequence[Any]) -> list[Any]:
        """The dictionary of each side, from how often train has each symbol."""
        if self.settings["joined_dictionary"]:
            return [build_dictionary(symbols[0], counts)] * 2
        return [build_dictionary(each, [found]) for each, found in zip(symbols, counts)]

    def advice(self, read: int, reasons: dict[str, int]) -> str:
        """What to do if this many examples of train were read, and so many left out; or empty."""
        return ""

    def notes(self, folder: Path, results: dict[str, Any]) -> list[str]:
        """More lines for the report; it may add results."""
        return []


def prepare_folder(
    destination: Path,
    task: Task,
    corpus: Callable[[Path], Corpus],
    workers: int,
    keep: Sequence[str] = (),
    **how: Any,
) -> None:
    """Prepare a folder with the settings of a task, unless it is finished.

    Args:
        destination: the folder.
        task, workers: see `prepare`; `how` are its other arguments.
        corpus: makes the examples, given the folder under construction.
        keep: see `Preparation`.
    """
    with Preparation(destination, task.settings, keep) as preparation:
        if not preparation.finished:
            prepare(preparation, task, corpus(preparation.folder), workers, **how)


def prepare(
    preparation: Preparation,
    task: Task,
    corpus: Corpus,
    workers: int,
    like: Path | None = None,
    expected: dict[str, int] | None = None,
    option: str = "--expect",
) -> None:
    """Prepare a folder from examples.

    Args:
        preparation: the folder, unfinished.
        task: the kind of data.
        corpus: the examples.
        workers: the number of processes and threads.
        like: a prepared folder whose subword model and dictionaries are used; None to learn them.
        expected: the number of examples of each split that must come out; None for any.
        option: the option that sets `expected`.

    Raises:
        ConfigurationError: a split has no example, numbers differ, or subwords cannot be learnt.
    """
    folder = preparation.folder
    results = read(folder, task, corpus, workers)
    check_counts(option, task.units, results["examples"], expected)
    results.update(task.check(folder))
    model = None
    if task.subword is not None:
        model = _subwords(folder, task, like, results)
    encoders = dict(zip(task.sides, task.encoders(model, workers)))
    encoded = {}
    for split, (side, encoder) in itertools.product(task.splits, encoders.items()):
        step(f"segment {split}.{side}")
        texts = progress_bar(
            read_lines(folder / task.texts / f"{split}.{side}"),
            description=f"{task.units} segmented",
            total=results["examples"][split],
            unit_scale=True,
        )
        encoded[split, side] = encode(texts, encoder, folder / WORK / f"{split}.{side}.numbers")
    step("binarise")
    dictionaries = _dictionaries(folder, task, like, encoders, encoded)
    results["types"] = {
        side: sum(not symbol.startswith("madeupword") for symbol in each.symbols[each.nspecial :])
        for side, each in dictionaries.items()
    }
    results["sides"] = {}
    shards = task.settings.get("shards", 1)
    for (split, side), found in progress_bar(encoded.items(), description="files written"):
        encoder, sizes = encoders[side], found.sizes
        parts = map(str, range(shards)) if split == "train" and shards > 1 else [""]
        binaries = [folder / part / task.files(split, side)[0] for part in parts]
        unknown = write(found, encoder.numbers.symbols, dictionaries[side], *binaries)
        results["sides"][f"{split}.{side}"] = {
            "words": results["words"][f"{split}.{side}"],
            "tokens": int(sizes.sum()),  # with separators of parts, without end symbols
            "longest": int(sizes.max()),
            "empty": int((sizes == 0).sum()),
            "unknown": unknown,
            "truncated": found.truncated,
            "lost": found.lost,
            "separators": int(found.counts[encoder.separator : encoder.separator + 1].sum()),
        }
    notes = task.notes(folder, results)
    report.write(folder, report.lines_of(task, results, notes))
    if shards > 1:
        link_first_shard(folder)
    preparation.finish(results)


def read(folder: Path, task: Task, corpus: Corpus, workers: int) -> dict[str, Any]:
    """Write the texts of all examples, and the file `REMOVED` of those that cannot be used.

    Returns:
        `examples`: the number in each split; `words` of each of their files; `read`: the number of
        train; `removed`: how many for each reason.

    Raises:
        ConfigurationError: a split has no example, or an example of a complete split is unusable.
    """
    step(f"read {task.units}")
    examples, words = dict.fromkeys(task.splits, 0), Counter[str]()
    read_of: dict[str, int] = Counter()
    places = [RAW] if task.texts == RAW else [RAW, task.texts]
    names = [f"{place}/{{split}}.{side}" for place in places for side in task.sides]
    names += [f"{RAW}/{{split}}.id"] * task.names
    with contextlib.ExitStack() as stack:
        removed = report.Removed(stack.enter_context(_open(folder / REMOVED)))
        files = {
            split: [stack.enter_context(_open(folder / name.format(split=split))) for name in names]
            for split in task.splits
        }
        convert = partial(_converted, task, corpus.parse)
        how = (workers, f"{task.units} read", corpus.total)
        for read_here, of_split, problems in map_groups(convert, corpus.items, *how):
            read_of.update(read_here)
            for split, name, problem in problems:
                if task.complete and split != "train":
                    raise ConfigurationError(
                        f"{name} of {split}: {problem}: such {task.units} are filtered out of the "
                        "training set only, because scores need the whole set: shorten or remove it"
                    )
                removed.add(split, name, problem)
            if task.valid_every:
                before = examples["train"] + examples["valid"]
                of_split = _held_out(of_split, task.valid_every, before)
            for split, rows in of_split.items():
                examples[split] += len(rows)
                columns = list(zip(*rows))
                for file, column in zip(files[split], columns):
                    file.write("\n".join(column) + "\n")
                for side, column in zip(task.sides, columns[2 * len(places) - 2 :]):
                    spaces = "\n".join(column).count(" ")
                    words[f"{split}.{side}"] += spaces + len(column) - column.count("")
    for split, count in examples.items():
        if not count:
            raise ConfigurationError(_nothing(task, split, read_of, removed))
    parts = {"read": read_of["train"], "examples": examples, "words": words}
    return {**parts, "removed": removed.reasons}


def _nothing(task: Task, split: str, read_of: dict[str, int], removed: report.Removed) -> str:
    """What to say of a split without examples."""
    if split == "valid" and task.valid_every:
        return (
            f"--valid-every {task.valid_every} leaves valid empty, as there are only "
            f"{counted(read_of['train'], task.units)}: give a smaller number, or --valid"
        )
    if split not in removed.first:
        return f"{split} is empty, which fairseq cannot read: give text" + (
            ", or no test set" if split == "test" else ""
        )
    of_split = removed.of_split[split]
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in of_split.items())
    advice = task.advice(read_of[split], of_split)
    return (
        f"no {task.units[:-1]} of {split} can be used: {reasons}; the first is "
        f"{removed.first[split]}" + (f". {advice}" if advice else "")
    )


def _converted(
    task: Task, parse: Parse, items: Sequence[Any]
) -> tuple[dict[str, int], dict[str, list[tuple[str, ...]]], list[tuple[str, str, str]]]:
    """How many examples of each split there are; by split the columns of those that can be used;
    split, name and problem of the others.
    """
    read, rows, problems = Counter[str](), defaultdict[str, list[tuple[str, ...]]](list), []
    for item in items:
        split, name, source, target, problem = parsed(parse, item)
        columns: tuple[str, ...] = ()
        if not problem:
            example = Example(split, name, normalise(source), normalise(target))
            problem, columns = task.convert(example)
        read[split] += 1
        if problem:
            problems.append((split, report.printable(name), problem))
        else:
            named = (report.printable(name),) if task.names else ()
            rows[split].append((*columns, *named))
    return read, rows, problems


def _held_out(rows: dict[str, list[Any]], every: int, before: int) -> dict[str, list[Any]]:
    """The rows with every n-th of train in valid; there were so many of both before."""
    numbered = list(enumerate(rows.pop("train", ()), before + 1))
    train = [row for number, row in numbered if number % every]
    return {"train": train, "valid": [row for n, row in numbered if n % every == 0], **rows}


def _subwords(folder: Path, task: Task, like: Path | None, results: dict[str, Any]) -> Any:
    """Learn the subword model, or copy that of another folder."""
    kind = KINDS[str(task.subword)]
    path = folder / kind.file_name
    if like is not None:
        copy(like / kind.file_name, path)
    else:
        step("learn subwords")
        samples = task.samples(folder)
        results["learnt_on_one_line_of"] = step_of_lines(samples)
        kind.learn(samples, path, task.settings["vocab_size"], task.symbols)
    model = kind(path)
    results["subwords"] = f"{len(model):,} {model.contents}"
    return model


def _dictionaries(
    folder: Path,
    task: Task,
    like: Path | None,
    encoders: dict[str, Encoder],
    encoded: dict[tuple[str, str], Any],
) -> dict[str, Any]:
    """Write the dictionary of each side: that of another folder, or of what train has."""
    from fairseq.data import Dictionary

    names = {side: task.files("", side)[1] for side in task.sides}
    if like is None:
        symbols = [encoder.numbers.symbols for encoder in encoders.values()]
        found = task.dictionaries(symbols, [encoded["train", side].counts for side in task.sides])
    else:
        found = [Dictionary.load(str(like / name)) for name in names.values()]
    for name, dictionary in zip(names.values(), found):
        (folder / name).parent.mkdir(exist_ok=True)
        dictionary.save(str(folder / name))
    return dict(zip(names, found))


def check_counts(
    option: str, units: str, found: dict[str, int], expected: dict[str, int] | None
) -> None:
    """Raise a ConfigurationError unless each split has the expected number of texts, if any."""
    if expected not in (None, found):
        here, there = (
            " / ".join(f"{(counts or {}).get(split, 0):,}" for split in SPLITS)
            for counts in (found, expected)
        )
        raise ConfigurationError(
            f"{here} {units} came out instead of {there} (train / valid / test): this is not the "
            f"original corpus. To use it, pass {option} any; results are then not comparable with "
            "published ones"
        )


def parse_counts(option: str, value: str) -> dict[str, int] | None:
    """The numbers of texts of each split that an option expects, such as 160239,7283,6750.

    Returns:
        None for `any`.

    Raises:
        ConfigurationError: the value is neither three numbers nor `any`.
    """
    if value == "any":
        return None
    if not re.fullmatch("[0-9]+,[0-9]+,[0-9]+", value):
        raise ConfigurationError(f"{option} '{value}': give three numbers TRAIN,VALID,TEST, or any")
    return dict(zip(SPLITS, map(int, value.split(","))))


def link_first_shard(folder: Path) -> None:
    """Let the first shard have all files of the folder, because fairseq reads them there."""
    names = [path.name for path in folder.iterdir() if not path.name.isdigit()]
    for name in {*names, RECORD} - {WORK, LOCK}:
        (folder / "0" / name).symlink_to(Path("..", name))


@dataclass
class Shards(Workers):
    """The options of commands that prepare texts with two sides."""

    shards: int = option(
        1, "divide the training set into N shards, so that a training holds only one in memory and "
        "calls it an epoch", least=1, most=1000,
    )  # fmt: skip

    @property
    def sharding(self) -> dict[str, int]:
        """The settings of a preparation from these options."""
        return {"shards": self.shards} if self.shards > 1 else {}


def step(name: str) -> None:
    """Print what the preparation does next."""
    print(f"{name} ...", file=sys.stderr, flush=True)


def _open(path: Path) -> IO[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return open(path, "w", encoding="utf-8", newline="\n")
