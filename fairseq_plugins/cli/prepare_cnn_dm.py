"""Prepare CNN/DailyMail from its original archives.

    python -m fairseq_plugins prepare-cnn-dm DIR
    python -m fairseq_plugins prepare-cnn-dm DIR --stories cnn_stories.tgz dailymail_stories.tgz
    python -m fairseq_plugins prepare-cnn-dm DIR --stories sample.tgz \\
        --split-ids train.txt val.txt test.txt

Without --stories, both archives (534 MB) are downloaded; without --split-ids, the published lists
of URLs in each split. Size and SHA-256 are checked. Archives are not unpacked to disk. Stories that
cannot be used are skipped; left_out.txt in DIR says why.

Until all is done, DIR is named DIR.part. A rerun resumes a download, and starts all else anew.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data import cnn_dm
from fairseq_plugins.data.pipeline import parse_counts, prepare_folder
from fairseq_plugins.data.readers import SPLITS
from fairseq_plugins.data.report import show
from fairseq_plugins.data.summarization import Documents, add_options, summarization_settings
from fairseq_plugins.files import digest
from fairseq_plugins.options.arguments import add_path, parser_of


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("prepare-cnn-dm", __doc__)
    parser.add_argument("destination", type=Path, metavar="DIR", help="output folder")
    add_path(
        parser, "--stories", "ARCHIVE", "tar archives of .story files, instead of downloading",
        nargs="+",
    )  # fmt: skip
    add_path(
        parser, "--split-ids", ("TRAIN", "VALID", "TEST"), "files that name the stories of each "
        "split, by id (the SHA-1 of the URL) or URL", nargs=3,
    )  # fmt: skip
    parser.add_argument(
        "--expect",
        metavar="TRAIN,VALID,TEST|any",
        help="expected numbers of documents (default: {train},{valid},{test}; with --split-ids, "
        "all listed ones that are not empty)".format(**cnn_dm.DOCUMENTS),
    )
    add_options(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    args = read_arguments(argv)
    needs_fairseq("prepare-cnn-dm")
    settings = summarization_settings(args)
    expected = None if args.split_ids else cnn_dm.DOCUMENTS
    if args.expect is not None:
        expected = parse_counts("--expect", args.expect)
    files = {"stories": args.stories, "split_ids": args.split_ids}
    inputs = {name: [digest(path) for path in paths] for name, paths in files.items() if paths}
    settings.update(add_full_stops=True, drop_prefix=False, expect=args.expect, inputs=inputs)
    given = {"stories": args.stories, "split_ids": args.split_ids, "expect": args.expect}
    corpus, task = partial(cnn_dm.read, **given), Documents(settings, SPLITS)
    how: Any = {"keep": [cnn_dm.DOWNLOADS], "expected": expected}
    prepare_folder(args.destination, task, corpus, args.workers, **how)
    show(args.destination)
    return 0
