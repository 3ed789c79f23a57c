"""Translate raw text: one sentence per line in, one translation per line out.

    python -m fairseq_plugins translate --model runs/transformer_ftc < in.txt > out.txt
    python -m fairseq_plugins translate --model runs/transformer_ftc --input in.txt --output out.txt

Text is tokenised and split into subwords as in the prepared folder that the model was trained on.
Lines keep their order, and empty lines stay empty. A line longer than the model's limit is
translated in parts, split after a sentence or a word; a message at the end counts such lines.
--model also takes the output of the command `export`, which needs neither torch nor fairseq.
"""

import argparse
import functools
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from fairseq_plugins.api import Scored, Translator
from fairseq_plugins.cli import _lines
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import read_lines
from fairseq_plugins.options.arguments import add_flag, add_path, parser_of
from fairseq_plugins.text.protection import missing_spans

Batch = tuple[list[str], list[str] | None, int]  # lines, their prefixes, the first's number


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("translate", __doc__)
    _lines.add_files(parser)
    longest = "1.2 times the line's subwords plus 10, or more where the training data needs it"
    _lines.add_options(parser, "translations", "lines", 2000, longest, ngram=0)
    add_path(
        parser, "--prefixes", "FILE", "text that each translation must begin with; an empty line "
        "is for none",
    )  # fmt: skip
    add_flag(
        parser, "--check-spans", "count translations that lack a tag, URL, number or other text "
        "that prepare-translation --protect would have protected",
    )  # fmt: skip
    add_flag(
        parser, "--json", "write one JSON object a line: translations, a list with the best first, "
        "each with text, score, complete (false if stopped at the length limit) and tokens; and of "
        "models with protected text, repaired, the spans that the model left out or wrote twice",
    )  # fmt: skip
    args = parser.parse_args(argv)
    _lines.check_nbest(args)
    return args


class Done(NamedTuple):
    """The translations of some lines; numbers are of lines of the input, from 1."""

    texts: list[str]
    split: list[int]
    cut_off: list[int]
    repaired: list[int]
    lacking: list[int]
    max_source: int


def as_object(translation: Scored) -> dict[str, Any]:
    """Without `repaired` if nothing is protected."""
    return {name: value for name, value in translation._asdict().items() if value is not None}


def load(args: argparse.Namespace) -> Callable[[Batch], Done]:
    """Load the model; returns what translates lines, with prefixes."""
    translator = Translator(args.model, **_lines.engine_options(args))
    if args.max_len is not None:
        translator.max_length = lambda source_length: args.max_len

    def translate(batch: Batch) -> Done:
        before, (lines, prefixes, first) = translator.lines_seen, batch
        found = translator.hypotheses(lines, prefixes, split=True, first=first)
        texts = [hypotheses[0].text for hypotheses in found]
        if args.json:
            objects = [{"translations": [as_object(h) for h in each]} for each in found]
            texts = [json.dumps(each, ensure_ascii=False) for each in objects]
        split, cut_off = (
            [first + number - before for number in numbers if number > before]
            for numbers in (translator.split, translator.cut_off)
        )
        best = [hypotheses[0] for hypotheses in found]
        repaired = [first + n for n, each in enumerate(best, 1) if each.repaired]
        lacking = []
        if args.check_spans:
            pairs = enumerate(zip(lines, best), 1)
            lacking = [first + n for n, (line, each) in pairs if missing_spans(line, each.text)]
        return Done(texts, split, cut_off, repaired, lacking, translator.max_source)

    return translate


def main(argv: Sequence[str]) -> int:
    args = read_arguments(argv)
    _lines.check_files(args)
    prefixes = None if args.prefixes is None else iter(list(read_lines(args.prefixes)))
    split: list[int] = []
    cut_off: list[int] = []
    repaired: list[int] = []
    lacking: list[int] = []
    max_source = read = 0

    def with_prefixes(lines: list[str]) -> Batch:
        nonlocal read
        first, read = read, read + len(lines)
        begin = None if prefixes is None else list(itertools.islice(prefixes, len(lines)))
        if begin is not None and len(begin) < len(lines):
            raise ConfigurationError(
                f"--prefixes {args.prefixes} has fewer lines than the input: add an empty line for "
                "each line without a prefix"
            )
        return lines, begin, first

    def run(batches: Iterator[list[str]]) -> Iterator[list[str]]:
        nonlocal max_source
        begin, whole = functools.partial(load, args), map(with_prefixes, batches)
        for done in _lines.in_processes(args, begin, whole):
            split.extend(done.split)
            cut_off.extend(done.cut_off)
            repaired.extend(done.repaired)
            lacking.extend(done.lacking)
            max_source = done.max_source
            yield done.texts

    with _lines.own_output(args.output) as out:
        status = _lines.convert(args, run, out, "translated", "lines")
        if status is None:
            return 1
        if prefixes is not None and next(prefixes, None) is not None:
            raise ConfigurationError(
                f"--prefixes {args.prefixes} has more lines than the input: remove them"
            )
    _lines.tell(
        split,
        f"line(s) longer than {max_source:,} subwords, the model's limit, were translated in parts",
    )
    _lines.tell(cut_off, "translation(s) reached the length limit and may be cut off")
    _lines.tell(repaired, "translation(s) lacked protected text or had it twice, and were repaired")
    _lines.tell(lacking, "translation(s) lack a tag, URL or other text of their source")
    return status
