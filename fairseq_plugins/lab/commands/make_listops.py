"""Write a ListOps corpus like that of the Long-Range Arena.

    fairseq-plugins make-listops DIR
    fairseq-plugins make-listops DIR --train 4000 --held-out 500 --min-length 20 \\
        --max-length 100                      # a smaller and easier one

Each line of train.tsv, valid.tsv and test.tsv has a value, a tab and an expression, such as
9 <TAB> [MAX 2 9 [MIN 4 7 ] 0 ], for prepare-classification --words. No expression occurs twice. The
same arguments give the same bytes with every Python. Files that exist are not replaced.
"""

from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.errors import check_range
from fairseq_plugins.lab.corpora import Seeded, check_new, listops, sizes_of
from fairseq_plugins.options.arguments import command
from fairseq_plugins.options.fields import argument, option

SHAPE = listops.Shape()


@dataclass
class MakeListops(Seeded):
    """The options of the command."""

    folder: Path = argument("the folder to write", "DIR")
    train: int = option(96000, "the number of training expressions", least=1)
    held_out: int = option(2000, "how many are for validation, and for testing", least=1)
    min_length: int = option(SHAPE.min_length, "every expression has more than N words", least=0)
    max_length: int = option(SHAPE.max_length, "every expression has fewer than N words", least=1)
    max_depth: int = option(SHAPE.max_depth, "how deep a tree is at most, with its digits", least=2)
    max_args: int = option(SHAPE.max_args, "how many arguments an operation has at most", least=2)


@command
def main(args: MakeListops) -> None:
    check_range("--max-length", args.max_length, args.min_length + 2)
    given = {name: value for name, value in vars(args).items() if name in SHAPE._fields}
    shape, sizes = SHAPE._replace(**given), sizes_of(args)
    check_new(args.folder, [f"{split}.tsv" for split in sizes])
    listops.write(args.folder, args.seed, sizes, shape)
    counts = ", ".join(f"{size:,} {split}" for split, size in sizes.items())
    print(f"wrote {counts} expressions to {args.folder}")
