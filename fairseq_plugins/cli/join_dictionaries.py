"""Join the two dictionaries of a prepared pair, for recipes that share one.

    fairseq-plugins join-dictionaries data/pair data/pair-joined
    fairseq-plugins train transformer_ftc data/pair-joined --settings reduced_cpu

`--share-all-embeddings`, `--copy-attention` and the small settings need one dictionary for both
languages. The new folder has the same text and subwords under other numbers, so a model that was
trained on the old one does not fit it.
"""

from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import argument


@dataclass
class JoinDictionaries(Command):
    """The options of the command."""

    pair: Path = argument("a prepared folder with two dictionaries", "DATA")
    destination: Path = argument("the folder to write", "OUT")


@command
def main(args: JoinDictionaries) -> None:
    needs_fairseq("join-dictionaries")
    from fairseq_plugins.data.joined_dictionaries import join_dictionaries

    types = join_dictionaries(args.pair, args.destination)
    print(f"{args.destination} is ready for training, with one dictionary of {types:,} types")
