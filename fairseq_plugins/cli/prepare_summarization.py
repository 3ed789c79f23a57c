"""Prepare documents with summaries, from text or JSON lines.

    fairseq-plugins prepare-summarization DIR --train text/train --valid text/valid
    fairseq-plugins prepare-summarization DIR \\
        --train train.txt --valid val.txt --test test.txt --fields article_text abstract_text

text/train stands for two files, text/train.source and text/train.target, aligned by line. The name
of an existing file means a table (.tsv, .csv) or, with any other suffix, JSON lines. Their two
columns or fields are article and highlights, or those of --fields. A field of JSON is text or a
list of sentences (as in PubMed and arXiv). Sentences of a summary are separated by new lines or
<q>, or are elements of the list. All files may be compressed (.gz).

Documents without summaries can pretrain a model. --pretrain lead uses their first sentences as the
summary of the rest; --pretrain gap uses the sentences closest to the rest. Only text/train.source
is read, or the first field of JSON lines. --like reuses the subwords, dictionaries and case of
another prepared folder, so that a model trained on one folder can be fine-tuned on the other:

    fairseq-plugins prepare-summarization DIR --train text/train --valid text/valid
    fairseq-plugins prepare-summarization PRETRAIN --train news --valid held_out \\
        --pretrain lead --like DIR

Then train on PRETRAIN, and on DIR with --finetune-from-model PRETRAINED/checkpoint_best.pt.

Use --lowercase for headlines: without it, a word in capitals has other subwords than in the
document, and cannot be copied.

Documents that cannot be used are skipped; removed.txt in DIR gives the reasons.

Until all is done, DIR is named DIR.part, and a rerun starts anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data import summarization
from fairseq_plugins.data.like import settings_like
from fairseq_plugins.data.pretraining import KINDS, Pretraining
from fairseq_plugins.data.readers import Inputs
from fairseq_plugins.data.report import show
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import REQUIRED, argument, option

FIELDS = ["article", "highlights"]
SENTENCES = 3  # of a summary for pre-training


@dataclass
class PrepareSummarization(summarization.SubwordsOfDocuments, Command):
    """The options of the command."""

    destination: Path = argument("the folder to write", "DIR")
    train: str = option(REQUIRED, "the training text", metavar="PREFIX|FILE")
    valid: str = option(REQUIRED, "the validation text", metavar="PREFIX|FILE")
    test: str | None = option(None, "the test text", metavar="PREFIX|FILE")
    fields: Sequence[str] | None = option(
        None, "the names of the two columns of tables, or fields of JSON (default: "
        f"{' '.join(FIELDS)})", nargs=2, metavar=("DOCUMENT", "SUMMARY"),
    )  # fmt: skip
    pretrain: str | None = option(
        None, "build summaries for documents without summaries, for pre-training", choices=KINDS
    )
    pretrain_sentences: int = option(
        SENTENCES, "the number of sentences of such a summary; shorter documents are skipped",
        least=1, most=1000, needs="pretrain",
    )  # fmt: skip
    like: Path | None = option(
        None, "reuse the subwords, dictionaries and case of this prepared folder", metavar="DIR"
    )


@command
def main(args: PrepareSummarization) -> None:
    given = {name: getattr(args, name) for name in args.given}
    like = settings_like(args.like, summarization.SIDES, summarization.SHARED_BY_LIKE, given)
    needs_fairseq("prepare-summarization")
    sides = summarization.SIDES[:1] if args.pretrain else summarization.SIDES
    inputs = Inputs.of(args, sides, FIELDS, "json")
    settings = {**summarization.summarization_settings(args), **like}
    pretraining = None
    if args.pretrain:
        pretraining = Pretraining(args.pretrain, args.pretrain_sentences)
    summarization.prepare_files(
        args.destination, inputs, settings, args.workers, pretraining, args.like
    )
    show(args.destination)
