"""Draw made-up images in CIFAR-10's format, for the Long-Range Arena.

    fairseq-plugins make-images DIR --images 60000
    fairseq-plugins make-images DIR --images 6000 --plain     # easier ones
    fairseq-plugins prepare-images DATA DIR/made-up-binary.tar.gz

Each shows one of ten shapes; the classes have CIFAR-10's names, in its order. They are not the
benchmark's images: results do not compare with published ones. The same arguments give the same
images. A file that exists is not replaced.
"""

from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.lab.corpora import add_seed, check_new, shapes
from fairseq_plugins.options.arguments import add_flag, add_number, parser_of

NAME = "made-up-binary.tar.gz"


def main(argv: Sequence[str]) -> int:
    parser = parser_of("make-images", __doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="output folder")
    add_number(parser, "--images", "images, a sixth of them for the test set", 60000, least=60)
    add_seed(parser, "set of images")
    add_flag(parser, "--plain", "draw upright shapes, black on white, without noise")
    args = parser.parse_args(argv)
    check_new(args.folder, [NAME])
    args.folder.mkdir(parents=True, exist_ok=True)
    shapes.write(args.folder / NAME, args.images, args.seed, args.plain)
    print(f"drew {args.images:,} images in {args.folder / NAME}")
    return 0
