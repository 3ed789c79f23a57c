"""Prepare MIND: topics of news, or recommendation of news.

    fairseq-plugins prepare-mind topics DIR MINDlarge_train/news.tsv \\
        MINDlarge_dev/news.tsv
    fairseq-plugins prepare-mind recommendation DIR --train MINDlarge_train \\
        --test MINDlarge_dev

topics (Fastformer's table 4): title and abstract of each news, and its category. The paper's
texts are bodies (505 words), which the release lacks: only with --bodies do figures compare.

recommendation (table 5): titles, and for each impression of behaviors.tsv the news that the user
had clicked, was shown, and clicked. Every 50th impression of --train is for validation. The labels
of MIND's own test set are not public, so --test takes the dev set.

A line that cannot be used is skipped, and removed.txt in DIR gives the reason.

Until all is done, DIR is named DIR.part, and a rerun starts anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data.classification import Units, classification_settings, units_of
from fairseq_plugins.files import digest
from fairseq_plugins.lab import corpora
from fairseq_plugins.lab.corpora import mind
from fairseq_plugins.options.arguments import Command, read, subcommand
from fairseq_plugins.options.fields import REQUIRED, argument, option, with_default
from fairseq_plugins.system.workers import Workers

NO_BODIES = (
    "Texts are titles and abstracts. The paper's have bodies, 505 words in the mean: compare the "
    "rows of a table here with each other, not with the paper's."
)


NEWS = "news.tsv and behaviors.tsv"


@dataclass
class Topics(Units, corpora.Sample):
    """The options of the first task."""

    destination: Path = argument("the folder to write", "DIR")
    news: Sequence[Path] = argument("the files news.tsv", "NEWS")
    bodies: Path | None = option(None, "a file whose lines are ID, tab and body", metavar="FILE")
    train: int = with_default(corpora.Sample, "train", 128800)
    held_out: int = with_default(corpora.Sample, "held_out", 16100)


@dataclass
class Recommendation(Workers, Command):
    """The options of the second task."""

    destination: Path = argument("the folder to write", "DIR")
    train: Path = option(REQUIRED, NEWS, metavar="FOLDER")
    test: Path = option(REQUIRED, NEWS, metavar="FOLDER")
    valid_every: int = option(50, "take every Nth impression of --train for validation", least=2)


TASKS: dict[str, tuple[type[Command], str]] = {
    "topics": (Topics, "news and their categories"),
    "recommendation": (Recommendation, "users and the news that they clicked"),
}


def main(argv: Sequence[str]) -> int:
    about = {name: text for name, (_, text) in TASKS.items()}
    task = subcommand(argv, "prepare-mind", __doc__, about)
    args = read(TASKS[task][0], argv[1:], f"prepare-mind {task}", None)
    needs_fairseq("prepare-mind")
    if isinstance(args, Topics):
        settings = classification_settings(args, units_of(args))
        settings["inputs"] = [digest(path) for path in args.news]
        if args.bodies is not None:
            settings["bodies"] = digest(args.bodies)
        notes = [] if args.bodies else [NO_BODIES]
        corpora.prepare_sample(
            args, settings, lambda: mind.topics(args.news, args.bodies), notes=notes
        )
    elif isinstance(args, Recommendation):
        from fairseq_plugins.lab.recommendation.preparation import prepare

        prepare(args.destination, args.train, args.test, args.valid_every, args.workers)
    return 0
