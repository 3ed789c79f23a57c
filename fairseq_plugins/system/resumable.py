"""Pass lines through a model in groups, and write a file that a stopped run can continue.

    with resumable(path, {"--beam": 5}, size=2000) as output:
        write_groups(load, lines, output, processes=2)

`load()` returns a function from a `Group` to a `Result`. Until all is written, the file is named
PATH.part, and PATH.part.jsonl beside it is its journal: the options of the run, and for each group
that is written the bytes of PATH.part and a digest of the input so far. A rerun checks both and
continues after the last of these groups. What it writes equals an unbroken run byte for byte,
because groups depend on nothing but the input and `size`: a batch never crosses their bounds.
"""

import collections
import contextlib
import functools
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from fairseq_plugins.errors import ConfigurationError, counted
from fairseq_plugins.files import FULL, PART, alone_in, in_groups, open_to_append

MOST_CHARACTERS = 1 << 22  # of lines at a time; their subwords take 20 times as much memory
JOURNAL = PART + ".jsonl"
T = TypeVar("T")


class Group(NamedTuple):
    """Lines, or other JSON values that stand for one line of output each."""

    first: int  # the number of the first line in the whole input, from 0
    lines: list[Any]


class Result(NamedTuple):
    """What is written for a group, and what the user is told of it at the end."""

    lines: list[str]
    notes: dict[str, list[int]] = {}  # from a message to the numbers of its lines, from 1
    sections: list[str] = []  # of a page about the lines


class Output:
    """A stream for results.

    Attributes:
        size: the most lines of a group.
        lines: how many lines are written, also by earlier runs.
        notes: those of all results, also of earlier runs.
    """

    def __init__(self, file: IO[str], size: int, page: IO[str] | None = None) -> None:
        self.file, self.size, self.lines, self._page = file, size, 0, page
        self.notes = collections.defaultdict[str, list[int]](list)

    def add(self, result: Result, digest: str) -> None:
        """Write a result; `digest` is of the input up to its end."""
        self.file.writelines(line + "\n" for line in result.lines)
        self.file.flush()
        if self._page is not None:
            self._page.writelines(result.sections)
        self._count(len(result.lines), result.notes)

    def check(self, end: int, digest: str) -> None:
        """Raise an error unless an earlier run had the same input up to line `end`."""

    def _count(self, lines: int, notes: dict[str, list[int]]) -> None:
        self.lines += lines
        for message, numbers in notes.items():
            self.notes[message] += numbers


class _Unfinished(Output):
    """PATH.part and its journal; see `resumable`."""

    def __init__(self, part: Path, journal: IO[str], run: dict[str, Any], size: int) -> None:
        self._part, self._journal, self._digest = part, journal, ""
        records, kept = _read_journal(Path(journal.name), part)
        if not records and part.exists():
            os.unlink(journal.name)
            raise ConfigurationError(
                f"{part} exists, but no journal of it: rename it, or remove it to start anew"
            )
        _check_same(part, records[0]["run"] if records else run, run)
        journal.truncate(kept)
        super().__init__(open_to_append(part), records[0]["size"] if records else size)
        self.file.truncate(records[-1].get("bytes", 0) if records else 0)
        if not records:
            self._record({"run": run, "size": size})
        for record in records[1:]:
            self._count(record["lines"], record["notes"])
            self._digest = record["digest"]

    def add(self, result: Result, digest: str) -> None:
        super().add(result, digest)
        os.fsync(self.file.fileno())  # never is a group in the journal only
        size = os.fstat(self.file.fileno()).st_size
        more = {"lines": len(result.lines), "notes": result.notes}
        self._record({"bytes": size, "digest": digest, **more})

    def check(self, end: int, digest: str) -> None:
        if digest != self._digest:
            raise ConfigurationError(
                f"{self._part} is unfinished, and its {counted(self.lines, 'lines')} came of "
                f"another input: give the same, or remove {self._part} to start anew"
            )

    def _record(self, record: dict[str, Any]) -> None:
        self._journal.write(json.dumps(record) + "\n")
        self._journal.flush()


