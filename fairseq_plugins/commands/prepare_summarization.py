"""Prepare documents with summaries, from text or JSON lines.

    python -m fairseq_plugins prepare-summarization DIR --train text/train --valid text/valid
    python -m fairseq_plugins prepare-summarization DIR \\
        --train train.txt --valid val.txt --test test.txt --fields article_text abstract_text

text/train stands for two files, text/train.source and text/train.target, aligned by line. A name of
an existing file is JSON lines: two fields of each, article and highlights if --fields does not name
others, are text or a list of sentences (as in PubMed and arXiv). Sentences of a summary are
separated by new lines or <q>, or are elements of the list; --split-sentences finds more.

A document that cannot be used is left out, and left_out.txt in DIR says why.

Rerun to resume. Until all is done, DIR is named DIR.part.
"""

import argparse
from pathlib import Path
from typing import Optional, Sequence

from fairseq_plugins.preparation.documents import SPLITS, find_files, read_files
from fairseq_plugins.preparation.steps import Preparation
from fairseq_plugins.preparation.summarization import (
    add_options,
    prepare,
    show,
    summarization_settings,
)


def read_arguments(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugins prepare-summarization",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("destination", type=Path, metavar="DIR", help="folder to be made")
    for split in SPLITS:
        parser.add_argument(
            "--" + split, type=Path, required=split != "test", metavar="PREFIX|FILE"
        )
    parser.add_argument(
        "--fields",
        nargs=2,
        default=["article", "highlights"],
        metavar=("DOCUMENT", "SUMMARY"),
        help="of JSON lines (%(default)s)",
    )
    parser.add_argument(
        "--split-sentences",
        action="store_true",
        help="also end sentences of summaries at punctuation",
    )
    add_options(parser)
    return parser.parse_args(argv)


def main(argv: Optional[Sequence[str]] = None) -> int:
    args = read_arguments(argv)
    inputs = {split: getattr(args, split) for split in SPLITS if getattr(args, split) is not None}
    settings = {
        **summarization_settings(args),
        "fields": args.fields,
        "split_sentences": args.split_sentences,
        "inputs": find_files(inputs),
    }
    with Preparation(args.destination, settings) as preparation:
        if not preparation.finished:
            how = (args.fields, args.split_sentences, args.workers)
            found = preparation.step("read documents", read_files, preparation.folder, inputs, *how)
            prepare(preparation, found, args.workers)
    show(args.destination)
    return 0
