"""Prepare Pathfinder of the Long-Range Arena: pictures as 1,024 grey levels.

    fairseq-plugins prepare-pathfinder DIR pathfinder32/curv_contour_length_14
    fairseq-plugins train pathfinder DIR

The folder has metadata/ and pictures, as lra_release or make-pathfinder has them. As in the
benchmark's code, a tenth is for validation and another tenth for testing, here by chance and a
seed. A picture that cannot be used is skipped, and removed.txt in DIR gives the reason. It needs
Pillow.

Until all is done, DIR is named DIR.part, and a rerun starts anew.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.files import digest
from fairseq_plugins.lab import corpora
from fairseq_plugins.lab.corpora import grey_levels, pathfinder
from fairseq_plugins.options.arguments import command
from fairseq_plugins.options.fields import argument, with_default


@dataclass
class PreparePathfinder(grey_levels.Pictures, corpora.Sample):
    """The options of the command."""

    destination: Path = argument("the folder to write", "DIR")
    pictures: Path = argument("the folder that has metadata/ and the pictures", "FOLDER")
    train: int = with_default(corpora.Sample, "train", 160000)
    held_out: int = with_default(corpora.Sample, "held_out", 20000)


@command
def main(args: PreparePathfinder) -> None:
    needs_fairseq("prepare-pathfinder")
    settings = grey_levels.settings(args)
    files = sorted(args.pictures.glob("metadata/*.npy"))
    settings["inputs"] = {path.name: digest(path) for path in files}
    pictures = partial(pathfinder.pictures, args.pictures)
    read = partial(pathfinder.read_picture, folder=args.pictures, shrink=args.shrink)
    corpora.prepare_sample(args, settings, pictures, read=read)
