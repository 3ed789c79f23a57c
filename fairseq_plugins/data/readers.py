"""Reads documents and their summaries from all input formats, and writes them as text.

Documents that cannot be used are skipped; the file `LEFT_OUT` names them and says why.
"""

import contextlib
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from fairseq_plugins.data.pretraining import Pretraining
from fairseq_plugins.data.stories import parse_story, read_story_files
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import (
    LONGEST_LINE,
    columns_written,
    count_lines,
    digest,
    open_to_read,
    raw_lines,
    read_input_pairs,
    written_whole,
)
from fairseq_plugins.preparation.steps import Preparation
from fairseq_plugins.text.processing import normalise
from fairseq_plugins.text.sentences import (
    BOUNDARY,
    is_blank,
    join_sentences,
    separate_sentences,
)
from fairseq_plugins.workers import map_lines

SPLITS = ("train", "valid", "test")
RAW = "text/raw"
LEFT_OUT = "left_out.txt"
NAMES_SHOWN = 10
LONGEST_PROBLEM = 300  # characters
TOO_LONG = f"a line of more than {LONGEST_LINE:,} bytes"


class Unusable(ValueError):
    """A document cannot be used; the message says why, first the reason that others share."""


class Item(NamedTuple):
    """A document as read: `content` is a story or a JSON line in bytes, or a pair of lines.

    None means that the content is too long.
    """

    split: str
    name: str
    content: Any


class Document(NamedTuple):
    """A document and its summary, each as one line, or the problem with the document."""

    split: str
    name: str
    source: str
    target: str
    problem: str = ""


def usable(read: Callable[[Any], Document], item: Any) -> Document:
    """`read(item)`, or the document with the problem for which `read` raised `Unusable`."""
    try:
        return read(item)
    except Unusable as problem:
        return Document(item.split, item.name, "", "", str(problem))


def text_of(content: bytes | None) -> str:
    """UTF-8 text, without a byte-order mark.

    Raises:
        Unusable: it is None, which stands for a line that is too long, or not UTF-8.
    """
    if content is None:
        raise Unusable(TOO_LONG)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unusable(f"byte {error.start} is not UTF-8") from None


def check_encodes(text: str) -> None:
    """Raise `Unusable` for text of JSON that UTF-8 cannot have."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Unusable("not UTF-8: half of a surrogate pair") from None


def read_story(item: Item) -> Document:
    """Convert a `.story` file to a document."""
    story = parse_story(item.name, item.content)
    source, target = " ".join(story.article), _summary(story.highlights)
    return Document(item.split, item.name, source, target, story.problem)


def _summary(sentences: Iterable[str]) -> str:
    """Sentences of ordinary text, in which the boundary token's characters are no boundary."""
    return join_sentences(sentence.replace(BOUNDARY, "< q >") for sentence in sentences)


class JsonReader:
    """Converts a line of JSON to a document.

    A field is a string or a list of sentences; `<S>` and `</S>` around sentences are removed. In a
    summary that is a string, newlines and `<q>` separate sentences.
    """

    def __init__(self, fields: Sequence[str]):
        self.fields = tuple(fields)

    def __call__(self, item: Item) -> Document:
        source, target = self.sentences(item.content)
        return _document(item, " ".join(source), target)

    def sentences(self, line: bytes | None) -> list[list[str]]:
        """The sentences of each field.

        Raises:
            Unusable: the line has not these fields, as texts.
        """
        text = text_of(line)
        try:
            entry = json.loads(text)
        except RecursionError:
            raise Unusable("no JSON: brackets are nested too deeply") from None
        except ValueError as error:
            raise Unusable(f"no JSON: {error}") from None
        if not isinstance(entry, dict):
            raise Unusable("no JSON object")
        for field in self.fields:
            if field not in entry:
                names = ", ".join(sorted(entry))
                raise Unusable(f"no field '{field}': choose two with --fields: {names}")
        return [self._sentences_of(entry[field]) for field in self.fields]

    @staticmethod
    def _sentences_of(value: Any) -> list[str]:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise Unusable("a field is neither text nor a list of texts")
        check_encodes("".join(texts))
        if isinstance(value, str):
            return texts
        return [text.replace("<S>", " ").replace("</S>", " ") for text in texts]


