"""What translate, summarize and classify share: a model, lines in, lines out, and progress."""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from fairseq_plugins import pretrained
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import (
    LONGEST_LINE,
    count_lines_of,
    decode,
    in_groups,
    open_to_read,
    output_file,
    raw_lines,
    written_whole,
)
from fairseq_plugins.options.arguments import Command
from fairseq_plugins.options.fields import MOST, REQUIRED, option, values_of
from fairseq_plugins.options.groups import Device, Precision
from fairseq_plugins.options.search import Options
from fairseq_plugins.system.progress import on_a_terminal, progress_bar
from fairseq_plugins.system.quiet import only_warnings_of_fairseq

MOST_CHARACTERS = 1 << 22  # of lines at a time; their subwords take 20 times as much memory


@dataclass
class Lines(Device, Command):
    """The options of a command that applies a model to lines of text."""

    input: Path | None = option(None, "the text to read (default: standard input)", metavar="FILE")
    output: Path | None = option(
        None, "the file to write, which has a temporary name until it is complete (default: "
        "standard output)", metavar="FILE",
    )  # fmt: skip
    model: Sequence[Path] = option(
        REQUIRED, "a checkpoint, a folder with checkpoint_best.pt, or an exported model",
        metavar="DIR", nargs=1,
    )  # fmt: skip
    data: Path | None = option(
        None, "the prepared folder (default: the one that the model was trained on)", metavar="DIR"
    )
    max_tokens: int = option(4000, "the number of tokens in a batch, including padding", least=1)
    buffer: int = option(
        2000, "the number of inputs that are read and sorted by length at a time; on a terminal it "
        "is 1", least=1,
    )  # fmt: skip
    threads: int = option(1, "the number of threads of an exported model", least=1, most=MOST)
    processes: int = option(
        1, "the number of processes, each with its own copy of an exported model; only for files",
        least=1, most=MOST,
    )  # fmt: skip


@dataclass
class TextOut(Precision, Options, Lines):
    """The options of a command whose model writes text."""

    model: Sequence[Path] = option(
        REQUIRED, "a checkpoint or a folder with checkpoint_best.pt (several form an ensemble), or "
        "an exported model", metavar="DIR",
    )  # fmt: skip
    json: bool = option(False, "write one JSON object for each input, as described above")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nbest > 1 and not self.json:
            raise ConfigurationError(f"--nbest {self.nbest} is for --json: add it")

    def of_model(self) -> dict[str, Any]:
        """The options of `open_engine`, and those of the search."""
        own = {"data": self.data, "threads": self.threads, "max_tokens": self.max_tokens}
        return {**own, **values_of(self, Device, Precision, Options)}


def check_files(args: Lines) -> None:
    """Raise a ConfigurationError for a file that cannot be used, before a model is loaded."""
    documents = getattr(args, "documents", [])
    if documents and args.input is not None:
        raise ConfigurationError(
            f"--documents and --input {args.input} cannot be combined: give one of them"
        )
    for path in (*documents, *filter(None, [args.input])):
        if not path.is_fifo():  # opening a pipe here would break its writer
            open_to_read(path).close()
    if args.output is not None:
        args.output = output_file("--output", args.output)
    if sys.stdin is None and not documents and args.input is None:
        raise ConfigurationError("standard input is closed: give --input, a file or a pipe")
    if args.processes > 1:
        from fairseq_plugins.search.onnx_backend.folder import is_export

        if not is_export(pretrained.find(args.model[0])):
            raise ConfigurationError("--processes is for exported models: remove it")
        if not documents and args.input is None and sys.stdin.buffer.isatty():
            raise ConfigurationError(
                f"--processes {args.processes} is for files: give --input, or remove it"
            )


def in_processes(
    args: Lines, begin: Callable[[], Callable[[Any], Any]], batches: Iterable[Any]
) -> Iterator[Any]:
    """Like `map(begin(), batches)`, in as many processes as --processes says, and in order."""
    if args.processes == 1:
        return map(begin(), batches)
    from fairseq_plugins.system.workers import map_batches  # a slow import

    return map_batches(begin, batches, args.processes)


@contextlib.contextmanager
def own_output(path: Path | None = None) -> Iterator[IO[str]]:
    """A UTF-8 file or standard output, free of what libraries print or log."""
    out = sys.stdout
    if path is None and out is None:
        raise ConfigurationError("standard output is closed: give --output, a file or a pipe")
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(encoding="utf-8")
    sys.stdout = sys.stderr
    try:
        with only_warnings_of_fairseq():
            if path is None:
                yield out
            else:
                with written_whole(path, keep=True) as file:
                    yield file
    finally:
        sys.stdout = out


