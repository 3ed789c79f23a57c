"""Write made-up pairs of texts for the Long-Range Arena's Retrieval.

    python -m fairseq_plugins make-retrieval DIR --train 4000 --held-out 500 --words 20
    python -m fairseq_plugins prepare-retrieval DATA DIR

The label says whether both texts are of one field, whose words have syllables of their own. It is
not the benchmark's corpus: results do not compare with published ones. The same arguments give the
same bytes. Files that exist are not replaced.
"""

import argparse
from pathlib import Path
from typing import Sequence

from fairseq_plugins.errors import check_least
from fairseq_plugins.files import check_new
from fairseq_plugins.lab.corpora import retrieval


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugins make-retrieval",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="output folder")
    for option, default, text in (
        ("--train", 147086, "training pairs"),
        ("--held-out", 17437, "pairs in each of valid and test"),
        ("--words", 1000, "words of each text"),
        ("--seed", 1, "random seed; another seed gives other texts"),
    ):
        parser.add_argument(
            option, type=int, default=default, metavar="N", help=f"{text} (default: %(default)s)"
        )
    args = parser.parse_args(argv)
    check_least(args, train=2, held_out=2, words=1)
    check_new(args.folder, retrieval.NAMES.values())
    sizes = {"train": args.train, "valid": args.held_out, "test": args.held_out}
    retrieval.write_made_up(args.folder, sizes, args.words, args.seed)
    print(f"wrote {args.train:,} / {args.held_out:,} / {args.held_out:,} pairs to {args.folder}")
    return 0
