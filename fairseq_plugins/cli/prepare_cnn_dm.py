"""Prepare CNN/DailyMail from its original archives.

    fairseq-plugins prepare-cnn-dm DIR
    fairseq-plugins prepare-cnn-dm DIR --stories cnn_stories.tgz dailymail_stories.tgz
    fairseq-plugins prepare-cnn-dm DIR --stories sample.tgz \\
        --split-ids train.txt val.txt test.txt

Without --stories, both archives (534 MB) are downloaded; without --split-ids, the published lists
of URLs in each split. Size and SHA-256 are checked. Archives are not unpacked to disk. Stories that
cannot be used are skipped; removed.txt in DIR gives the reasons.

Until all is done, DIR is named DIR.part. A rerun resumes a download, and starts all else anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data import cnn_dm
from fairseq_plugins.data.pipeline import parse_counts, prepare_folder
from fairseq_plugins.data.readers import SPLITS
from fairseq_plugins.data.report import show
from fairseq_plugins.data.summarization import (
    Documents,
    SubwordsOfDocuments,
    summarization_settings,
)
from fairseq_plugins.files import digest
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import argument, option


@dataclass
class PrepareCnnDm(SubwordsOfDocuments, Command):
    """The options of the command."""

    destination: Path = argument("the folder to write", "DIR")
    stories: Sequence[Path] | None = option(
        None, "tar archives of .story files to read instead of downloading", metavar="ARCHIVE"
    )
    split_ids: Sequence[Path] | None = option(
        None, "files that name the stories of each split, by id (the SHA-1 of the URL) or URL",
        nargs=3, metavar=("TRAIN", "VALID", "TEST"),
    )  # fmt: skip
    expect: str | None = option(
        None, "the expected numbers of documents (default: {train},{valid},{test}; with "
        "--split-ids, all listed ones that are not empty)".format(**cnn_dm.DOCUMENTS),
        metavar="TRAIN,VALID,TEST|any",
    )  # fmt: skip


@command
def main(args: PrepareCnnDm) -> None:
    needs_fairseq("prepare-cnn-dm")
    settings = summarization_settings(args)
    expected = None if args.split_ids else cnn_dm.DOCUMENTS
    if args.expect is not None:
        expected = parse_counts("--expect", args.expect)
    files = {"stories": args.stories, "split_ids": args.split_ids}
    inputs = {name: [digest(path) for path in paths] for name, paths in files.items() if paths}
    settings.update(add_full_stops=True, drop_prefix=False, expect=args.expect, inputs=inputs)
    given: Any = {"stories": args.stories, "split_ids": args.split_ids, "expect": args.expect}
    corpus, task = partial(cnn_dm.read, **given), Documents(settings, SPLITS)
    how: Any = {"keep": [cnn_dm.DOWNLOADS], "expected": expected}
    prepare_folder(args.destination, task, corpus, args.workers, **how)
    show(args.destination)
