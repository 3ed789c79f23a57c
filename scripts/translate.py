#!/usr/bin/env python3
"""Translate raw text: one sentence a line from standard input, one a line to standard output.

    python scripts/translate.py --model checkpoints/ftc < in.txt > out.txt

Text is tokenised, cut into subwords and put together again as the folder that the model was trained
on says (scripts/prepare_iwslt14.py and prepare_translation.py leave that there). Lines keep their
order, and empty lines stay empty. A line longer than the model can read is translated in parts, cut
after a sentence or a word; how many there were is told at the end.
"""

import argparse
import sys
from pathlib import Path
from typing import Optional, Sequence

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import line_by_line  # noqa: E402
from line_by_line import some  # noqa: E402

from fairseq_plugins.translator import Translator  # noqa: E402


def read_arguments(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    line_by_line.add_options(parser, "translations", "lines", buffer=2000)
    return parser.parse_args(argv)


def main(argv: Optional[Sequence[str]] = None) -> int:
    args = read_arguments(argv)
    with line_by_line.output_of_its_own() as out:
        translator = Translator(
            args.model,
            args.data,
            args.cpu,
            args.fp16,
            args.beam,
            args.lenpen,
            args.max_tokens,
            args.int8,
        )
        whole = line_by_line.convert(translator.translate, out, args.buffer, "translated", "lines")
    if not whole:
        return 1
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
