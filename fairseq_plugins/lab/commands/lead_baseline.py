"""Score the first sentences of each document: the summarization baseline.

    fairseq-plugins lead-baseline test.source test.target
    fairseq-plugins lead-baseline --stories cnn_stories.tgz --ids test_ids.txt --stemmer

Sources have one document per line, which is split into sentences at punctuation. Targets have one
summary per line, with <q> between sentences. Published figures use stemming, and their ROUGE-L is
our Lsum (CNN, three sentences: 29.1 / 11.1 / 25.9; whole CNN/DailyMail: 40.34 / 17.70 / 36.57).
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import read_pairs
from fairseq_plugins.lab.lead import TextRank, draw, lead, oracle, read_archives
from fairseq_plugins.options.arguments import add_count, add_flag, add_number, add_path, parser_of


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("lead-baseline", __doc__)
    parser.add_argument("source", type=Path, nargs="?", help="a file with one document per line")
    parser.add_argument("target", type=Path, nargs="?", help="a file with one summary per line")
    add_path(parser, "--stories", "ARCHIVE", "tar archives of .story files", nargs="+")
    add_path(
        parser, "--ids", "FILE", "a file with the ids of the stories to score, one per line "
        "(default: all)",
    )  # fmt: skip
    add_number(parser, "--sentences", "number of first sentences to take", 3)
    add_flag(
        parser, "--all", "also score fewer first sentences, random ones, TextRank's (needs sumy), "
        "and the oracle's, which match the summary best",
    )  # fmt: skip
    add_flag(parser, "--stemmer", "strip suffixes with Porter's stemmer, as in published figures")
    add_flag(
        parser, "--unicode", "count words of any script (default: letters a to z and digits make "
        "words)",
    )  # fmt: skip
    add_count(parser, "--workers", "number of processes; 0 for one per core", 0, least=0)
    args = parser.parse_args(argv)
    if bool(args.stories) == bool(args.source) or bool(args.source) != bool(args.target):
        raise ConfigurationError("give SOURCE and TARGET, or --stories")
    if args.ids and not args.stories:
        raise ConfigurationError(f"--ids {args.ids} selects among --stories: add them")
    return args


def main(argv: Sequence[str]) -> int:
    args = read_arguments(argv)
    needs_fairseq("lead-baseline")
    from fairseq_plugins.scoring.rouge import rouge, tokenizer_of

    tokenizer_of(args.stemmer, args.unicode)  # refuses both
    text_rank = TextRank() if args.all else None
    if args.stories:
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
    return 0
