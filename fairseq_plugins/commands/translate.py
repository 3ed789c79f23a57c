"""Translate raw text: one sentence per line in, one translation per line out.

    python -m fairseq_plugins translate --model runs/transformer_ftc < in.txt > out.txt
    python -m fairseq_plugins translate --model runs/transformer_ftc --input in.txt --output out.txt

Text is tokenised and split into subwords as in the prepared folder that the model was trained on.
Lines keep their order, and empty lines stay empty. A line longer than the model's limit is
translated in parts, split after a sentence or a word; a message at the end counts such lines.
--model also takes the output of the command `export`, which needs neither torch nor fairseq.
"""

import argparse
from typing import Sequence

from fairseq_plugins.commands import _lines
from fairseq_plugins.translator import Translator


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugins translate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _lines.add_files(parser)
    _lines.add_options(parser, "translations", "lines", buffer=2000)
    args = parser.parse_args(argv)
    _lines.check_files(args)
    with _lines.own_output(args.output) as out:
        translator = Translator(args.model, **_lines.engine_options(args))
        whole = _lines.convert(
            translator.translate, out, args.buffer, "translated", "lines", args.input
        )
    if not whole:
        return 1
    _lines.tell(
        translator.split,
        f"line(s) longer than {translator.max_source:,} subwords, the model's limit, "
        "were translated in parts",
    )
    _lines.tell(translator.cut_off, "translation(s) reached the length limit and may be cut off")
    return 0
