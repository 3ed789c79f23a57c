"""Classify raw text: one text per line in, a label and its probability out.

    fairseq-plugins classify --model runs/imdb < texts.txt > labels.tsv

Each output line is a label, a tab, and the probability of the label. Text is tokenised as in the
prepared folder that the model was trained on. Lines keep their order. The end of a text longer than
the model's limit is ignored; a message at the end counts such texts. --model also takes the output
of the command `export`, which needs neither torch nor fairseq. With --output, a rerun continues
what a stopped or killed command wrote.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

from fairseq_plugins.api import Classifier
from fairseq_plugins.cli import _lines
from fairseq_plugins.cli._lines import Lines
from fairseq_plugins.options.arguments import command
from fairseq_plugins.options.fields import option
from fairseq_plugins.system.resumable import Group, Result


@dataclass
class Classify(Lines):
    """The options of the command."""

    max_tokens: int = option(16384, "the number of tokens in a batch, including padding", least=1)


def load(args: Classify) -> Callable[[Group], Result]:
    """Load the model; returns what classifies lines."""
    classifier = Classifier(args.model[0], **args.of_model())

    def classify(group: Group) -> Result:
        lines = [f"{label}\t{value:.4f}" for label, value in classifier.classify(group.lines)]
        limit = classifier.max_tokens_of_text
        cut = f"lines over the model's limit of {limit:,} tokens got truncated"
        empty = "lines without text got a meaningless label"
        notes = {
            message: [group.first + number for number in numbers]
            for message, numbers in ((empty, classifier.empty), (cut, classifier.cut))
        }
        return Result(lines, notes)

    return classify


@command
def main(args: Classify) -> int:
    _lines.check_files(args)
    return _lines.convert(args, functools.partial(load, args), "classified", "lines")
