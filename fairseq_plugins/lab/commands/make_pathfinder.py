"""Draw pictures like those of the Long-Range Arena's Pathfinder.

    fairseq-plugins make-pathfinder DIR --pictures 200000
    fairseq-plugins make-pathfinder DIR --pictures 5000 --dashes 6     # an easier one
    fairseq-plugins prepare-pathfinder DATA DIR

They are not the benchmark's pictures: results do not compare with published ones. The same
arguments give the same pictures. A folder that has some is not changed. It needs Pillow.
"""

from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.lab.corpora import Seeded, check_new, pathfinder
from fairseq_plugins.options.arguments import command
from fairseq_plugins.options.fields import argument, option


@dataclass
class MakePathfinder(Seeded):
    """The options of the command."""

    folder: Path = argument("the folder to write", "DIR")
    pictures: int = option(200000, "the number of pictures", least=1)
    dashes: int = option(14, "the dashes of each long path; others have a third", least=2)


@command
def main(args: MakePathfinder) -> None:
    check_new(args.folder, ["metadata", "imgs"])
    pathfinder.write(args.folder, args.pictures, args.dashes, args.seed)
    print(f"drew {args.pictures:,} pictures in {args.folder}")
