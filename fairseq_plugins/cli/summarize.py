"""Summarize raw text: one document per line in, one summary per line out.

    fairseq-plugins summarize --model runs/fastformer_copy_cnn_dm < in.txt > out.txt
    fairseq-plugins summarize --model runs/fastformer_copy_cnn_dm --json < in.txt
    fairseq-plugins summarize --model runs/fastformer_copy_cnn_dm --documents *.txt

Documents are split into subwords as in the prepared folder that the model was trained on. Lines
keep their order, and empty lines stay empty. The end of a document longer than the model's limit is
ignored; a message at the end counts such documents. BART's settings for CNN/DailyMail are --lenpen
2.0 --min-len 55 --max-len 140. --model also takes the output of the command `export`, which needs
neither torch nor fairseq. With --output, a rerun continues what a stopped or killed command wrote.

The JSON object of --json has `summary` (a list of sentences), `subwords` (the number of the
document's subwords), `read` (how many of them the model read), `complete` (false if the summary
was stopped at --max-len) and `score`. With --nbest it also has `summaries`, a list of such objects
with the best first. For a model with --copy-attention, `copied` has for each subword of the summary
the index, from 0, of the subword of the document that it copies, or null.
"""

import functools
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.api import FOR_TRANSLATION, Summarizer
from fairseq_plugins.cli import _lines
from fairseq_plugins.cli._lines import TextOut
from fairseq_plugins.options.arguments import command
from fairseq_plugins.options.fields import option, with_default
from fairseq_plugins.search.text import LONGEST, Summary
from fairseq_plugins.system.resumable import Group, Result


@dataclass
class Summarize(TextOut):
    """The options of the command."""

    documents: Sequence[Path] = option(
        (), "files to read instead of --input, each as one document", metavar="FILE", group="input"
    )
    buffer: int = with_default(TextOut, "buffer", 500)
    max_len: int | None = option(
        None,
        f"the maximum length of a summary in subwords (default: {LONGEST}, or the model's limit)",
        least=1,
    )
    no_repeat_ngram: int = with_default(TextOut, "no_repeat_ngram", 3)


def as_object(summary: Summary) -> dict[str, Any]:
    """Without `copied` if it is unknown."""
    return {name: value for name, value in summary._asdict().items() if value is not None}


def as_json(summaries: list[Summary], nbest: int) -> str:
    """The line of `--json` for a document: its best summary, and all of them with --nbest."""
    best = as_object(summaries[0])
    if nbest > 1:
        best["summaries"] = list(map(as_object, summaries))
    return json.dumps(best, ensure_ascii=False)


def load(args: Summarize) -> Callable[[Group], Result]:
    """Load the model; returns what summarizes documents."""
    options = args.of_model()
    least = options.pop("min_len")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", FOR_TRANSLATION)  # a remark below, told once
        summarizer = Summarizer(args.model, min_length=least, max_length=args.max_len, **options)
    summarizer.wants_copied = args.json
    cut = f"documents over the model's limit of {summarizer.max_source:,} subwords got truncated"
    longest = summarizer.max_length(summarizer.max_source)
    stopped = f"summaries reached {longest} subwords (--max-len) and may be cut off"

    def summarize(group: Group) -> Result:
        if group.first == 0 and not summarizer.processor.for_summaries:
            print(FOR_TRANSLATION + "the command translate", file=sys.stderr)
        found = summarizer.hypotheses(group.lines, first=group.first)
        lines = [" ".join(summaries[0].summary) for summaries in found]
        if args.json:
            lines = [as_json(summaries, args.nbest) for summaries in found]
        best = [(number, each[0]) for number, each in enumerate(found, group.first + 1)]
        notes = {
            cut: [number for number, each in best if each.read < each.subwords],
            stopped: [number for number, each in best if not each.complete],
        }
        return Result(lines, notes)

    return summarize


@command
def main(args: Summarize) -> int:
    _lines.check_files(args)
    return _lines.convert(args, functools.partial(load, args), "summarized", "documents")
