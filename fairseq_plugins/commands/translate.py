"""Translate raw text: one sentence per line in, one translation per line out.

    python -m fairseq_plugins translate --model runs/transformer_ftc < in.txt > out.txt
    python -m fairseq_plugins translate --model runs/transformer_ftc --input in.txt --output out.txt

Text is tokenised and split into subwords as in the prepared folder that the model was trained on.
Lines keep their order, and empty lines stay empty. A line longer than the model's limit is
translated in parts, split after a sentence or a word; a message at the end counts such lines.
--model also takes the output of the command `export`, which needs neither torch nor fairseq.
"""

import argparse
import itertools
import json
from pathlib import Path
from typing import List, Sequence

from fairseq_plugins.commands import _lines
from fairseq_plugins.commands._numbers import at_least
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import read_lines
from fairseq_plugins.translator import Translator


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugins translate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _lines.add_files(parser)
    _lines.add_options(parser, "translations", "lines", buffer=2000, ngram=0)
    parser.add_argument(
        "--max-len", type=at_least(1), metavar="N",
        help="maximum length in subwords (default: some more than twice that of the line)",
    )  # fmt: skip
    parser.add_argument(
        "--prefixes", type=Path, metavar="FILE",
        help="text that each translation must begin with; an empty line is for none",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true",
        help="write one JSON object a line: translations, a list with the best first, each with "
        "text, score and complete (false where it was stopped at the length limit)",
    )  # fmt: skip
    parser.add_argument(
        "--nbest", type=at_least(1), default=1, metavar="N",
        help="how many translations --json writes for each line (default: %(default)s)",
    )  # fmt: skip
    args = parser.parse_args(argv)
    if args.nbest > 1 and not args.json:
        raise ConfigurationError(f"--nbest {args.nbest} is for --json: add it")
    return args


def main(argv: Sequence[str]) -> int:
    args = read_arguments(argv)
    _lines.check_files(args)
    prefixes = None if args.prefixes is None else iter(list(read_lines(args.prefixes)))
    with _lines.own_output(args.output) as out:
        translator = Translator(args.model, nbest=args.nbest, **_lines.engine_options(args))
        if args.max_len is not None:
            translator.max_length = lambda source_length: args.max_len

        def translate(lines: List[str]) -> List[str]:
            begin = None if prefixes is None else list(itertools.islice(prefixes, len(lines)))
            if begin is not None and len(begin) < len(lines):
                raise ConfigurationError(
                    f"--prefixes {args.prefixes} has fewer lines than there are"
                )
            found = translator.hypotheses(lines, begin, split=True)
            if not args.json:
                return [hypotheses[0].text for hypotheses in found]
            objects = [{"translations": [h._asdict() for h in each]} for each in found]
            return [json.dumps(each, ensure_ascii=False) for each in objects]

        whole = _lines.convert(translate, out, args.buffer, "translated", "lines", args.input)
    if not whole:
        return 1
    _lines.tell(
        translator.split,
        f"line(s) longer than {translator.max_source:,} subwords, the model's limit, "
        "were translated in parts",
    )
    _lines.tell(translator.cut_off, "translation(s) reached the length limit and may be cut off")
    return 0
