"""Prepare MIND: topics of news, or recommendation of news.

    fairseq-plugins prepare-mind topics DIR MINDlarge_train/news.tsv \\
        MINDlarge_dev/news.tsv
    fairseq-plugins prepare-mind recommendation DIR --train MINDlarge_train \\
        --test MINDlarge_dev

topics (Fastformer's table 4): title and abstract of each news, and its category. The paper's
texts are bodies (505 words), which the release lacks: only with --bodies do figures compare.

recommendation (table 5): titles, and for each impression of behaviors.tsv the news that the user
had clicked, was shown, and clicked. Every 50th impression of --train goes to valid. The labels of
MIND's own test set are not public: --test takes the dev set.

A line that cannot be used is skipped, and removed.txt in DIR gives the reason.

Until all is done, DIR is named DIR.part, and a rerun starts anew.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data.classification import (
    Units,
    classification_settings,
    units_of,
)
from fairseq_plugins.files import digest
from fairseq_plugins.lab import corpora
from fairseq_plugins.lab.corpora import mind
from fairseq_plugins.options.arguments import add_fields, add_number, add_path, parser_of
from fairseq_plugins.system.workers import Workers

NO_BODIES = (
    "Texts are titles and abstracts. The paper's have bodies, 505 words in the mean: compare the "
    "rows of a table here with each other, not with the paper's."
)


def prepare_topics(args: argparse.Namespace) -> None:
    settings = classification_settings(args, units_of(args))
    settings["inputs"] = [digest(path) for path in args.news]
    if args.bodies is not None:
        settings["bodies"] = digest(args.bodies)
    notes = [] if args.bodies else [NO_BODIES]
    corpora.prepare_sample(args, settings, lambda: mind.topics(args.news, args.bodies), notes=notes)


def prepare_recommendation(args: argparse.Namespace) -> None:
    from fairseq_plugins.lab.recommendation.preparation import prepare

    prepare(args.destination, args.train, args.test, args.valid_every, args.workers)


def main(argv: Sequence[str]) -> int:
    parser = parser_of("prepare-mind", __doc__)
    tasks = parser.add_subparsers(dest="task", required=True)
    topics = tasks.add_parser("topics", help="news and their categories")
    topics.add_argument("destination", type=Path, metavar="DIR", help="output folder")
    topics.add_argument("news", type=Path, nargs="+", metavar="NEWS", help="files news.tsv")
    add_path(topics, "--bodies", "FILE", "lines of ID, tab and body")
    corpora.add_sizes(topics, 128800, 16100)
    add_fields(topics, Units)
    topics.set_defaults(prepare=prepare_topics)
    clicks = tasks.add_parser("recommendation", help="users and the news that they clicked")
    clicks.add_argument("destination", type=Path, metavar="DIR", help="output folder")
    for option in ("--train", "--test"):
        add_path(clicks, option, "FOLDER", "news.tsv and behaviors.tsv", required=True)
    add_number(clicks, "--valid-every", "every Nth impression of --train goes to valid", 50, 2)
    add_fields(clicks, Workers)
    clicks.set_defaults(prepare=prepare_recommendation)
    args = parser.parse_args(argv)
    needs_fairseq("prepare-mind")
    args.prepare(args)
    return 0
