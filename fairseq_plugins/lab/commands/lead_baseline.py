"""Score the first sentences of each document: the summarization baseline.

    fairseq-plugins lead-baseline test.source test.target
    fairseq-plugins lead-baseline --stories cnn_stories.tgz --ids test_ids.txt --stemmer

Sources have one document per line, which is split into sentences at punctuation. Targets have one
summary per line, with <q> between sentences. Published figures use stemming, and their ROUGE-L is
our Lsum (CNN, three sentences: 29.1 / 11.1 / 25.9; whole CNN/DailyMail: 40.34 / 17.70 / 36.57).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import read_pairs
from fairseq_plugins.lab.lead import TextRank, draw, lead, oracle, read_archives
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import MOST, option


@dataclass
class LeadBaseline(Command):
    """The options of the command."""

    source: Path | None = option(
        None, "a file with one document per line", metavar="SOURCE", positional=True, nargs="?"
    )
    target: Path | None = option(
        None, "a file with one summary per line", metavar="TARGET", positional=True, nargs="?"
    )
    stories: Sequence[Path] = option((), "tar archives of .story files", metavar="ARCHIVE")
    ids: Path | None = option(
        None, "a file with the ids of the stories to score, one per line (default: all)",
        metavar="FILE", needs="stories",
    )  # fmt: skip
    sentences: int = option(3, "the number of first sentences to take", least=1)
    all: bool = option(
        False, "also score fewer first sentences, random ones, TextRank's (needs sumy), and the "
        "oracle's, which match the summary best",
    )  # fmt: skip
    stemmer: bool = option(False, "strip suffixes with Porter's stemmer, as in published figures")
    unicode: bool = option(False, "count words of any script (default: letters a to z and digits)")
    workers: int = option(0, "the number of processes; 0 means one per core", least=0, most=MOST)

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.stories) == bool(self.source) or bool(self.source) != bool(self.target):
            raise ConfigurationError("give SOURCE and TARGET, or --stories")


@command
def main(args: LeadBaseline) -> None:
    needs_fairseq("lead-baseline")
    from fairseq_plugins.scoring.rouge import rouge, tokenizer_of

    tokenizer_of(args.stemmer, args.unicode)  # refuses both
    text_rank = TextRank() if args.all else None
    if args.source is None or args.target is None:
        sources, targets = read_archives(args.stories, args.ids)
    else:
        pairs = list(read_pairs(args.source, args.target))
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    rows = {f"Lead-{args.sentences}": [lead(source, args.sentences) for source in sources]}
    if text_rank is not None:
        counts = range(1, args.sentences)
        fewer = {f"Lead-{n}": [lead(source, n) for source in sources] for n in counts}
        generator, count = random.Random(1), args.sentences
        rows = {
            **fewer,
            **rows,
            f"Random-{count}": [draw(source, count, generator) for source in sources],
            f"TextRank-{count}": [text_rank(source, count) for source in sources],
            f"Oracle-{count}": [
                oracle(*pair, count, args.stemmer, args.unicode) for pair in zip(sources, targets)
            ],
        }
    for name, summaries in rows.items():
        result = rouge(targets, summaries, args.stemmer, args.unicode, args.workers)
        print(f"{name} of {len(sources):,} documents: {result.table()}")
