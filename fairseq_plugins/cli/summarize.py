"""Summarize raw text: one document per line in, one summary per line out.

    python -m fairseq_plugins summarize --model runs/fastformer_copy_cnn_dm < in.txt > out.txt
    python -m fairseq_plugins summarize --model runs/fastformer_copy_cnn_dm --json < in.txt
    python -m fairseq_plugins summarize --model runs/fastformer_copy_cnn_dm --documents *.txt

Documents are split into subwords as in the prepared folder that the model was trained on. Lines
keep their order, and empty lines stay empty. The end of a document longer than the model's limit is
ignored; a message at the end counts such documents. BART's settings for CNN/DailyMail are --lenpen
2.0 --min-len 55 --max-len 140. --model also takes the output of the command `export`, which needs
neither torch nor fairseq.

The JSON object of --json has `summary` (a list of sentences), `pieces` (the number of the
document's subwords), `read` (how many of them the model read), `complete` (false if the summary
was stopped at --max-len) and `score`. With --nbest it also has `summaries`, a list of such objects
with the best first. For a model with --copy-attention, `copied` has for each subword of the summary
the index, from 0, of the subword of the document that it copies, or null.
"""

import functools
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.api import FOR_TRANSLATION, Summarizer
from fairseq_plugins.cli import _lines
from fairseq_plugins.cli._lines import TextOut, first_ten
from fairseq_plugins.options.arguments import command
from fairseq_plugins.options.fields import option, with_default
from fairseq_plugins.search.text import LONGEST, Summary


@dataclass
class Summarize(TextOut):
    """The options of the command."""

    documents: Sequence[Path] = option(
        (), "files to read instead of --input, each as one document", metavar="FILE"
    )
    buffer: int = with_default(TextOut, "buffer", 500)
    max_len: int | None = option(
        None,
        f"the maximum length of a summary in subwords (default: {LONGEST}, or the model's limit)",
        least=1,
    )
    no_repeat_ngram: int = with_default(TextOut, "no_repeat_ngram", 3)


class Notes:
    """Numbers (from 1) of documents that were truncated, and of summaries that may be."""

    def __init__(self) -> None:
        self.documents = 0
        self.cut: list[int] = []
        self.pieces_not_read = 0
        self.stopped: list[int] = []

    def add(self, summary: Summary) -> None:
        self.documents += 1
        if summary.read < summary.pieces:
            self.cut.append(self.documents)
            self.pieces_not_read += summary.pieces - summary.read
        if not summary.complete:
            self.stopped.append(self.documents)


def as_object(summary: Summary) -> dict[str, Any]:
    """Without `copied` if it is unknown."""
    return {name: value for name, value in summary._asdict().items() if value is not None}


def as_json(summaries: list[Summary], nbest: int) -> str:
    """The line of `--json` for a document: its best summary, and all of them with --nbest."""
    best = as_object(summaries[0])
    if nbest > 1:
        best["summaries"] = list(map(as_object, summaries))
    return json.dumps(best, ensure_ascii=False)


class Done(NamedTuple):
    """The best summaries of some documents, their lines, and what is known of the model."""

    summaries: list[Summary]
    lines: list[str]
    max_source: int
    max_length: int
    remarks: list[str]  # to tell once


def load(args: Summarize) -> Callable[[tuple[list[str], int]], Done]:
    """Load the model; returns what summarizes documents, with the number of the first."""
    options = args.of_model()
    least = options.pop("min_len")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", FOR_TRANSLATION)  # a remark below, told once
        summarizer = Summarizer(args.model, min_length=least, max_length=args.max_len, **options)
    summarizer.wants_copied = args.json
    remarks = []
    if not summarizer.processor.for_summaries:
        remarks.append(FOR_TRANSLATION + "the command translate")
    longest = summarizer.max_length(summarizer.max_source)

    def summarize(batch: tuple[list[str], int]) -> Done:
        documents, first = batch
        found = summarizer.hypotheses(documents, first=first)
        best = [summaries[0] for summaries in found]
        lines = [" ".join(summary.summary) for summary in best]
        if args.json:
            lines = [as_json(summaries, args.nbest) for summaries in found]
        return Done(best, lines, summarizer.max_source, longest, remarks)

    return summarize


@command
def main(args: Summarize) -> int:
    _lines.check_files(args)
    notes, read, done = Notes(), 0, Done([], [], 0, 0, [])

    def numbered(documents: list[str]) -> tuple[list[str], int]:
        nonlocal read
        first, read = read, read + len(documents)
        return documents, first

    def run(batches: Iterator[list[str]]) -> Iterator[list[str]]:
        nonlocal done
        begin = functools.partial(load, args)
        for done in _lines.in_processes(args, begin, map(numbered, batches)):
            for remark in done.remarks if notes.documents == 0 else ():
                print(remark, file=sys.stderr)
            for summary in done.summaries:
                notes.add(summary)
            yield done.lines

    with _lines.own_output(args.output) as out:
        status = _lines.convert(args, run, out, "summarized", "documents")
    if status is None:
        return 1
    if notes.cut:
        print(
            f"{len(notes.cut):,} of {notes.documents:,} document(s) are longer than "
            f"{done.max_source:,} subwords, which is what the model reads: "
            f"{notes.pieces_not_read:,} subwords at their ends were not read; number "
            + first_ten(notes.cut),
            file=sys.stderr,
        )
    if notes.stopped:
        print(
            f"the summary of {len(notes.stopped):,} document(s) reached {done.max_length} subwords "
            f"(--max-len) and may be cut off: number {first_ten(notes.stopped)}",
            file=sys.stderr,
        )
    return status
