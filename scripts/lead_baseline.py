#!/usr/bin/env python3
"""ROUGE of the first sentences of each document: the baseline that a summarizer has to beat.

    python scripts/lead_baseline.py test.source test.target
    python scripts/lead_baseline.py --stories cnn_stories.tgz --ids test_ids.txt --stemmer

Sources are one document a line, their sentences found by punctuation. Targets are one summary a
line with <q> between sentences. Stemming is what published figures have (CNN, three sentences:
29.1 / 11.1 / 25.9 for ROUGE-1, 2 and Lsum; whole CNN/DailyMail 40.34 / 17.70 / 36.57).
"""

import argparse
import sys
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairseq_plugins.errors import ConfigurationError  # noqa: E402
from fairseq_plugins.preparation.sentences import (  # noqa: E402
    join_sentences,
    separate_sentences,
    split_sentences,
)
from fairseq_plugins.preparation.stories import read_ids, read_stories  # noqa: E402
from fairseq_plugins.scoring.rouge import available_workers, rouge  # noqa: E402


def lead(document: str, sentences: int) -> str:
    """The first sentences of a document, as a summary in one line."""
    found: List[str] = []
    for part in separate_sentences(document):
        found += split_sentences(part)
        if len(found) >= sentences:
            break
    return join_sentences(found[:sentences])


def read_lines(path: Path) -> List[str]:
    try:
        with open(path, encoding="utf-8", newline="\n") as lines:
            return [line.rstrip("\n") for line in lines]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from None


def read_documents(args: argparse.Namespace) -> Tuple[List[str], List[str]]:
    """Sources and targets, from the two files or from the archives."""
    if args.stories:
        ids = set(read_ids(args.ids)) if args.ids else None
        sources, targets, broken = [], [], 0
        for story in read_stories(args.stories):
            if ids is not None and story.id not in ids:
                continue
            if story.problem:
                broken += 1
                continue
            sources.append("\n".join(story.article))
            targets.append(join_sentences(story.highlights))
        if broken:
            print(f"{broken} empty or broken stories are left out", file=sys.stderr)
        return sources, targets
    sources, targets = read_lines(args.source), read_lines(args.target)
    if len(sources) != len(targets):
        raise ConfigurationError(
            f"{args.source} has {len(sources):,} lines and {args.target} {len(targets):,}: they "
            "must be aligned line by line"
        )
    return sources, targets


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, nargs="?", help="documents, one a line")
    parser.add_argument("target", type=Path, nargs="?", help="summaries, one a line")
    parser.add_argument("--stories", type=Path, nargs="+", metavar="ARCHIVE", help="story archives")
    parser.add_argument("--ids", type=Path, help="the stories to score, one a line (default: all)")
    parser.add_argument("--sentences", type=int, default=3, help="how many to take (default: 3)")
    parser.add_argument("--stemmer", action="store_true", help="Porter's, as in published figures")
    parser.add_argument("--workers", type=int, default=0, help="processes (default: 0, all)")
    args = parser.parse_args(argv)
    if bool(args.stories) == bool(args.source) or bool(args.source) != bool(args.target):
        parser.error("give SOURCE and TARGET, or --stories")
    if args.ids and not args.stories:
        parser.error("--ids selects among --stories")
    if args.sentences < 1:
        parser.error(f"--sentences {args.sentences}: at least 1")
    if args.workers < 0:
        parser.error(f"--workers {args.workers}: at least 1, or 0 for all processors")
    try:
        sources, targets = read_documents(args)
        summaries = [lead(source, args.sentences) for source in sources]
        result = rouge(
            targets,
            summaries,
            stemmer=args.stemmer,
            workers=available_workers(args.workers),
            show_progress=True,
        )
    except ConfigurationError as error:
        raise SystemExit(f"lead_baseline: {error}") from None
    print(f"Lead-{args.sentences} of {len(sources):,} documents: {result.table()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
