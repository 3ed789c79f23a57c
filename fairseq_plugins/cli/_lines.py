"""What translate, summarize and classify share: a model, lines in, lines out, and progress."""

import contextlib
import hashlib
import io
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from fairseq_plugins import __version__, pretrained
from fairseq_plugins.errors import ConfigurationError, counted, flag
from fairseq_plugins.files import (
    LONGEST_LINE,
    count_lines_of,
    decode,
    digest,
    is_in_place,
    open_to_read,
    output_file,
    raw_lines,
    written_whole,
)
from fairseq_plugins.options.arguments import Command
from fairseq_plugins.options.fields import MOST, REQUIRED, option, options_of, values_of
from fairseq_plugins.options.groups import Device, Precision
from fairseq_plugins.options.search import Options
from fairseq_plugins.system.progress import on_a_terminal, progress_bar
from fairseq_plugins.system.quiet import only_warnings_of_fairseq
from fairseq_plugins.system.resumable import Group, Output, Result, resumable, write_groups

# options that do not change what is written for a line
NOT_OF_OUTPUT = {"model", "input", "output", "documents", "prefixes", "buffer", "processes"}
LAST_BYTES = 1 << 20  # of a checkpoint, where a zip file lists the checksum of each tensor


@dataclass
class Lines(Device, Command):
    """The options of a command that applies a model to lines of text."""

    input: Path | None = option(
        None, "the text to read (default: standard input)", metavar="FILE", group="input"
    )
    output: Path | None = option(
        None, "the file to write; it is named FILE.part until it is complete, and a rerun of a "
        "stopped command continues it (default: standard output)", metavar="FILE",
    )  # fmt: skip
    model: Sequence[Path] = option(
        REQUIRED, "a checkpoint, a folder with checkpoint_best.pt, or an exported model",
        metavar="DIR", nargs=1,
    )  # fmt: skip
    data: Path | None = option(
        None, "the prepared folder (default: the one that the model was trained on)", metavar="DIR"
    )
    max_tokens: int | None = option(
        None, "the number of tokens in a batch, including padding (default: 4000; for checkpoints "
        "on a GPU, as many as its memory allows)", least=1,
    )  # fmt: skip
    buffer: int = option(
        2000, "the number of inputs that are read and sorted by length at a time; on a terminal it "
        "is 1", least=1,
    )  # fmt: skip
    threads: int = option(1, "the number of threads of an exported model", least=1, most=MOST)
    processes: int = option(
        1, "the number of processes, each with its own copy of the model and, if there are GPUs, "
        "on one of them; only for files", least=1, most=MOST,
    )  # fmt: skip
    num_shards: int = option(
        1, "the number of shares of the input; unlike fairseq's, they are contiguous, so that cat "
        "joins their outputs", least=1,
    )  # fmt: skip
    shard_id: int = option(0, "the share to read, from 0", least=0)

    def of_model(self) -> dict[str, Any]:
        """The options of the Python class of the command, such as `Translator`."""
        own = {"data": self.data, "threads": self.threads, "max_tokens": self.max_tokens}
        return {**own, **values_of(self, Device)}


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
        """See `Lines.of_model`; also the options of the search."""
        return {**super().of_model(), **values_of(self, Precision, Options)}


def check_files(args: Lines) -> None:
    """Raise a ConfigurationError for a file that cannot be used, before a model is loaded."""
    documents = getattr(args, "documents", [])
    for path in (*documents, *filter(None, [args.input])):
        if not path.is_fifo():  # opening a pipe here would break its writer
            open_to_read(path).close()
    if args.output is not None:
        args.output = output_file("--output", args.output)
    if sys.stdin is None and not documents and args.input is None:
        raise ConfigurationError("standard input is closed: give --input, a file or a pipe")
    if args.shard_id >= args.num_shards:
        raise ConfigurationError(
            f"--shard-id {args.shard_id} must be below --num-shards {args.num_shards}"
        )
    typed = not documents and args.input is None and sys.stdin.buffer.isatty()
    for name in ("processes", "num_shards"):
        if typed and getattr(args, name) > 1:
            raise ConfigurationError(
                f"{flag(name)} {getattr(args, name)} is for files: give --input, or remove it"
            )


@contextlib.contextmanager
def own_output(args: Lines, size: int, page: IO[str] | None = None) -> Iterator[Output]:
    """The file of --output or standard output, free of what libraries print or log.

    Args:
        args: the options; those that decide the output are compared if a stopped run is resumed.
        size: the most lines of a group.
        page: see `convert`.
    """
    out, path = sys.stdout, args.output
    if path is None and out is None:
        raise ConfigurationError("standard output is closed: give --output, a file or a pipe")
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(encoding="utf-8")
    sys.stdout = sys.stderr
    try:
        with only_warnings_of_fairseq(), contextlib.ExitStack() as stack:
            if path is None:
                yield Output(out, size, page)
            elif page is not None or is_in_place(path):
                yield Output(stack.enter_context(written_whole(path)), size, page)
            else:
                yield stack.enter_context(resumable(path, _decisive(args), size))
    finally:
        sys.stdout = out


