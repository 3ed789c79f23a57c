"""Write a ListOps corpus like that of the Long-Range Arena.

    python -m fairseq_plugins make-listops DIR
    python -m fairseq_plugins make-listops DIR --train 4000 --held-out 500 --min-length 20 \\
        --max-length 100                      # a smaller and easier one

writes train.tsv, valid.tsv and test.tsv with a value, a tab and an expression in each line, such as
9 <TAB> [MAX 2 9 [MIN 4 7 ] 0 ], for prepare-classification --words. No expression occurs twice. The
same arguments give the same bytes with every Python. Files that exist are not replaced.
"""

import argparse
from pathlib import Path
from typing import Sequence

from fairseq_plugins.errors import check_least, check_range
from fairseq_plugins.files import check_new
from fairseq_plugins.lab import listops


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugins make-listops",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shape = listops.Shape()
    parser.add_argument("folder", type=Path, metavar="DIR", help="output folder")
    for option, default, text in (
        ("--train", 96000, "training expressions"),
        ("--held-out", 2000, "expressions in each of valid and test"),
        ("--min-length", shape.min_length, "every expression has more words than this"),
        ("--max-length", shape.max_length, "every expression has fewer words than this"),
        (
            "--max-depth",
            shape.max_depth,
            "maximum depth of the expression tree, including the digits",
        ),
        ("--max-args", shape.max_args, "maximum number of arguments of an operation"),
        ("--seed", 1, "random seed; another seed gives another corpus"),
    ):
        parser.add_argument(
            option, type=int, default=default, metavar="N", help=f"{text} (default: %(default)s)"
        )
    args = parser.parse_args(argv)
    check_least(args, train=1, held_out=1, min_length=0, max_depth=2, max_args=2)
    check_range("--max-length", args.max_length, args.min_length + 2)
    shape = shape._replace(
        max_args=args.max_args,
        max_depth=args.max_depth,
        min_length=args.min_length,
        max_length=args.max_length,
    )
    sizes = {"train": args.train, "valid": args.held_out, "test": args.held_out}
    check_new(args.folder, [f"{split}.tsv" for split in sizes])
    listops.write(args.folder, args.seed, sizes, shape)
    counts = ", ".join(f"{size:,} {split}" for split, size in sizes.items())
    print(f"wrote {counts} expressions to {args.folder}")
    return 0
