"""Prepare Image of the Long-Range Arena: CIFAR-10 as 1,024 grey levels.

    fairseq-plugins prepare-images DIR cifar-10-binary.tar.gz
    fairseq-plugins train image DIR

The archive is that of the binary version; make-images writes one of made-up images. Every tenth
image for training goes to valid.

Until all is done, DIR is named DIR.part, and a rerun starts anew.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.files import digest
from fairseq_plugins.lab import corpora
from fairseq_plugins.lab.corpora import cifar10, grey_levels
from fairseq_plugins.options.arguments import parser_of


def main(argv: Sequence[str]) -> int:
    parser = parser_of("prepare-images", __doc__)
    parser.add_argument("destination", type=Path, metavar="DIR", help="output folder")
    parser.add_argument("archive", type=Path, metavar="ARCHIVE", help="cifar-10-binary.tar.gz")
    grey_levels.add_options(parser)
    args = parser.parse_args(argv)
    needs_fairseq("prepare-images")
    settings = grey_levels.settings(args)
    settings.update(valid_every=cifar10.VALID_EVERY, inputs={"archive": digest(args.archive)})
    corpora.prepare_corpus(args, settings, partial(cifar10.images, args.archive, args.shrink))
    return 0
