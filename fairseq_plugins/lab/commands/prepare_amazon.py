"""Prepare Amazon's reviews of electronics with their five ratings.

    fairseq-plugins prepare-amazon DIR reviews_Electronics_5.json.gz
    fairseq-plugins train amazon DIR

A random sample has the paper's sizes. Which file the paper sampled is not known: the 5-core one is
an assumption. A line that cannot be used is skipped, and removed.txt in DIR gives the reason.

Until all is done, DIR is named DIR.part, and a rerun starts anew.
"""

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
from fairseq_plugins.lab.corpora import amazon
from fairseq_plugins.options.arguments import add_fields, parser_of


def main(argv: Sequence[str]) -> int:
    parser = parser_of("prepare-amazon", __doc__)
    parser.add_argument("destination", type=Path, metavar="DIR", help="output folder")
    parser.add_argument("reviews", type=Path, metavar="FILE", help="JSON lines, compressed or not")
    corpora.add_sizes(parser, 40000, 5000)
    add_fields(parser, Units)
    args = parser.parse_args(argv)
    needs_fairseq("prepare-amazon")
    settings = classification_settings(args, units_of(args))
    settings["inputs"] = digest(args.reviews)
    corpora.prepare_sample(args, settings, lambda: amazon.reviews(args.reviews, args.workers))
    return 0
