"""Readers of all input formats. They yield examples: a split, a name, a source and a target.

Reading has two halves: the files are read in order, as items, and processes parse the items. A
problem with one item leaves out this item alone.
"""

import csv
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.data.archives import decompressed
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import LONGEST_LINE, count_lines, decode, digest, raw_lines, read_pairs
from fairseq_plugins.system.progress import progress_bar

SPLITS = ("train", "valid", "test")
RAW = "text/raw"  # the subfolder of a prepared folder for the texts of examples
TOO_LONG = f"a line of more than {LONGEST_LINE:,} bytes"
LONGEST_SHOWN = 100  # characters of a line in a message
COMPRESSED = (".gz", ".bz2", ".xz")
FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "tsv"}  # by suffix


class Unusable(ValueError):
    """An item cannot be used; the message says why, first the reason that others share."""


class Item(NamedTuple):
    """What was read: a line of JSON in bytes, a tuple of texts, or a story in bytes.

    A content of None was too long; one that is `Unusable` has a problem.
    """

    split: str
    name: str
    content: Any


class Example(NamedTuple):
    """A source and a target (a label for classification), each as one line, or the problem."""

    split: str
    name: str
    source: str
    target: str
    problem: str = ""


Parse = Callable[[Any], Example]


class Corpus(NamedTuple):
    """Items in order, the function that makes an example of one, and how many there are."""

    items: Iterable[Any]
    parse: Parse
    total: int | None = None


def parsed(parse: Parse, item: Any) -> Example:
    """`parse(item)`, or the example with the problem for which `parse` raised `Unusable`."""
    try:
        return parse(item)
    except Unusable as problem:
        return Example(item.split, item.name, "", "", str(problem))


def text_of(content: Any) -> str:
    """UTF-8 text, without a byte-order mark.

    Raises:
        Unusable: it is too long, or not UTF-8.
    """
    if isinstance(content, Unusable):
        raise content
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


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """The lines of a file, which may be compressed with gzip, bzip2 or xz; None if too long.

    Raises:
        ConfigurationError: the file cannot be read, or is damaged; the message names the line.
    """
    number = 0
    with decompressed(path, lambda: f"{path}, line {number + 1}: damaged") as file:
        for number, line in enumerate(raw_lines(file, str(path)), 1):
            yield number, line


class Input(NamedTuple):
    """The input of a split: a table or JSON lines, or files with one text a line, side by side.

    Attributes:
        name: of the input, in the names of its examples.
        paths: its files: one, or one for each side.
        kind: "json", "csv", "tsv" or "lines".
    """

    name: str
    paths: list[Path]
    kind: str

    @property
    def digests(self) -> list[str]:
        """The checksums of its files."""
        return [digest(path) for path in self.paths]

    @property
    def total(self) -> int | None:
        """The number of its lines; None if a file is compressed."""
        path = self.paths[0]
        return None if path.suffix in COMPRESSED else count_lines(path)

    def items(self, split: str, fields: Sequence[str], header: bool) -> Iterator[Item]:
        """Read it.

        Args:
            split: the split of its examples.
            fields: the names of the columns to read; the last line of a table's head has them.
            header: whether a table of tabs must have a head. If not, and its first line has not
                these names, it has as many columns, in this order.

        Raises:
            ConfigurationError: a file cannot be read, a text of one line each is not UTF-8, sides
                differ in their number of lines, or a table lacks a field.
        """
        read = {"lines": _side_by_side, "json": _json, "csv": _csv, "tsv": _tsv}[self.kind]
        for number, content in read(self.paths, fields, header):
            yield Item(split, f"{self.name}:{number}", content)


def find_input(
    option: str, name: str | Path, sides: Sequence[str], otherwise: str | None = None
) -> Input:
    """The input that an option names: an existing file, or a prefix of files for `sides`.

    Args:
        option: such as --train.
        name: the file, whose suffix says its format, or the prefix.
        sides: the endings of files with this prefix; none if it must be a file.
        otherwise: the format of a file with another suffix; None if there is none.

    Raises:
        ConfigurationError: there is no such file, or its suffix is unknown.
    """
    path = Path(name)
    if path.is_file() or not sides:
        suffixes = [suffix for suffix in path.suffixes if suffix not in COMPRESSED]
        kind = FORMATS.get(suffixes[-1] if suffixes else "", otherwise)
        if kind is None:
            raise ConfigurationError(
                f"{option} {path} is a file of unknown format: give .tsv, .csv or .jsonl, or the "
                "common prefix of two files, PREFIX.{} and PREFIX.{}".format(*sides)
            )
        return Input(path.name, [path], kind)
    paths = []
    for side in dict.fromkeys(sides):
        there = [Path(f"{path}.{side}{end}") for end in ("", *COMPRESSED)]
        paths.append(next((each for each in there if each.is_file()), there[0]))
        if not paths[-1].is_file():
            raise ConfigurationError(
                f"{paths[-1]} does not exist: {option} {path} is not a file, so it stands for "
                + " and ".join(f"PREFIX.{side}" for side in dict.fromkeys(sides))
            )
    return Input(path.name, paths, "lines")


