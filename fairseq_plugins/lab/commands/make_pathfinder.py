"""Draw pictures like those of the Long-Range Arena's Pathfinder.

    python -m fairseq_plugins make-pathfinder DIR --pictures 200000
    python -m fairseq_plugins make-pathfinder DIR --pictures 5000 --dashes 6     # an easier one
    python -m fairseq_plugins prepare-pathfinder DATA DIR

They are not the benchmark's pictures: results do not compare with published ones. The same
arguments give the same pictures. A folder that has some is not changed.
"""

import argparse
from pathlib import Path
from typing import Sequence

from fairseq_plugins.errors import check_least
from fairseq_plugins.files import check_new
from fairseq_plugins.lab.corpora import pathfinder


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugins make-pathfinder",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="output folder")
    for option, default, text in (
        ("--pictures", 200000, "number of pictures"),
        ("--dashes", 14, "dashes of each of the two long paths; the others have a third"),
        ("--seed", 1, "random seed; another seed gives other pictures"),
    ):
        parser.add_argument(
            option, type=int, default=default, metavar="N", help=f"{text} (default: %(default)s)"
        )
    args = parser.parse_args(argv)
    check_least(args, pictures=1, dashes=2)
    check_new(args.folder, ["metadata", "imgs"])
    pathfinder.write(args.folder, args.pictures, args.dashes, args.seed)
    print(f"drew {args.pictures:,} pictures in {args.folder}")
    return 0
