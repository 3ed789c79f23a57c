"""Prepare Retrieval of the Long-Range Arena: pairs of texts in bytes.

    fairseq-plugins prepare-retrieval DIR lra_release/tsv_data
    fairseq-plugins reproduce mscffn-retrieval DIR

The folder has new_aan_pairs.train.tsv, .eval.tsv and .test.tsv. A line that cannot be used is
skipped, and removed.txt in DIR gives the reason.

Until all is done, DIR is named DIR.part, and a rerun starts anew.
"""

from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data.classification import classification_settings
from fairseq_plugins.files import digest
from fairseq_plugins.lab import corpora
from fairseq_plugins.lab.corpora import retrieval
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import argument, option
from fairseq_plugins.system.workers import Workers


@dataclass
class PrepareRetrieval(Workers, Command):
    """The options of the command."""

    destination: Path = argument("the folder to write", "DIR")
    pairs: Path = argument("the folder of the three files", "FOLDER")
    max_positions: int = option(4000, "the positions of each text, with the end symbol", least=2)


@command
def main(args: PrepareRetrieval) -> None:
    needs_fairseq("prepare-retrieval")
    settings = classification_settings(args, "bytes")
    inputs = {name: digest(args.pairs / name) for name in retrieval.NAMES.values()}
    settings.update(pairs=True, inputs=inputs)
    corpora.prepare_corpus(args, settings, lambda: retrieval.pairs(args.pairs))
