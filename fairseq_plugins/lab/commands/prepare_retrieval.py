"""Prepare Retrieval of the Long-Range Arena: pairs of texts in bytes.

    fairseq-plugins prepare-retrieval DIR lra_release/tsv_data
    fairseq-plugins reproduce mscffn-retrieval DIR

The folder has new_aan_pairs.train.tsv, .eval.tsv and .test.tsv. A line that cannot be used is
skipped, and removed.txt in DIR gives the reason.

Until all is done, DIR is named DIR.part, and a rerun starts anew.
"""

from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data.classification import classification_settings
from fairseq_plugins.files import digest
from fairseq_plugins.lab import corpora
from fairseq_plugins.lab.corpora import retrieval
from fairseq_plugins.options.arguments import add_fields, add_number, parser_of
from fairseq_plugins.system.workers import Workers


def main(argv: Sequence[str]) -> int:
    parser = parser_of("prepare-retrieval", __doc__)
    parser.add_argument("destination", type=Path, metavar="DIR", help="output folder")
    parser.add_argument("pairs", type=Path, metavar="FOLDER", help="the folder of the three files")
    add_number(
        parser, "--max-positions", "positions of each of both texts, the end symbol among them",
        4000, 2,
    )  # fmt: skip
    add_fields(parser, Workers)
    parser.set_defaults(vocab_size=None, sentencepiece_documents=None)
    args = parser.parse_args(argv)
    needs_fairseq("prepare-retrieval")
    settings = classification_settings(args, "bytes")
    inputs = {name: digest(args.pairs / name) for name in retrieval.NAMES.values()}
    settings.update(pairs=True, inputs=inputs)
    corpora.prepare_corpus(args, settings, lambda: retrieval.pairs(args.pairs))
    return 0
