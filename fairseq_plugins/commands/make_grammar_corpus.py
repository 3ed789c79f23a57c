"""Write a small German-English corpus, generated from a grammar.

    python -m fairseq_plugins make-grammar-corpus DIR

writes train.de train.en valid.de valid.en test.de test.en. No sentence of a split occurs in another
one. The same arguments give the same bytes with every Python. Files that exist are not replaced.
"""

import argparse
from pathlib import Path
from typing import Sequence

from fairseq_plugins.errors import check_least
from fairseq_plugins.files import check_new
from fairseq_plugins.preparation.grammar_corpus import draw, write


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugins make-grammar-corpus",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="output folder")
    parser.add_argument(
        "--pairs", type=int, default=10000, help="training pairs (default: %(default)s)"
    )
    parser.add_argument(
        "--held-out",
        type=int,
        default=500,
        help="pairs in each of valid and test (default: %(default)s)",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="random seed; another seed gives another corpus (default: 1)",
    )
    args = parser.parse_args(argv)
    check_least(args, pairs=1, held_out=1)
    sizes = {"train": args.pairs, "valid": args.held_out, "test": args.held_out}
    check_new(args.folder, [f"{split}.{side}" for split in sizes for side in ("de", "en")])
    write(args.folder, draw(args.seed, sizes))
    counts = ", ".join(f"{sizes[split]:,} {split}" for split in sizes)
    print(f"wrote {counts} pairs to {args.folder}")
    return 0
