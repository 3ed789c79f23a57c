"""Prepare any language pair from raw parallel text.

    fairseq-plugins prepare-translation DIR --source-lang de --target-lang en \\
        --train corpus/train --valid corpus/valid --test corpus/test

corpus/train stands for two UTF-8 files, corpus/train.de and corpus/train.en, aligned by line. The
name of an existing file ends with .tsv, .csv or .jsonl: a table or JSON lines, of which --fields
names the two columns. A table of tabs needs no head if it has two columns. All files may be
compressed (.gz). The folder serves both directions. To prepare other text for a trained model, see
--like.

removed.txt in DIR names the training pairs that were filtered out. Until all is done, DIR is named
DIR.part, and a rerun starts anew.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data import translation
from fairseq_plugins.data.cleaning import Limits
from fairseq_plugins.data.like import settings_like
from fairseq_plugins.data.pipeline import prepare_folder
from fairseq_plugins.data.readers import Inputs, parse_texts
from fairseq_plugins.data.report import show
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import digest, read_lines
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import REQUIRED, argument, option
from fairseq_plugins.text.languages import two_letters
from fairseq_plugins.text.processing import NFC, TOKENIZERS
from fairseq_plugins.text.protection import pattern_error
from fairseq_plugins.text.terms import read_terms


@dataclass
class PrepareTranslation(translation.SubwordsOfPairs, Command):
    """The options of the command."""

    destination: Path = argument("the folder to write", "DIR")
    source_lang: str = option(REQUIRED, "the source language, such as de", metavar="LANG")
    target_lang: str = option(REQUIRED, "the target language, such as en", metavar="LANG")
    train: Sequence[str] = option(
        REQUIRED, "the training text; several are joined in order", metavar="PREFIX|FILE"
    )
    valid: str | None = option(
        None, "the validation text", metavar="PREFIX|FILE", group="validation"
    )
    valid_every: int | None = option(
        None, "take every Nth pair of the training text as validation text instead", least=2,
        group="validation",
    )  # fmt: skip
    test: str | None = option(None, "the test text", metavar="PREFIX|FILE")
    fields: Sequence[str] | None = option(
        None, "the names of the two columns of tables, or fields of JSON (default: the languages)",
        nargs=2, metavar=("SOURCE", "TARGET"),
    )  # fmt: skip
    tokenizer: str | None = option(
        None, "the tokeniser (default: moses with --subword bpe; none with --subword "
        "sentencepiece, which then keeps every character of the text)", choices=TOKENIZERS,
    )  # fmt: skip
    lowercase: bool = option(False, "convert everything to lower case")
    protect: bool = option(
        False, "let translations keep tags, URLs, {names}, %s, numbers with units and emoji as "
        "they are: where both sides of a pair have the same, a symbol stands for it",
    )  # fmt: skip
    protect_patterns: Path | None = option(
        None, "a file with a regular expression in each line, for further text that --protect "
        "keeps", metavar="FILE", needs="protect",
    )  # fmt: skip
    terms: Path | None = option(
        None, "a file with a source term, a tab and its target term in each line: with --protect, "
        "a symbol stands for them in half of the training pairs that have both, so that the model "
        "learns to take any terms from translate --terms", metavar="FILE", needs="protect",
    )  # fmt: skip
    max_words: int = option(
        Limits().max_words, "skip training pairs with more words on a side; without spaces two "
        "Chinese or Japanese characters count as one, and four letters of Thai, Lao, Khmer, "
        "Burmese and Tibetan", least=1,
    )  # fmt: skip
    max_ratio: float = option(
        Limits().max_ratio, "skip training pairs with one side more than R times as long", least=1,
        metavar="R",
    )  # fmt: skip
    like: Path | None = option(
        None, "reuse the subwords, dictionaries and tokeniser of this prepared folder, so that a "
        "model trained on it can be fine-tuned on the new text (--finetune-from-model)",
        metavar="DIR",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        for side in "source", "target":
            name = getattr(self, f"{side}_lang")
            if not re.fullmatch(r"[^\s./-]+", name):
                raise ConfigurationError(
                    f"--{side}-lang '{name}': files are named after it; give a word without dots, "
                    "slashes, hyphens and spaces, such as de or zh_CN"
                )
        if self.source_lang == self.target_lang:
            raise ConfigurationError(f"--source-lang and --target-lang are both {self.source_lang}")
        if self.valid is None and self.valid_every is None:
            raise ConfigurationError("give --valid, or --valid-every N")


def _read_patterns(path: Path | None) -> Iterator[str]:
    for pattern in filter(None, read_lines(path) if path is not None else ()):
        if error := pattern_error(pattern):
            raise ConfigurationError(f"--protect-patterns {path}: {pattern}: {error}")
        yield pattern


@command
def main(args: PrepareTranslation) -> None:
    languages = [args.source_lang, args.target_lang]
    given = {name: getattr(args, name) for name in args.given}
    patterns = list(_read_patterns(args.protect_patterns))
    terms = None if args.terms is None else read_terms(args.terms)
    given |= {"protect_patterns": patterns} if patterns else {}
    like = settings_like(args.like, languages, translation.SHARED_BY_LIKE, given)
    if args.protect and args.like is not None and "protect" not in like:
        raise ConfigurationError(
            f"--protect: --like {args.like} was prepared without it: remove it"
        )
    args.subword = args.subword or ("bpe" if args.tokenizer else "sentencepiece")
    needs_fairseq("prepare-translation")
    inputs = Inputs.of(args, languages, languages)
    if args.joined_dictionary is None:
        args.joined_dictionary = translation.fits_one_dictionary(args.destination, inputs)
    settings: dict[str, Any] = {
        "source_lang": args.source_lang,
        "target_lang": args.target_lang,
        "tokenizer": args.tokenizer or ("moses" if args.subword == "bpe" else "none"),
        "lowercase": args.lowercase,
        "valid_every": args.valid_every,
        **Limits(max_words=args.max_words, max_ratio=args.max_ratio)._asdict(),
        **translation.subword_settings(args),
        "normalization": NFC,
        **inputs.settings,
        **({"protect": True} if args.protect else {}),
        **({"protect_patterns": patterns} if patterns else {}),
        **({"terms": digest(args.terms)} if args.terms is not None else {}),
        **like,
    }
    codes = {name: two_letters(name) for name in languages if two_letters(name) != name}
    if codes and settings["tokenizer"] == "moses" and args.like is None:
        settings["moses_codes"] = codes
    task = translation.Pairs(settings, list(inputs.of_split), terms)
    prepare_folder(
        args.destination, task, lambda _: inputs.corpus(parse_texts), args.workers, like=args.like
    )
    show(args.destination)
