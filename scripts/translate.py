#!/usr/bin/env python3
"""Translate raw text: one sentence a line from standard input, one a line to standard output.

    python scripts/translate.py --model checkpoints/ftc < in.txt > out.txt

Text is tokenised, cut into subwords and put together again as the folder that the model was trained
on says (scripts/prepare_iwslt14.py and prepare_translation.py leave that there). Lines keep their
order, and empty lines stay empty. A line longer than the model can read is translated in parts, cut
after a sentence or a word; how many there were is told at the end.
"""

import argparse
import itertools
import logging
import os
import sys
from pathlib import Path
from typing import BinaryIO, List, Optional, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairseq_plugins.preparation.files import decode_lines  # noqa: E402
from fairseq_plugins.preparation.progress import progress_bar  # noqa: E402
from fairseq_plugins.translator import Translator  # noqa: E402


def positive(text: str) -> int:
    """A whole number above 0, or argparse's error."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def read_arguments(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model",
        type=Path,
        nargs="+",
        required=True,
        metavar="DIR",
        help="a checkpoint, or a folder with checkpoint_best.pt; several make an ensemble",
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="the prepared folder (the one it was trained on)"
    )
    parser.add_argument("--beam", type=positive, default=5, help="beam size (%(default)s)")
    parser.add_argument(
        "--lenpen", type=float, default=1.0, help="above 1 favours long translations (%(default)s)"
    )
    parser.add_argument(
        "--max-tokens", type=positive, default=4000, help="subwords in a batch (%(default)s)"
    )
    parser.add_argument(
        "--buffer",
        type=positive,
        default=2000,
        metavar="LINES",
        help="lines read and sorted by length at a time (%(default)s; 1 on a terminal)",
    )
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")
    parser.add_argument("--fp16", action="store_true", help="half precision, on a GPU")
    return parser.parse_args(argv)


def lines_to_come(file: BinaryIO) -> Optional[int]:
    """How many lines a file still has, or None for a pipe or a terminal."""
    try:
        here = file.tell()
    except OSError:
        return None
    count = sum(1 for _ in file)
    file.seek(here)
    return count


def some(numbers: List[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return shown + (", ..." if len(numbers) > 10 else "")


def main(argv: Optional[Sequence[str]] = None) -> int:
    args = read_arguments(argv)
    source, out = sys.stdin.buffer, sys.stdout
    sys.stdout = sys.stderr  # whatever a library prints does not belong to the translation
    fairseq_log, level = logging.getLogger("fairseq"), logging.getLogger("fairseq").level
    fairseq_log.setLevel(logging.WARNING)
    try:
        translator = Translator(
            args.model, args.data, args.cpu, args.fp16, args.beam, args.lenpen, args.max_tokens
        )
        lines = decode_lines(source, "standard input")
        size = 1 if source.isatty() else args.buffer
        with progress_bar(
            description="translated",
            total=lines_to_come(source),
            unit=" lines",
            disable=not sys.stderr.isatty() or source.isatty(),
        ) as bar:
            while True:
                some_lines = list(itertools.islice(lines, size))
                if not some_lines:
                    break
                for translation in translator.translate(some_lines):
                    out.write(translation + "\n")
                out.flush()
                bar.update(len(some_lines))
    except BrokenPipeError:  # such as `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        return 1
    finally:
        sys.stdout = out
        fairseq_log.setLevel(level)
    if translator.split:
        print(
            "{:,} line(s) longer than {:,} subwords, which the model cannot read at once, were "
            "translated in parts: number {}".format(
                len(translator.split), translator.max_source, some(translator.split)
            ),
            file=sys.stderr,
        )
    if translator.cut_off:
        print(
            "{:,} translation(s) did not end within the length allowed and may be cut off: "
            "number {}".format(len(translator.cut_off), some(translator.cut_off)),
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
