#!/usr/bin/env python3
"""Summarize raw text: one document a line on standard input, one summary a line on standard output.

    python scripts/summarize.py --model checkpoints/fastformer < documents.txt > summaries.txt
    python scripts/summarize.py --model checkpoints/fastformer --json < documents.txt > out.jsonl

Documents are cut into subwords as the folder that the model was trained on says
(scripts/prepare_cnn_dm.py and prepare_summarization.py leave that there). Order is kept, and empty
lines stay empty. A document longer than the model can read is read up to there; how many there were
is told at the end. BART's summaries of CNN/DailyMail have --lenpen 2.0 --min-len 55 --max-len 140.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import List, Optional, Sequence

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import line_by_line  # noqa: E402
from line_by_line import positive, some  # noqa: E402

from fairseq_plugins.summarizer import LONGEST, Summarizer, Summary  # noqa: E402


def not_negative(text: str) -> int:
    """A whole number from 0 on, or argparse's error."""
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def read_arguments(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    line_by_line.add_options(parser, "summaries", "documents", buffer=500)
    parser.add_argument(
        "--min-len",
        type=positive,
        default=1,
        metavar="N",
        help="subwords of a summary at least (%(default)s)",
    )
    parser.add_argument(
        "--max-len",
        type=positive,
        metavar="N",
        help="at most ({}, or what the model can write)".format(LONGEST),
    )
    parser.add_argument(
        "--no-repeat-ngram-size",
        type=not_negative,
        default=3,
        metavar="N",
        help="no N subwords occur twice in a summary in the same order; 0 allows it (%(default)s)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="write one JSON object a document: the summary as a list of sentences, pieces (the "
        "subwords of the document), read (how many of them were), and complete (false where the "
        "summary was stopped at --max-len)",
    )
    return parser.parse_args(argv)


class Told:
    """Numbers (from 1) of the documents that there is something to tell of."""

    def __init__(self) -> None:
        self.documents = 0
        self.cut: List[int] = []
        self.pieces_not_read = 0
        self.stopped: List[int] = []

    def note(self, summary: Summary) -> None:
        self.documents += 1
        if summary.read < summary.pieces:
            self.cut.append(self.documents)
            self.pieces_not_read += summary.pieces - summary.read
        if not summary.complete:
            self.stopped.append(self.documents)


def main(argv: Optional[Sequence[str]] = None) -> int:
    args = read_arguments(argv)
    told = Told()
    with line_by_line.output_of_its_own() as out:
        summarizer = Summarizer(
            args.model,
            args.data,
            args.cpu,
            args.fp16,
            args.beam,
            args.lenpen,
            args.min_len,
            args.max_len,
            args.no_repeat_ngram_size,
            args.max_tokens,
            args.int8,
        )

        def summarize(documents: List[str]) -> List[str]:
            lines = []
            for summary in summarizer.summarize(documents):
                told.note(summary)
                lines.append(
                    json.dumps(summary._asdict(), ensure_ascii=False)
                    if args.json
                    else " ".join(summary.summary)
                )
            return lines

        whole = line_by_line.convert(summarize, out, args.buffer, "summarized", "documents")
    if not whole:
        return 1
    if told.cut:
        print(
            "{:,} of {:,} document(s) are longer than {:,} subwords, which is what the model "
            "reads: {:,} subwords at their ends were not read; number {}".format(
                len(told.cut),
                told.documents,
                summarizer.max_source,
                told.pieces_not_read,
                some(told.cut),
            ),
            file=sys.stderr,
        )
    if told.stopped:
        print(
            "{:,} summar(ies) did not end within {} subwords (--max-len) and may be cut off: "
            "number {}".format(
                len(told.stopped), summarizer.max_length(summarizer.max_source), some(told.stopped)
            ),
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
