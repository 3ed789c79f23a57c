"""Prepare Amazon's reviews of electronics with their five ratings.

    fairseq-plugins prepare-amazon DIR reviews_Electronics_5.json.gz
    fairseq-plugins train amazon DIR

A random sample has the paper's sizes. Which file the paper sampled is not known: the 5-core one is
an assumption. A line that cannot be used is skipped, and removed.txt in DIR gives the reason.

Until all is done, DIR is named DIR.part, and a rerun starts anew.
"""

from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data.classification import Units, classification_settings, units_of
from fairseq_plugins.files import digest
from fairseq_plugins.lab import corpora
from fairseq_plugins.lab.corpora import amazon
from fairseq_plugins.options.arguments import command
from fairseq_plugins.options.fields import argument, with_default


@dataclass
class PrepareAmazon(Units, corpora.Sample):
    """The options of the command."""

    destination: Path = argument("the folder to write", "DIR")
    reviews: Path = argument("the file of JSON lines, compressed or not", "FILE")
    train: int = with_default(corpora.Sample, "train", 40000)
    held_out: int = with_default(corpora.Sample, "held_out", 5000)


@command
def main(args: PrepareAmazon) -> None:
    needs_fairseq("prepare-amazon")
    settings = classification_settings(args, units_of(args))
    settings["inputs"] = digest(args.reviews)
    corpora.prepare_sample(args, settings, lambda: amazon.reviews(args.reviews, args.workers))
