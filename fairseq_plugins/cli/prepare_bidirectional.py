"""Join both directions of a prepared language pair, for pre-training.

Train on both directions first and then on the pair: the model sees twice the data.

    python -m fairseq_plugins prepare-translation data/pair ...
    python -m fairseq_plugins prepare-bidirectional data/pair data/both
    python -m fairseq_plugins train transformer_ftc data/both --save-dir runs/both \\
        -- --share-all-embeddings
    python -m fairseq_plugins train transformer_ftc data/pair --save-dir runs/pair \\
        -- --share-all-embeddings --finetune-from-model runs/both/checkpoint_best.pt

The second training starts from the parameters only, with a new optimizer and learning rate. Rerun
either command to resume it.
"""

from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data.bidirectional import join_directions
from fairseq_plugins.options.arguments import parser_of


def main(argv: Sequence[str]) -> int:
    parser = parser_of("prepare-bidirectional", __doc__)
    parser.add_argument(
        "pair", type=Path, help="folder prepared with one dictionary for both languages"
    )
    parser.add_argument("destination", type=Path, metavar="DIR", help="output folder")
    args = parser.parse_args(argv)
    needs_fairseq("prepare-bidirectional")
    pairs = join_directions(args.pair, args.destination)
    counted = ", ".join(f"{number:,} pairs in {split}" for split, number in pairs.items())
    print(f"{args.destination} is ready for fairseq-train, with both directions: {counted}")
    return 0