def convert(
    args: Lines,
    run: Callable[[Iterator[list[str]]], Iterator[list[str]]],
    out: IO[str],
    done: str,
    unit: str,
) -> int | None:
    """Pass lines to `run` in groups, and write its results.

    A line that is not UTF-8 or longer than `LONGEST_LINE` is told and has the output of an empty
    one: the others are answered.

    Args:
        args: --input or --documents, files to read, each of the latter as one line; --buffer, the
            most lines that all --processes have at a time, 1 on a terminal; a group ends at
            `MOST_CHARACTERS`.
        run: from lists of lines to lists of the same lengths, in order.
        out: where to write.
        done: the word before the progress bar, such as "translated".
        unit: what a line is, such as "lines".

    Returns:
        The exit status: 1 if a line could not be read; None if the reader went away, such as
        `| head`.
    """
    unread: list[int] = []
    path, documents = args.input, getattr(args, "documents", [])
    buffer = -(-args.buffer // args.processes)
    with contextlib.ExitStack() as stack:
        if documents:
            texts: Iterator[Callable[[], str]] = (partial(_in_one_line, file) for file in documents)
            total: int | None = len(documents)
            typed = False
        else:
            source = sys.stdin.buffer if path is None else stack.enter_context(open_to_read(path))
            typed, total = source.isatty(), _remaining_lines(source)
            texts = _lines_of(source, "standard input" if path is None else str(path))
        shown = on_a_terminal() and not typed
        bar = stack.enter_context(
            progress_bar(description=done, total=total, unit=" " + unit, show=shown)
        )
        lines = _readable(texts, unread)
        results = run(in_groups(lines, 1 if typed else buffer, MOST_CHARACTERS))
        # a generator with processes stops them, also while an error keeps its frame
        stack.callback(getattr(results, "close", bool))
        for written in results:
            try:
                for line in written:
                    out.write(line + "\n")
                out.flush()
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
                return None
            bar.update(len(written))
    tell(unread, f"{unit} could not be read and count as empty")
    return int(bool(unread))


def _readable(texts: Iterable[Callable[[], str]], unread: list[int]) -> Iterator[str]:
    """The texts; an empty one for each that raises an error, which is told (the first ten)."""
    for number, read in enumerate(texts, 1):
        try:
            text = read()
        except ConfigurationError as error:
            unread.append(number)
            if len(unread) <= 10:
                print(f"skipped: {error}", file=sys.stderr, flush=True)
            text = ""
        yield text


def _lines_of(source: IO[bytes], name: str) -> Iterator[Callable[[], str]]:
    for number, line in enumerate(raw_lines(source, name), 1):
        yield partial(_decoded, line, name, number)


def _decoded(line: bytes | None, name: str, number: int) -> str:
    if line is None:
        raise ConfigurationError(
            f"{name}, line {number} is longer than {LONGEST_LINE:,} bytes: split it"
        )
    return decode(line, name, number)


def _in_one_line(path: Path) -> str:
    """A file as one line: line breaks become spaces."""
    with open_to_read(path) as file:
        content = file.read(LONGEST_LINE + 1)
    if len(content) > LONGEST_LINE:
        raise ConfigurationError(f"{path} is longer than {LONGEST_LINE:,} bytes: split it")
    lines = enumerate(content.split(b"\n"), 1)
    return " ".join(" ".join(decode(line, str(path), number) for number, line in lines).split())


def tell(numbers: list[int], what: str) -> None:
    """Print how many lines something happened to, and the first of them, if any."""
    if numbers:
        print(f"{len(numbers):,} {what}: number {first_ten(numbers)}", file=sys.stderr)


def first_ten(numbers: list[int]) -> str:
    """The first ten numbers, formatted for a message."""
    shown = ", ".join(map(str, numbers[:10]))
    return shown + (", ..." if len(numbers) > 10 else "")


def _remaining_lines(file: IO[bytes]) -> int | None:
    """How many lines a file still has, or None for a pipe or a terminal."""
    try:
        here = file.tell()
    except OSError:
        return None
    if not on_a_terminal():  # nobody sees the bar
        return None
    count = count_lines_of(file)
    file.seek(here)
    return count
