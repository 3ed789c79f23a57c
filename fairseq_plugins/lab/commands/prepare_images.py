"""Prepare Image of the Long-Range Arena: CIFAR-10 as 1,024 grey levels.

    fairseq-plugins prepare-images DIR cifar-10-binary.tar.gz
    fairseq-plugins train image DIR

The archive is that of the binary version; make-images writes one of synthetic images. Every
tenth image for training is for validation.

Until all is done, DIR is named DIR.part, and a rerun starts anew.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.files import digest
from fairseq_plugins.lab import corpora
from fairseq_plugins.lab.corpora import cifar10, grey_levels
from fairseq_plugins.options.arguments import command
from fairseq_plugins.options.fields import argument


@dataclass
class PrepareImages(grey_levels.Pictures):
    """The options of the command."""

    destination: Path = argument("the folder to write", "DIR")
    archive: Path = argument("the archive cifar-10-binary.tar.gz", "ARCHIVE")


@command
def main(args: PrepareImages) -> None:
    needs_fairseq("prepare-images")
    settings = grey_levels.settings(args)
    settings.update(valid_every=cifar10.VALID_EVERY, inputs={"archive": digest(args.archive)})
    corpora.prepare_corpus(args, settings, partial(cifar10.images, args.archive, args.shrink))
