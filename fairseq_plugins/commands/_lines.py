"""What translate, summarize and classify share: a model, lines in, lines out, and progress."""

import argparse
import contextlib
import importlib.util
import io
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO, Callable, Iterator, List, Optional, TextIO

import fairseq_plugins
from fairseq_plugins import serving
from fairseq_plugins.commands._log import only_warnings_of_fairseq
from fairseq_plugins.commands._numbers import at_least
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import LONGEST_LINE, count_lines_of, decode, raw_lines
from fairseq_plugins.progress import progress_bar
from fairseq_plugins.serving import is_export
from fairseq_plugins.serving.search import LARGEST_PENALTY

MOST_BYTES = 1 << 22  # of the lines that are held at a time: their subwords take 20 times as much


def add_options(parser: argparse.ArgumentParser, what: str, unit: str, buffer: int) -> None:
    """Options of every such command; `what` is written, of one input `unit` each."""
    parser.add_argument(
        "--model", type=Path, nargs="+", required=True, metavar="DIR",
        help="a checkpoint, or a folder with checkpoint_best.pt; several make an ensemble; or an "
        "exported model",
    )  # fmt: skip
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="the prepared folder (default: the one the model was trained on)",
    )
    parser.add_argument(
        "--beam", type=at_least(1), default=5, help="beam size (default: %(default)s)"
    )
    parser.add_argument(
        "--lenpen",
        type=at_least(-LARGEST_PENALTY, float, LARGEST_PENALTY),
        default=1.0,
        help=f"above 1 favours long {what} (default: %(default)s)",
    )
    parser.add_argument(
        "--max-tokens",
        type=at_least(1),
        default=4000,
        help="subwords in a batch (default: %(default)s)",
    )
    parser.add_argument(
        "--buffer", type=at_least(1), default=buffer, metavar=unit.upper(),
        help=f"{unit} read and sorted by length at a time (default: %(default)s; 1 on a terminal)",
    )  # fmt: skip
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")
    parser.add_argument("--fp16", action="store_true", help="half precision, on a GPU")
    parser.add_argument(
        "--int8", action="store_true", help="8-bit matrix products: much faster on a CPU"
    )
    parser.add_argument(
        "--shortlist",
        action="store_true",
        help="choose among likely words only, with a model exported with --shortlist: faster",
    )
    parser.add_argument(
        "--threads",
        type=at_least(1),
        default=1,
        help="threads of an exported model (default: %(default)s)",
    )


def load(kind: str, args: argparse.Namespace, **options: Any) -> Any:
    """A "Translator" or "Summarizer": of checkpoints, or of an exported model without torch.

    Raises:
        ConfigurationError: a model cannot be loaded, or an exported one is given with options or
            models that it cannot be used with.
    """
    options.update(beam=args.beam, lenpen=args.lenpen, max_tokens=args.max_tokens)
    exported = [path for path in args.model if is_export(path)]
    if not exported:
        for name, default in (("shortlist", False), ("threads", 1)):
            if getattr(args, name) != default:
                raise ConfigurationError(f"--{name} is for models that the command export wrote")
        if importlib.util.find_spec("fairseq") is None:
            raise ConfigurationError(
                f"--model {args.model[0]}: this is no folder that `export` wrote, and a checkpoint "
                "needs torch and fairseq, which are not installed"
            )
        return getattr(fairseq_plugins, kind)(
            args.model, data=args.data, cpu=args.cpu, fp16=args.fp16, int8=args.int8, **options
        )
    if len(args.model) > 1:
        raise ConfigurationError(f"--model {exported[0]}: an exported model is used alone")
    for name in ("data", "fp16", "int8"):
        if getattr(args, name):
            raise ConfigurationError(
                f"--{name} is for checkpoints: {exported[0]} holds all that it needs as it was "
                "exported"
            )
    options.update(threads=args.threads, shortlist=args.shortlist)
    return getattr(serving, kind)(exported[0], **options)


@contextlib.contextmanager
def own_output() -> Iterator[TextIO]:
    """Standard output in UTF-8, as the input is, without what libraries print or log."""
    for stream, name in ((sys.stdin, "input"), (sys.stdout, "output")):
        if stream is None:
            raise ConfigurationError(f"standard {name} is closed: give a file or a pipe")
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(encoding="utf-8")
    sys.stdout = sys.stderr
    try:
        with only_warnings_of_fairseq():
            yield out
    finally:
        sys.stdout = out


def convert(
    generate: Callable[[List[str]], List[str]], out: TextIO, buffer: int, done: str, unit: str
) -> bool:
    """Give standard input to `generate`, many lines at a time, and write what it returns.

    Args:
        generate: from lines to as many lines.
        out: where to write.
        buffer: the most lines at a time, 1 on a terminal; they have `MOST_BYTES` or are one line.
        done: the word before the progress bar, such as "translated".
        unit: what a line is, such as "lines".

    Returns:
        Whether all could be written: False if the reader went away, such as `| head`.

    Raises:
        ConfigurationError: a line is not UTF-8, or longer than `LONGEST_LINE`.
    """
    source = sys.stdin.buffer
    shown = sys.stderr.isatty() and not source.isatty()
    with progress_bar(
        description=done,
        total=_remaining_lines(source) if shown else None,
        unit=" " + unit,
        disable=not shown,
    ) as bar:
        for batch in _batches(source, 1 if source.isatty() else buffer):
            try:
                for line in generate(batch):
                    out.write(line + "\n")
                out.flush()
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
                return False
            bar.update(len(batch))
    return True


def _batches(source: BinaryIO, most: int) -> Iterator[List[str]]:
    """Lines of a file, some at a time: at most this many, and `MOST_BYTES` unless it is one."""
    batch: List[str] = []
    size = 0
    for number, line in enumerate(raw_lines(source), 1):
        if line is None:
            raise ConfigurationError(
                f"standard input, line {number} is longer than {LONGEST_LINE:,} bytes: split it"
            )
        if batch and size + len(line) > MOST_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(decode(line, "standard input", number))
        size += len(line)
        if len(batch) == most:  # without waiting for a further line
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def first_ten(numbers: List[int]) -> str:
    """The first ten numbers, for a message."""
    shown = ", ".join(map(str, numbers[:10]))
    return shown + (", ..." if len(numbers) > 10 else "")


def _remaining_lines(file: BinaryIO) -> Optional[int]:
    """How many lines a file still has, or None for a pipe or a terminal."""
    try:
        here = file.tell()
    except OSError:
        return None
    count = count_lines_of(file)
    file.seek(here)
    return count
