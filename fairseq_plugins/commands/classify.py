"""Classify raw text: one text per line in, a label and its probability out.

    python -m fairseq_plugins classify --model runs/imdb < texts.txt > labels.tsv

Each output line is a label, a tab, and the probability of the label. Text is tokenised as in the
prepared folder that the model was trained on. Lines keep their order. The end of a text longer than
the model's limit is ignored; a message at the end counts such texts. --model also takes the output
of the command `export`, which needs neither torch nor fairseq.
"""

import functools
from typing import List, Sequence

from fairseq_plugins.arguments import add_path, parser_of
from fairseq_plugins.classifier import Classifier
from fairseq_plugins.commands import _lines


def main(argv: Sequence[str]) -> int:
    parser = parser_of("classify", __doc__)
    _lines.add_files(parser)
    text = "a checkpoint, a folder with checkpoint_best.pt, or an exported model"
    add_path(parser, "--model", "DIR", text, required=True)
    _lines.add_model(parser, 16384, "lines", buffer=2000)
    args = parser.parse_args(argv)
    _lines.check_files(args)
    with _lines.own_output(args.output) as out:
        options = {name: vars(args)[name] for name in ("data", "cpu", "max_tokens", "threads")}
        classifier = Classifier(args.model, **options)

        def classify(texts: List[str]) -> List[str]:
            return [f"{label}\t{value:.4f}" for label, value in classifier.classify(texts)]

        status = _lines.convert(
            functools.partial(map, classify), out, args.buffer, "classified", "lines", args.input
        )
    if status is None:
        return 1
    _lines.tell(classifier.empty, "line(s) without text got a meaningless label")
    _lines.tell(
        classifier.cut,
        f"line(s) were truncated to {classifier.max_tokens_of_text:,} tokens, the model's limit",
    )
    return status