def read_pair(item: Item) -> Document:
    """Convert a line of `.source` and one of `.target` to a document."""
    source, target = item.content
    if source is None or target is None:
        raise Unusable(TOO_LONG)
    return _document(item, source, [target])


class DocumentReader:
    """Converts a line of text, or of JSON with `field`, to a document with an extracted summary."""

    def __init__(self, pretraining: Pretraining, field: str | None = None):
        self.pretraining = pretraining
        self.json = None if field is None else JsonReader([field])

    def __call__(self, item: Item) -> Document:
        if self.json is None:
            text = item.content[0]
        else:
            text = " ".join(*self.json.sentences(item.content))
        if text is None:
            raise Unusable(TOO_LONG)
        source, target = self.pretraining.pair(text)
        if not target:
            raise Unusable("too few sentences" if text.strip() else "empty")
        return Document(item.split, item.name, source, _summary(target))


def _document(item: Item, source: str, target: Sequence[str]) -> Document:
    source = " ".join(source.split())
    sentences = [s for text in target for s in separate_sentences(text)]
    if not source or not sentences:
        raise Unusable("no summary" if source else "no document" if sentences else "empty")
    return Document(item.split, item.name, source, join_sentences(sentences))


def splits_of_stories(ids: dict[str, list[str]]) -> dict[str, str]:
    """Invert the ids of each split to the split of each id.

    Raises:
        ConfigurationError: a story is named twice.
    """
    wanted: dict[str, str] = {}
    for split, names in ids.items():
        for name in names:
            if name in wanted:
                raise ConfigurationError(
                    f"story {name} is named twice, in {wanted[name]} and in {split}: name each "
                    "story once"
                )
            wanted[name] = split
    return wanted


def story_items(archives: Sequence[Path], wanted: dict[str, str]) -> Iterator[Item]:
    """The stories of archives that are in `wanted`; removes each from `wanted` when found."""
    for name, content in read_story_files(archives):
        split_of_story = wanted.pop(name, None)
        if split_of_story is not None:
            yield Item(split_of_story, name, content)


def line_items(split: str, path: Path) -> Iterator[Item]:
    """The non-empty lines of a file."""
    with open_to_read(path) as file:
        for number, line in enumerate(raw_lines(file, str(path)), 1):
            if line is None or line.strip():
                yield Item(split, f"{path.name}:{number}", line)


def pair_items(split: str, prefix: Path, target: str = "target") -> Iterator[Item]:
    """The pairs of lines of `PREFIX.source` and `PREFIX.target`; `target` is the second ending."""
    for number, pair in enumerate(read_input_pairs(*_sides(prefix, target)), 1):
        yield Item(split, f"{prefix.name}:{number}", pair)


def find_files(inputs: dict[str, Path], target: str = "target") -> dict[str, list[str]]:
    """The checksums of the input files of each split.

    Args:
        inputs: for each split a file of JSON lines, or the prefix of two files.
        target: the ending of the second file; "source" if documents have no summaries.

    Raises:
        ConfigurationError: a file is missing, or only some splits are JSON lines.
    """
    json_lines = [path.is_file() for path in inputs.values()]
    if any(json_lines) != all(json_lines):
        one, other = (list(inputs.values())[json_lines.index(kind)] for kind in (True, False))
        raise ConfigurationError(
            f"{one} is a file, so JSON lines, but {other} is not, so a prefix: give either files, "
            "or prefixes, for all splits"
        )
    found = {}
    for split, path in inputs.items():
        files = [path] if all(json_lines) else sorted(set(_sides(path, target)))
        for file in files:
            if not file.is_file():
                names = " and ".join(name.name for name in files)
                raise ConfigurationError(
                    f"{file} does not exist: --{split} {path} is not a file, so it stands for "
                    f"{names}"
                )
        found[split] = [digest(file) for file in files]
    return found


