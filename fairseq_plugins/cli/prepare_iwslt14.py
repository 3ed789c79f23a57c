"""Prepare IWSLT'14 German-English from its original archive.

    python -m fairseq_plugins prepare-iwslt14 DIR

Tokenisation, cleaning and splits are those of fairseq's prepare-iwslt14.sh, for results comparable
with the papers.

Until all is done, DIR is named DIR.part. A rerun resumes a download, and starts all else anew.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data import iwslt14
from fairseq_plugins.data.cleaning import Limits
from fairseq_plugins.data.pipeline import parse_counts, prepare_folder
from fairseq_plugins.data.report import show
from fairseq_plugins.data.translation import Pairs, add_subword_options, subword_settings
from fairseq_plugins.options.arguments import add_path, parser_of
from fairseq_plugins.text.processing import NFC


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("prepare-iwslt14", __doc__)
    parser.add_argument("destination", type=Path, metavar="DIR", help="output folder")
    add_path(parser, "--archive", "FILE", "read this copy of de-en.tgz instead of downloading")
    parser.add_argument(
        "--expect-pairs",
        default=iwslt14.PAIRS,
        metavar="TRAIN,VALID,TEST",
        help="expected numbers of pairs, or 'any': other numbers than the default (%(default)s) "
        "allow another archive",
    )
    add_subword_options(parser, default="bpe")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    args = read_arguments(argv)
    needs_fairseq("prepare-iwslt14")
    expected = parse_counts("--expect-pairs", args.expect_pairs)
    original = args.expect_pairs == iwslt14.PAIRS
    settings: dict[str, Any] = {
        "corpus": "IWSLT'14 De-En",
        "archive": iwslt14.origin(args.archive, original),
        "source_lang": "de",
        "target_lang": "en",
        "tokenizer": "moses",
        "lowercase": True,
        "valid_every": iwslt14.VALID_EVERY,
        **Limits()._asdict(),
        **subword_settings(args),
        "normalization": NFC,
    }
    how: Any = {"expected": expected, "option": "--expect-pairs", "keep": [iwslt14.DOWNLOADS]}
    task, corpus = Pairs(settings, ("train", "test")), partial(iwslt14.read, given=args.archive)
    prepare_folder(args.destination, task, corpus, args.workers, **how)
    show(args.destination)
    return 0
