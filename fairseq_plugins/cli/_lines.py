"""What translate, summarize and classify share: a model, lines in, lines out, and progress."""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
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
from fairseq_plugins.options.arguments import add_count, add_flag, add_number, add_path, at_least
from fairseq_plugins.options.search import LARGEST_PENALTY
from fairseq_plugins.options.user_dirs import add_user_dir
from fairseq_plugins.system.progress import on_a_terminal, progress_bar
from fairseq_plugins.system.quiet import only_warnings_of_fairseq

MOST_CHARACTERS = 1 << 22  # of lines at a time; their subwords take 20 times as much memory


def add_model(parser: argparse.ArgumentParser, max_tokens: int, unit: str, buffer: int) -> None:
    """Add the options of a model that reads text, one `unit` per input."""
    add_path(
        parser, "--data", "DIR", "the prepared folder (default: the one the model was trained on)"
    )
    add_number(parser, "--max-tokens", "tokens in a batch", max_tokens)
    parser.add_argument(
        "--buffer", type=at_least(1), default=buffer, metavar=unit.upper(),
        help=f"{unit} read and sorted by length at a time (default: %(default)s; 1 on a terminal)",
    )  # fmt: skip
    add_user_dir(parser)
    add_flag(parser, "--cpu", "do not use a GPU")
    add_count(parser, "--threads", "threads of an exported model", 1)
    add_count(
        parser, "--processes", "processes, each with its own copy of an exported model; only for "
        "files", 1,
    )  # fmt: skip


def add_options(
    parser: argparse.ArgumentParser, what: str, unit: str, buffer: int, longest: str, ngram: int
) -> None:
    """Add the options of a model that writes `what`, one per input `unit`, and of its search."""
    known = ", ".join(pretrained.names()) if what == "translations" else ""
    parser.add_argument(
        "--model", nargs="+", required=True, metavar="DIR",
        help="a checkpoint, a folder with checkpoint_best.pt (several make an ensemble), or an "
        "exported model"
        + (f"; or a model in the box, unless a file has its name: {known}" if known else ""),
    )  # fmt: skip
    add_model(parser, 4000, unit, buffer)
    add_search(parser, what, longest, ngram)
    add_flag(parser, "--sampling", "draw random words instead of searching for the best")
    parser.add_argument(
        "--sampling-topk", type=at_least(0), default=0, metavar="N",
        help="draw from the N likeliest words (default: all)",
    )  # fmt: skip
    add_number(
        parser, "--temperature", "below 1 prefers likely words when drawing",
        1.0, 1e-3, float, metavar="T",
    )  # fmt: skip
    add_number(parser, "--seed", "seed of --sampling", 1, 0)
    add_number(parser, "--nbest", f"how many {what} --json writes, the best first", 1)


def check_nbest(args: argparse.Namespace) -> None:
    """Raise a ConfigurationError for several texts without --json."""
    if args.nbest > 1 and not args.json:
        raise ConfigurationError(f"--nbest {args.nbest} is for --json: add it")


def add_search(
    parser: argparse.ArgumentParser, what: str, longest: str, ngram: int | None = None
) -> None:
    """Add the options of the search for the best `what`.

    Args:
        parser: where to add them.
        what: such as "summaries".
        longest: the default of `--max-len`, in words.
        ngram: the default of `--no-repeat-ngram-size`; None if what is written decides.
    """
    most, text = LARGEST_PENALTY, f"above 1 favours long {what}"
    add_number(parser, "--beam", "beam size", 5)
    add_number(parser, "--lenpen", text, 1.0, -most, float, most)
    add_number(parser, "--min-len", f"minimum length of {what} in subwords", 1)
    add_number(parser, "--max-len", f"maximum length of {what} in subwords (default: {longest})")
    repeated = f"no sequence of N subwords occurs twice in {what}; 0 turns this off"
    repeated += " (default: 3 for summaries, 0 for translations)" if ngram is None else ""
    add_number(parser, "--no-repeat-ngram-size", repeated, ngram, least=0)
    add_flag(parser, "--fp16", "half precision, on a GPU")
    add_flag(parser, "--int8", "8-bit matrix products: much faster on a CPU")


def add_files(parser: argparse.ArgumentParser) -> None:
    """Options to read and write files instead of the standard streams."""
    add_path(parser, "--input", "FILE", "text to read (default: standard input)")
    add_path(
        parser, "--output", "FILE", "where to write; a file has a temporary name until complete "
        "(default: standard output)",
    )  # fmt: skip


def check_files(args: argparse.Namespace) -> None:
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

        models = args.model if isinstance(args.model, list) else [args.model]
        if not is_export(pretrained.find(models[0])):
            raise ConfigurationError("--processes is for exported models: remove it")
        if not documents and args.input is None and sys.stdin.buffer.isatty():
            raise ConfigurationError(
                f"--processes {args.processes} is for files: give --input, or remove it"
            )


def in_processes(
    args: argparse.Namespace, begin: Callable[[], Callable[[Any], Any]], batches: Iterable[Any]
) -> Iterator[Any]:
    """Like `map(begin(), batches)`, in as many processes as --processes says, and in order."""
    if args.processes == 1:
        return map(begin(), batches)
    from fairseq_plugins.system.workers import map_batches  # a slow import

    return map_batches(begin, batches, args.processes)


def engine_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options for `open_engine` and for the search that a command has."""
    names = (
        "data", "user_dir", "cpu", "fp16", "int8", "threads", "max_tokens", "beam",
        "lenpen", "min_len", "sampling", "sampling_topk", "temperature", "seed", "nbest",
    )  # fmt: skip
    found = {name: value for name, value in vars(args).items() if name in names}
    return {**found, "no_repeat_ngram": args.no_repeat_ngram_size}


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
    args: argparse.Namespace,
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
