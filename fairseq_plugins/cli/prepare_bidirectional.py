"""Join both directions of a prepared language pair, for pre-training.

Train on both directions first and then on the pair: the model sees twice the data.

    fairseq-plugins prepare-translation data/pair ...
    fairseq-plugins prepare-bidirectional data/pair data/both
    fairseq-plugins train transformer_ftc data/both --save-dir runs/both \\
        -- --share-all-embeddings
    fairseq-plugins train transformer_ftc data/pair --save-dir runs/pair \\
        -- --share-all-embeddings --finetune-from-model runs/both/checkpoint_best.pt

The second training starts from the parameters only, with a new optimizer and learning rate. Rerun
either command to resume it.
"""

from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data.bidirectional import join_directions
from fairseq_plugins.errors import counted
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import argument


@dataclass
class PrepareBidirectional(Command):
    """The options of the command."""

    pair: Path = argument(
        "a folder that was prepared with one dictionary for both languages", "PAIR"
    )
    destination: Path = argument("the folder to write", "DIR")


@command
def main(args: PrepareBidirectional) -> None:
    needs_fairseq("prepare-bidirectional")
    pairs = join_directions(args.pair, args.destination)
    splits = ", ".join(f"{counted(number, 'pairs')} in {split}" for split, number in pairs.items())
    print(f"{args.destination} is ready for fairseq-train, with both directions: {splits}")
