"""Classify raw text: one text per line in, a label and its probability out.

    python -m fairseq_plugins classify --model runs/imdb < texts.txt > labels.tsv

Each output line is a label, a tab, and the probability of the label. Text is tokenised as in the
prepared folder that the model was trained on. Lines keep their order. The end of a text longer than
the model's limit is ignored; a message at the end counts such texts. --model also takes the output
of the command `export`, which needs neither torch nor fairseq.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fairseq_plugins.api import Classifier
from fairseq_plugins.cli import _lines
from fairseq_plugins.cli._lines import Lines
from fairseq_plugins.options.arguments import command
from fairseq_plugins.options.fields import with_default


@dataclass
class Classify(Lines):
    """The options of the command."""

    max_tokens: int = with_default(Lines, "max_tokens", 16384)


class Done(NamedTuple):
    """The labels of some lines; numbers are of these lines, from 1."""

    lines: list[str]
    empty: list[int]
    cut: list[int]
    limit: int  # tokens that the model reads


def load(args: Classify) -> Callable[[list[str]], Done]:
    """Load the model; returns what classifies lines."""
    classifier = Classifier(
        args.model[0],
        args.data,
        cpu=args.cpu,
        max_tokens=args.max_tokens,
        threads=args.threads,
        user_dir=args.user_dir,
    )
    seen = 0

    def classify(texts: list[str]) -> Done:
        nonlocal seen
        found = [f"{label}\t{value:.4f}" for label, value in classifier.classify(texts)]
        empty, cut = (
            [number - seen for number in numbers if number > seen]
            for numbers in (classifier.empty, classifier.cut)
        )
        seen += len(texts)
        return Done(found, empty, cut, classifier.max_tokens_of_text)

    return classify


@command
def main(args: Classify) -> int:
    _lines.check_files(args)
    empty: list[int] = []
    cut: list[int] = []
    seen = limit = 0

    def run(batches: Iterator[list[str]]) -> Iterator[list[str]]:
        nonlocal seen, limit
        for done in _lines.in_processes(args, functools.partial(load, args), batches):
            empty.extend(seen + number for number in done.empty)
            cut.extend(seen + number for number in done.cut)
            seen, limit = seen + len(done.lines), done.limit
            yield done.lines

    with _lines.own_output(args.output) as out:
        status = _lines.convert(args, run, out, "classified", "lines")
    if status is None:
        return 1
    _lines.tell(empty, "line(s) without text got a meaningless label")
    _lines.tell(cut, f"line(s) were truncated to {limit:,} tokens, the model's limit")
    return status
