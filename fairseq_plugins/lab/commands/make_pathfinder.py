"""Draw pictures like those of the Long-Range Arena's Pathfinder.

    fairseq-plugins make-pathfinder DIR --pictures 200000
    fairseq-plugins make-pathfinder DIR --pictures 5000 --dashes 6     # an easier one
    fairseq-plugins prepare-pathfinder DATA DIR

They are not the benchmark's pictures: results do not compare with published ones. The same
arguments give the same pictures. A folder that has some is not changed.
"""

from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.lab.corpora import add_seed, check_new, pathfinder
from fairseq_plugins.options.arguments import add_number, parser_of


def main(argv: Sequence[str]) -> int:
    parser = parser_of("make-pathfinder", __doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="output folder")
    add_number(parser, "--pictures", "number of pictures", 200000)
    dashes = "dashes of each of the two long paths; the others have a third"
    add_number(parser, "--dashes", dashes, 14, least=2)
    add_seed(parser, "set of pictures")
    args = parser.parse_args(argv)
    check_new(args.folder, ["metadata", "imgs"])
    pathfinder.write(args.folder, args.pictures, args.dashes, args.seed)
    print(f"drew {args.pictures:,} pictures in {args.folder}")
    return 0
