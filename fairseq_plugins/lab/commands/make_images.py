"""Draw synthetic images in CIFAR-10's format, for the Long-Range Arena.

    fairseq-plugins make-images DIR --images 60000
    fairseq-plugins make-images DIR --images 6000 --plain     # easier ones
    fairseq-plugins prepare-images DATA DIR/made-up-binary.tar.gz

Each shows one of ten shapes; the classes have CIFAR-10's names, in its order. They are not the
benchmark's images: results do not compare with published ones. The same arguments give the same
images. A file that exists is not replaced.
"""

from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.lab.corpora import Seeded, check_new, shapes
from fairseq_plugins.options.arguments import command
from fairseq_plugins.options.fields import argument, option

NAME = "made-up-binary.tar.gz"


@dataclass
class MakeImages(Seeded):
    """The options of the command."""

    folder: Path = argument("the folder to write", "DIR")
    images: int = option(60000, "the number of images, a sixth of them for the test set", least=60)
    plain: bool = option(False, "draw upright shapes, black on white, without noise")


@command
def main(args: MakeImages) -> None:
    check_new(args.folder, [NAME])
    args.folder.mkdir(parents=True, exist_ok=True)
    shapes.write(args.folder / NAME, args.images, args.seed, args.plain)
    print(f"drew {args.images:,} images in {args.folder / NAME}")
