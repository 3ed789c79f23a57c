"""Write a ListOps corpus like that of the Long-Range Arena.

    fairseq-plugins make-listops DIR
    fairseq-plugins make-listops DIR --train 4000 --held-out 500 --min-length 20 \\
        --max-length 100                      # a smaller and easier one

writes train.tsv, valid.tsv and test.tsv with a value, a tab and an expression in each line, such as
9 <TAB> [MAX 2 9 [MIN 4 7 ] 0 ], for prepare-classification --words. No expression occurs twice. The
same arguments give the same bytes with every Python. Files that exist are not replaced.
"""

from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.errors import check_range
from fairseq_plugins.lab import listops
from fairseq_plugins.lab.corpora import add_seed, check_new, sizes_of
from fairseq_plugins.options.arguments import add_number, parser_of


def main(argv: Sequence[str]) -> int:
    parser = parser_of("make-listops", __doc__)
    shape = listops.Shape()
    parser.add_argument("folder", type=Path, metavar="DIR", help="output folder")
    add_number(parser, "--train", "training expressions", 96000)
    add_number(parser, "--held-out", "expressions in the validation set, and in the test set", 2000)
    more, fewer = (f"every expression has {word} words than this" for word in ("more", "fewer"))
    add_number(parser, "--min-length", more, shape.min_length, least=0)
    add_number(parser, "--max-length", fewer, shape.max_length)
    depth = "maximum depth of the expression tree, including the digits"
    add_number(parser, "--max-depth", depth, shape.max_depth, least=2)
    arguments = "maximum number of arguments of an operation"
    add_number(parser, "--max-args", arguments, shape.max_args, least=2)
    add_seed(parser, "corpus")
    args = parser.parse_args(argv)
    check_range("--max-length", args.max_length, args.min_length + 2)
    given = {name: value for name, value in vars(args).items() if name in shape._fields}
    shape, sizes = shape._replace(**given), sizes_of(args)
    check_new(args.folder, [f"{split}.tsv" for split in sizes])
    listops.write(args.folder, args.seed, sizes, shape)
    counts = ", ".join(f"{size:,} {split}" for split, size in sizes.items())
    print(f"wrote {counts} expressions to {args.folder}")
    return 0
