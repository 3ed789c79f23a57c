"""Prepare IWSLT'14 German-English from its original archive.

    fairseq-plugins prepare-iwslt14 DIR

Tokenisation, cleaning and splits are those of fairseq's prepare-iwslt14.sh, for results comparable
with the papers.

Until all is done, DIR is named DIR.part. A rerun resumes a download, and starts all else anew.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data import iwslt14
from fairseq_plugins.data.cleaning import Limits
from fairseq_plugins.data.pipeline import parse_counts, prepare_folder
from fairseq_plugins.data.report import show
from fairseq_plugins.data.translation import Pairs, SubwordsOfPairs, subword_settings
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import argument, option
from fairseq_plugins.text.processing import NFC
from fairseq_plugins.text.subwords import KINDS


@dataclass
class PrepareIwslt14(SubwordsOfPairs, Command):
    """The options of the command."""

    destination: Path = argument("the folder to write", "DIR")
    archive: Path | None = option(
        None, "read this copy of de-en.tgz instead of downloading it", metavar="FILE"
    )
    expect_pairs: str = option(
        iwslt14.PAIRS, "the expected numbers of pairs, or 'any'; other numbers than the default "
        f"({iwslt14.PAIRS}) allow another archive", metavar="TRAIN,VALID,TEST",
    )  # fmt: skip
    subword: str = option(
        "bpe", "byte-pair encoding by subword-nmt, or SentencePiece", choices=sorted(KINDS)
    )
    joined_dictionary: bool | None = option(
        None, "one dictionary for both sides, which --share-all-embeddings needs (default: two)"
    )


@command
def main(args: PrepareIwslt14) -> None:
    needs_fairseq("prepare-iwslt14")
    expected = parse_counts("--expect-pairs", args.expect_pairs)
    original = args.expect_pairs == iwslt14.PAIRS
    settings: dict[str, Any] = {
        "corpus": "IWSLT'14 De-En",
        "archive": iwslt14.origin(args.archive, original),
        "source_lang": "de",
        "target_lang": "en",
        "tokenizer": "moses",
        "lowercase": True,
        "valid_every": iwslt14.VALID_EVERY,
        **Limits()._asdict(),
        **subword_settings(args),
        "normalization": NFC,
    }
    how: Any = {"expected": expected, "option": "--expect-pairs", "keep": [iwslt14.DOWNLOADS]}
    task, corpus = Pairs(settings, ("train", "test")), partial(iwslt14.read, given=args.archive)
    prepare_folder(args.destination, task, corpus, args.workers, **how)
    show(args.destination)