def _models(args: Lines) -> list[Path]:
    return [pretrained.find(model) for model in args.model]


def _decisive(args: Lines) -> dict[str, Any]:
    """What decides the output beside the input, by the user's names."""
    digests = list(map(_model_digest, _models(args)))
    names = [each.name for each in options_of(type(args)) if each.name not in NOT_OF_OUTPUT]
    options = {flag(name): getattr(args, name) for name in names}
    if (terms := getattr(args, "terms", None)) is not None:
        options["--terms"] = digest(terms)
    return {"version": __version__, "--model": digests, **options}


def _model_digest(place: Path) -> str:
    """A digest that changes with a model, and takes no longer for a large one."""
    if pretrained.is_export(place):
        return digest(place / pretrained.CONFIG)  # which has the checksums of the other files
    with open_to_read(pretrained.find_checkpoint(place)) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LAST_BYTES))
        return f"{size}-{hashlib.sha256(file.read()).hexdigest()}"


def _in_torch(args: Lines) -> bool:
    """Whether the model is no export."""
    return not pretrained.is_export(_models(args)[0])


def convert(
    args: Lines,
    load: Callable[[], Callable[[Group], Result]],
    done: str,
    unit: str,
    pair: Callable[[Iterator[str], int, int | None], Iterator[Any]] | None = None,
    page: IO[str] | None = None,
) -> int:
    """Pass lines to a model in groups, write the results, and report the notes on them.

    A line that is not UTF-8 or longer than `LONGEST_LINE` has the output of an empty one, and the
    first of them is reported.

    Args:
        args: --input or --documents, files to read, each of the latter as one line; --buffer, the
            most lines that all --processes have at a time, 1 on a terminal; the other options.
        load: makes the function from groups to results, in each process.
        done: the word before the progress bar, such as "translated".
        unit: what a line is, such as "lines".
        pair: what joins lines to others of the same numbers, of which the first and the end (None
            for all) are given.
        page: where to write the sections of results; then no earlier run is continued.

    Returns:
        The exit status: 1 if a line could not be read, or the reader went away, such as `| head`.
    """
    unread: list[str] = []
    path, documents = args.input, getattr(args, "documents", [])
    with contextlib.ExitStack() as stack:
        source: Any = None
        if not documents:
            source = sys.stdin.buffer if path is None else stack.enter_context(open_to_read(path))
        typed = source is not None and source.isatty()
        size = 1 if typed else -(-args.buffer // args.processes)
        output = stack.enter_context(own_output(args, size, page))
        shown = not typed and (on_a_terminal() or args.output is not None)
        first, total = 0, len(documents) if documents else None
        if source is not None and (shown or args.num_shards > 1):
            total = _remaining_lines(source)
        end = total if documents else None
        if args.num_shards > 1:
            if total is None:
                raise ConfigurationError(
                    f"--num-shards {args.num_shards} is for files that can be read again, but the "
                    "input is a pipe: give --input"
                )
            groups = -(-total // output.size)  # of which each share has whole ones
            first, end = (
                min(total, groups * share // args.num_shards * output.size)
                for share in (args.shard_id, args.shard_id + 1)
            )
            total = end - first
        if documents:
            texts: Iterator[Callable[[], str]] = (partial(_in_one_line, file) for file in documents)
        else:
            texts = _lines_of(source, "standard input" if path is None else str(path))
        lines: Iterator[Any] = _readable(itertools.islice(texts, first, end), unread)
        if pair is not None:
            lines = pair(lines, first, end)
        cpu = args.cpu if args.processes > 1 and _in_torch(args) else None
        bar = stack.enter_context(
            progress_bar(
                description=done, total=total, show=shown, unit=" " + unit, initial=output.lines
            )
        )
        try:
            write_groups(load, lines, output, first, args.processes, cpu, bar.update)
        except BrokenPipeError:
            if args.output is not None:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), output.file.fileno())
            return 1
    for message, numbers in output.notes.items():
        tell(numbers, message)
    if unread:
        what = counted(len(unread), f"{unit} could not be read and got the output of an empty one")
        print(f"{what}: {unread[0]}", file=sys.stderr)
    return int(bool(unread))


def _readable(texts: Iterable[Callable[[], str]], unread: list[str]) -> Iterator[str]:
    """The texts; an empty one for each that raises an error, which is added to `unread`."""
    for read in texts:
        try:
            text = read()
        except ConfigurationError as error:
            unread.append(str(error))
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
    """Print how many lines something happened to, and the first ten of them, if any."""
    if numbers:
        shown = ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")
        print(f"{counted(len(numbers), what)}: number {shown}", file=sys.stderr)


def _remaining_lines(file: IO[bytes]) -> int | None:
    """How many lines a file still has, or None for a pipe."""
    try:
        here = file.tell()
    except OSError:
        return None
    count = count_lines_of(file)
    file.seek(here)
    return count