class Inputs(NamedTuple):
    """The inputs of each split, the columns or fields to read, and whether tables need a head."""

    of_split: Mapping[str, Sequence[Input]]
    fields: Sequence[str]
    header: bool = False

    @classmethod
    def of(
        cls,
        args: Any,
        sides: Sequence[str],
        fields: Sequence[str],
        otherwise: str | None = None,
    ) -> "Inputs":
        """What the options --train, --valid, --test and --fields name.

        Args:
            args: the options; a split has one name, several or None.
            sides, otherwise: see `find_input`.
            fields: the default of --fields.

        Raises:
            ConfigurationError: as `find_input`, or --fields has no effect.
        """
        found = {}
        for split in SPLITS:
            names = getattr(args, split)
            if names is not None:
                names = names if isinstance(names, list) else [names]
                found[split] = [find_input(f"--{split}", name, sides, otherwise) for name in names]
        if args.fields and {each.kind for of in found.values() for each in of} == {"lines"}:
            raise ConfigurationError(
                f"--fields {' '.join(args.fields)} is for tables and JSON, but all inputs are text "
                "files: remove it"
            )
        return cls(found, args.fields or fields, args.fields is not None)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a preparation that reads them."""
        splits = progress_bar(self.of_split.items(), description="inputs checked")
        digests = {split: [each.digests for each in of] for split, of in splits}
        return {"inputs": digests, "fields": list(self.fields)}

    def corpus(self, parse: Callable[[Sequence[str], Any], Example]) -> Corpus:
        """Their examples; `parse` takes the fields and an item."""
        every = [(split, each) for split, of in self.of_split.items() for each in of]
        totals = [each.total for _, each in every]
        items = (each.items(split, self.fields, self.header) for split, each in every)
        total = None if None in totals else sum(filter(None, totals))
        return Corpus(itertools.chain.from_iterable(items), partial(parse, self.fields), total)


def values(content: Any, fields: Sequence[str]) -> list[Any]:
    """The fields of an item: texts, or lists of texts in JSON.

    Raises:
        Unusable: it has not these fields, as texts.
    """
    if isinstance(content, tuple):
        if None in content:
            raise Unusable(TOO_LONG)
        return list(content)
    text = text_of(content)
    try:
        entry = json.loads(text)
    except RecursionError:
        raise Unusable("no JSON: brackets are nested too deeply") from None
    except ValueError as error:
        raise Unusable(f"no JSON: {error}") from None
    if not isinstance(entry, dict):
        raise Unusable("no JSON object")
    for field in fields:
        if field not in entry:
            names = ", ".join(sorted(entry))
            raise Unusable(f"no field '{field}': choose two with --fields: {names}")
        texts = entry[field] if isinstance(entry[field], list) else [entry[field]]
        if not all(isinstance(text, str) for text in texts):
            raise Unusable("a field is neither text nor a list of texts")
        check_encodes("".join(texts))
    return [entry[field] for field in fields]


def parse_texts(fields: Sequence[str], item: Item) -> Example:
    """The example of an item with a source and a target, each in one line."""
    found = values(item.content, fields)
    source, target = (" ".join(v) if isinstance(v, list) else v for v in found)
    return Example(item.split, item.name, source.replace("\n", " "), target.replace("\n", " "))


def _side_by_side(
    paths: Sequence[Path], fields: Sequence[str], header: bool
) -> Iterator[tuple[int, Any]]:
    """The lines of the files side by side, None for one that is too long."""
    return enumerate(read_pairs(*paths, read=_texts), 1)


def _texts(path: Path) -> Iterator[str | None]:
    name = str(path)
    for number, line in numbered_lines(path):
        yield None if line is None else decode(line, name, number)


def _json(
    paths: Sequence[Path], fields: Sequence[str], header: bool
) -> Iterator[tuple[int, bytes | None]]:
    for number, line in numbered_lines(paths[0]):
        if line is None or line.strip():
            yield number, line


def _tsv(paths: Sequence[Path], fields: Sequence[str], header: bool) -> Iterator[tuple[int, Any]]:
    """The wanted columns of a table with tabs."""
    columns: list[int] | None = None
    for number, line in _json(paths, fields, header):
        try:
            text = text_of(line).rstrip("\r")
        except Unusable as problem:
            yield number, problem
            continue
        row = text.split("\t")
        if number == 1 and (header or len(row) != len(fields) or set(fields) <= set(row)):
            if len(row) > 1 or header:
                columns = _columns(paths[0], row, fields, "\t")
                continue
        if columns is None:  # the last of them may have tabs
            row = text.split("\t", len(fields) - 1)
        needed = len(fields) if columns is None else 1 + max(columns)
        if len(row) < needed:
            yield number, Unusable("no tab between " + " and ".join(fields))
        else:
            yield number, tuple(row if columns is None else (row[column] for column in columns))


def _csv(paths: Sequence[Path], fields: Sequence[str], header: bool) -> Iterator[tuple[int, Any]]:
    """The wanted columns of a table with commas and a head."""
    path = paths[0]
    texts = (decode(line or b"", str(path), number) + "\n" for number, line in numbered_lines(path))
    csv.field_size_limit(LONGEST_LINE)
    reader = csv.reader(texts)
    try:
        columns = _columns(path, next(reader, fields), fields, ",")  # `fields` of an empty file
        for row in reader:
            if len(row) > max(columns):
                yield reader.line_num, tuple(row[column] for column in columns)
            elif row:
                yield reader.line_num, Unusable(f"too few columns: {len(row)}")
    except csv.Error as error:
        raise ConfigurationError(f"{path}, line {reader.line_num}: {error}") from None


def _columns(path: Path, head: Sequence[str], fields: Sequence[str], separator: str) -> list[int]:
    """The numbers of the columns with these names."""
    if not set(fields) <= set(head):
        between = {",": "commas", "\t": "tabs"}[separator]
        raise ConfigurationError(
            f"{path}: line 1 is '{separator.join(head)[:LONGEST_SHOWN]}', but must have the column "
            f"names {' and '.join(fields)}, with {between} between them: add such a line, or give "
            "the names of two columns to --fields"
        )
    return [head.index(field) for field in fields]
