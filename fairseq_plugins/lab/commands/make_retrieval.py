"""Write made-up pairs of texts for the Long-Range Arena's Retrieval.

    fairseq-plugins make-retrieval DIR --train 4000 --held-out 500 --words 20
    fairseq-plugins prepare-retrieval DATA DIR

The label says whether both texts are of one field, whose words have syllables of their own. It is
not the benchmark's corpus: results do not compare with published ones. The same arguments give the
same bytes. Files that exist are not replaced.
"""

from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.lab.corpora import add_seed, check_new, retrieval, sizes_of
from fairseq_plugins.options.arguments import add_number, parser_of


def main(argv: Sequence[str]) -> int:
    parser = parser_of("make-retrieval", __doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="output folder")
    add_number(parser, "--train", "training pairs", 147086, least=2)
    add_number(
        parser, "--held-out", "pairs in the validation set, and in the test set", 17437, least=2
    )
    add_number(parser, "--words", "words of each text", 1000)
    add_seed(parser, "set of texts")
    args = parser.parse_args(argv)
    check_new(args.folder, retrieval.NAMES.values())
    retrieval.write_made_up(args.folder, sizes_of(args), args.words, args.seed)
    print(f"wrote {args.train:,} / {args.held_out:,} / {args.held_out:,} pairs to {args.folder}")
    return 0