def _check_same(part: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise a ConfigurationError if options differ from those of the run that began a file."""
    changed = sorted(n for n in {*before, *now} if before.get(n) != now.get(n))
    if changed:
        was, has = (" ".join(f"{n} {run.get(n)}" for n in changed) for run in (before, now))
        raise ConfigurationError(
            f"{part} is unfinished, from a run with {was}, but now {has}: give the same to resume, "
            f"or remove {part} to start anew"
        )


def _read_journal(path: Path, part: Path) -> tuple[list[Any], int]:
    """The records of which `part` has everything, and their bytes."""
    size = part.stat().st_size if part.exists() else -1
    records: list[Any] = []
    kept = 0
    for line in path.read_bytes().splitlines(keepends=True) if size >= 0 else ():
        try:
            record = json.loads(line)
        except ValueError:
            break
        if not line.endswith(b"\n") or record.get("bytes", 0) > size:  # torn, or lost in a crash
            break
        records.append(record)
        kept += len(line)
    return records, kept


@contextlib.contextmanager
def resumable(path: Path, run: dict[str, Any], size: int) -> Iterator[Output]:
    """A file that has its name when the block ends; after an error or a kill, PATH.part stays.

    Args:
        path: the file; its folder is created.
        run: whatever decides the output beside the input: names, as the user knows them, and JSON
            values.
        size: the most lines of a group; what an earlier run had is kept.

    Raises:
        ConfigurationError: another run writes the file, or PATH.part is of another run.
    """
    part, journal = path.with_name(path.name + PART), path.with_name(path.name + JOURNAL)
    with alone_in(path.parent, f"run that writes {path.name}", name=journal.name) as log:
        output = _Unfinished(part, log, json.loads(json.dumps(run, default=str)), size)
        try:
            with output.file:
                yield output
        except BaseException as error:
            if isinstance(error, OSError) and error.errno in FULL:
                error.filename = str(path)
            if output.lines:
                print(f"the unfinished output is in {part}: rerun to resume", file=sys.stderr)
            else:
                part.unlink()
                journal.unlink()
            raise
        os.replace(part, path)
        journal.unlink()


def write_groups(
    begin: Callable[[], Callable[[Group], Result]],
    lines: Iterable[Any],
    output: Output,
    first: int = 0,
    processes: int = 1,
    cpu: bool | None = None,
    update: Callable[[int], Any] = bool,
) -> None:
    """Write the results of lines, without those that an earlier run wrote.

    Args:
        begin: makes the function, once in each process, before a line is read.
        lines: text or other JSON values, from the beginning, read on demand.
        output: where to write.
        first: the number of the first line, in a share of a larger input.
        processes: their number.
        cpu: for torch, whose processes start anew: whether they use no GPU; None without torch.
        update: called with each number of lines that are done; `output.lines` were done before.

    Raises:
        ConfigurationError: an earlier run had other lines, or a process was killed.
    """
    digests = collections.deque[str]()

    def rest() -> Iterator[Group]:
        done, digest, end = output.lines, hashlib.sha256(), 0
        for group in _groups(lines, output.size):
            digest.update(json.dumps(group).encode())
            start, end = end, end + len(group)
            if end >= done > start:
                output.check(end, digest.hexdigest())
            if end > done:
                digests.append(digest.hexdigest())
                yield Group(first + start, group)
        if end < done:
            output.check(end, digest.hexdigest())

    with contextlib.ExitStack() as stack:
        if processes == 1:
            results: Iterator[Result] = map(begin(), rest())
        else:
            from fairseq_plugins.system import workers  # a slow import

            if cpu is not None:
                begin = functools.partial(workers.on_share, begin, processes, cpu)
            results = workers.map_batches(begin, rest(), processes, cpu is not None)
        # a generator with processes stops them, also while an error keeps its frame
        stack.callback(getattr(results, "close", bool))
        for result in results:
            output.add(result, digests.popleft())
            update(len(result.lines))


def _groups(lines: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lines in groups that end at each multiple of `size`, and within these at `MOST_CHARACTERS`.

    So a share that begins at a multiple of `size` has the groups of the whole.
    """
    lines = iter(lines)
    while True:
        groups = in_groups(itertools.islice(lines, size), size, MOST_CHARACTERS)
        group = next(groups, None)
        if group is None:
            return
        yield group
        yield from groups
