"""Prepare labelled texts, from lines or IMDB.

    fairseq-plugins prepare-classification DIR --train train.tsv --valid valid.tsv
    fairseq-plugins prepare-classification DIR --imdb aclImdb_v1.tar.gz
    fairseq-plugins prepare-classification DIR --imdb aclImdb_v1.tar.gz --bytes \\
        --max-positions 4000

Each line of a file is a label of one word, a tab, and a text. A file may also be a table with a
head (.tsv, .csv) or JSON lines (.jsonl), whose columns are label and text, or those of --fields.
All files may be compressed (.gz). --imdb takes the archive or the unpacked folder aclImdb: every
tenth training text goes to the validation set. An archive is not unpacked to disk.

Texts that cannot be used are skipped; removed.txt in DIR gives the reasons.

Until all is done, DIR is named DIR.part, and a rerun starts anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data import classification
from fairseq_plugins.data.imdb import imdb_identity, imdb_items, parse_review
from fairseq_plugins.data.pipeline import prepare_folder
from fairseq_plugins.data.readers import SPLITS, Corpus, Inputs
from fairseq_plugins.data.report import show
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import argument, option

VALID_EVERY = 10
TEXTS = "lines of a label, a tab and a text; or a table, or JSON lines"


@dataclass
class PrepareClassification(classification.Units, Command):
    """The options of the command."""

    destination: Path = argument("the folder to write", "DIR")
    train: Path | None = option(None, TEXTS, metavar="FILE")
    valid: Path | None = option(None, TEXTS, metavar="FILE")
    test: Path | None = option(None, TEXTS, metavar="FILE")
    fields: Sequence[str] | None = option(
        None, "the names of the two columns of tables, or fields of JSON (default: label text)",
        nargs=2, metavar=("LABEL", "TEXT"), needs="train",
    )  # fmt: skip
    imdb: Path | None = option(
        None, "the archive aclImdb_v1.tar.gz, or the folder aclImdb", metavar="PATH"
    )
    valid_every: int | None = option(
        None, "with --imdb: every Nth training text goes to the validation set (default: "
        f"{VALID_EVERY})", least=2, needs="imdb",
    )  # fmt: skip


@command
def main(args: PrepareClassification) -> None:
    needs_fairseq("prepare-classification")
    files = {split: getattr(args, split) for split in SPLITS if getattr(args, split) is not None}
    if bool(files) == (args.imdb is not None) or (files and not {"train", "valid"} <= set(files)):
        raise ConfigurationError("give --train and --valid, or --imdb")
    valid_every = VALID_EVERY if args.valid_every is None else args.valid_every
    settings = classification.classification_settings(args, classification.units_of(args))
    if args.imdb is None:
        inputs = Inputs.of(args, (), classification.FIELDS, "tsv")
        settings.update(inputs.settings)
    else:
        settings.update(valid_every=valid_every, inputs=imdb_identity(args.imdb))

    def corpus(folder: Path) -> Corpus:
        if args.imdb is None:
            return inputs.corpus(classification.parse_labelled)
        return Corpus(imdb_items(args.imdb, valid_every), parse_review)

    task = classification.Labelled(settings, list(files) or SPLITS)
    prepare_folder(args.destination, task, corpus, args.workers)
    show(args.destination)
