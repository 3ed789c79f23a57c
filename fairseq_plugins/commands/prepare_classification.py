"""Prepare labelled texts, from lines or IMDB.

    python -m fairseq_plugins prepare-classification DIR --train train.tsv --valid valid.tsv
    python -m fairseq_plugins prepare-classification DIR --imdb aclImdb_v1.tar.gz
    python -m fairseq_plugins prepare-classification DIR --imdb aclImdb_v1.tar.gz --bytes \\
        --max-positions 4000

Each line of a file is a label of one word, a tab, and a text. --imdb takes the archive or the
unpacked folder aclImdb: every tenth training text goes to the valid split. An archive is not
unpacked to disk.

Texts that cannot be used are skipped; left_out.txt in DIR says why.

Rerun to resume. Until all is done, DIR is named DIR.part.
"""

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.arguments import add_number, add_path, parser_of
from fairseq_plugins.commands import needs_fairseq
from fairseq_plugins.data.classification import (
    add_options,
    classification_settings,
    prepare,
    read_texts,
    units_of,
)
from fairseq_plugins.data.labelled import imdb_files
from fairseq_plugins.data.readers import SPLITS
from fairseq_plugins.data.report import show
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import digest
from fairseq_plugins.preparation.steps import Preparation

VALID_EVERY = 10


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("prepare-classification", __doc__)
    parser.add_argument("destination", type=Path, metavar="DIR", help="output folder")
    for split in SPLITS:
        add_path(parser, "--" + split, "FILE", "label<TAB>text")
    add_path(parser, "--imdb", "PATH", "aclImdb_v1.tar.gz, or aclImdb")
    add_number(
        parser, "--valid-every", "with --imdb: every Nth training text goes to valid "
        f"(default: {VALID_EVERY})", least=2,
    )  # fmt: skip
    add_options(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    args = read_arguments(argv)
    needs_fairseq("prepare-classification")
    files = {split: getattr(args, split) for split in SPLITS if getattr(args, split) is not None}
    if bool(files) == (args.imdb is not None) or (files and not {"train", "valid"} <= set(files)):
        raise ConfigurationError("give --train and --valid, or --imdb")
    if files and args.valid_every is not None:
        raise ConfigurationError(
            f"--valid-every {args.valid_every} is for --imdb, but --valid names the "
            "validation texts: remove one of them"
        )
    valid_every = VALID_EVERY if args.valid_every is None else args.valid_every
    settings = classification_settings(args, units_of(args))
    if not files:
        settings["valid_every"] = valid_every
    if args.imdb is not None and args.imdb.is_dir():
        settings["inputs"] = _identity(args.imdb)
    else:
        given = files or {"archive": args.imdb}
        settings["inputs"] = {name: digest(path) for name, path in given.items()}
    with Preparation(args.destination, settings) as preparation:
        if not preparation.finished:
            how = (preparation, files, args.imdb, valid_every, args.workers)
            found = preparation.step("read texts", read_texts, *how)
            prepare(preparation, found, args.workers)
    show(args.destination)
    return 0


def _identity(folder: Path) -> str:
    """The checksum of the names and contents of the reviews in a folder."""
    files = (f"{file.relative_to(folder)} {digest(file)}" for file in imdb_files(folder))
    return hashlib.sha256("\n".join(files).encode("utf-8", "surrogateescape")).hexdigest()