def read_files(
    preparation: Preparation,
    inputs: dict[str, Path],
    workers: int,
    pretraining: Pretraining | None = None,
) -> dict[str, Any]:
    """Convert the input files to text; returns the result of `write_documents`.

    Args:
        preparation: with the setting `fields`, those of document and summary in JSON lines.
        inputs: for each split a file of JSON lines, or the prefix of two files.
        workers: number of processes.
        pretraining: extracts summaries from documents without summaries; else None.

    Raises:
        ConfigurationError: a file cannot be read, or a split has no usable document.
    """
    if next(iter(inputs.values())).is_file():
        fields = preparation.settings["fields"]
        reader: Any = JsonReader(fields)
        if pretraining is not None:
            reader = DocumentReader(pretraining, fields[0])
        items = [line_items(*each) for each in inputs.items()]
        total = sum(map(count_lines, inputs.values()))
    else:
        reader, target = read_pair, "target"
        if pretraining is not None:
            reader, target = DocumentReader(pretraining), "source"
        items = [pair_items(*each, target) for each in inputs.items()]
        total = sum(count_lines(_sides(path)[0]) for path in inputs.values())
    every = itertools.chain.from_iterable(items)
    return write_documents(preparation, every, reader, workers, list(inputs), total)


def _sides(prefix: Path, target: str = "target") -> list[Path]:
    return [Path(f"{prefix}.{side}") for side in ("source", target)]


class LeftOut:
    """What cannot be used: written to a file, counted by its reason, and the first ones kept.

    Attributes:
        reasons: how many have each reason, which is the part of a problem before its colon.
        named: the first ones, as lines to show.
        first: the first one of each split.
    """

    def __init__(self, file: IO[str]):
        self.file = file
        self.named: list[str] = []
        self.first: dict[str, str] = {}
        self.reasons: dict[str, int] = Counter()

    def add(self, split: str, name: str, problem: str) -> None:
        """Leave out the text of this name; the problem may quote it."""
        problem = _printable(" ".join(problem.split())[:LONGEST_PROBLEM])
        reason = problem.partition(":")[0]
        self.reasons["not UTF-8" if reason.endswith("is not UTF-8") else reason] += 1
        self.file.write(f"{split}\t{name}\t{problem}\n")
        line = f"{split}  {name}  {problem}"
        self.first.setdefault(split, line)
        if len(self.named) < NAMES_SHOWN:
            self.named.append(line)

    def tell(self, path: Path) -> None:
        """Print how many were left out, and the first ones; `path` has all."""
        count = sum(self.reasons.values())
        if count:
            told = [f"{count:,} documents cannot be used:", *(f"  {line}" for line in self.named)]
            told += [f"  ... all are in {path}"] if count > len(self.named) else []
            print("\n".join(told), file=sys.stderr)


def write_documents(
    preparation: Preparation,
    items: Iterable[Any],
    read: Any,
    workers: int,
    splits: Sequence[str],
    total: int | None = None,
) -> dict[str, Any]:
    """Write `RAW` and `LEFT_OUT`, with few documents in memory at a time.

    How many documents were skipped, and the first ones, are printed to stderr.

    Args:
        preparation: the folder.
        items: documents as read.
        read: converts an item to a Document, or raises `Unusable`.
        workers: number of processes.
        splits: the splits; none may be empty.
        total: the number of items, if known, for the progress bar.

    Returns:
        `documents`: the number in each split; `left_out`: the number for each reason; `named`: the
            first documents that were skipped.

    Raises:
        ConfigurationError: a split has no document.
    """
    counts = dict.fromkeys(splits, 0)
    folder = preparation.folder
    with contextlib.ExitStack() as stack:
        write = {}
        for split in splits:
            paths = [folder / RAW / f"{split}.{kind}" for kind in ("source", "target", "id")]
            write[split] = stack.enter_context(columns_written(paths))
        left_out = LeftOut(stack.enter_context(written_whole(folder / LEFT_OUT)))
        documents = map_lines(partial(usable, read), items, workers, "documents read", total)
        for document in documents:
            name = _printable(document.name)
            problem = document.problem
            if not problem and (is_blank(document.source) or is_blank(document.target)):
                problem = "no visible text"
            if problem:
                left_out.add(document.split, name, problem)
                continue
            counts[document.split] += 1
            sides = normalise(document.source), normalise(document.target)
            write[document.split]([*sides, name])
    for split, count in counts.items():
        if not count:
            named = left_out.first.get(split)
            raise ConfigurationError(
                f"no document of {split} can be used: "
                + (f"{named}; all are in {folder / LEFT_OUT}" if named else "there is no text")
            )
    left_out.tell(folder / LEFT_OUT)
    return {"documents": counts, "left_out": left_out.reasons, "named": left_out.named}


def _printable(text: str) -> str:
    """The text with escapes for bytes that are not UTF-8, such as in file names."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


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
