"""Prepare any language pair from raw parallel text.

    python -m fairseq_plugins prepare-translation DIR --source-lang de --target-lang en \\
        --train corpus/train --valid corpus/valid --test corpus/test

corpus/train stands for two UTF-8 files, corpus/train.de and corpus/train.en, aligned by line. The
name of an existing file ends with .tsv, .csv or .jsonl: a table or JSON lines, of which --fields
names the two columns. A table of tabs needs no head if it has two columns. All files may be
compressed (.gz). The folder serves both directions. To prepare other text for a trained model, see
--like.

left_out.txt in DIR names the training pairs that were filtered out. Until all is done, DIR is named
DIR.part, and a rerun starts anew.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data import translation
from fairseq_plugins.data.cleaning import Limits
from fairseq_plugins.data.like import given_options, settings_like
from fairseq_plugins.data.pipeline import prepare_folder
from fairseq_plugins.data.readers import Inputs, parse_texts
from fairseq_plugins.data.report import show
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.arguments import add_flag, add_number, add_path, parser_of
from fairseq_plugins.text.languages import two_letters
from fairseq_plugins.text.processing import NFC, TOKENIZERS


def language(text: str) -> str:
    """An argparse type: a language, which names of files end with."""
    if not re.fullmatch(r"[^\s./-]+", text):
        raise argparse.ArgumentTypeError(
            f"'{text}': files are named after it; give a word without dots, slashes, hyphens and "
            "spaces, such as de or zh_CN"
        )
    return text


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    limits = Limits()
    parser = parser_of("prepare-translation", __doc__)
    parser.add_argument("destination", type=Path, metavar="DIR", help="output folder")
    for side, code in (("source", "de"), ("target", "en")):
        parser.add_argument(
            f"--{side}-lang", type=language, required=True, metavar="LANG",
            help=f"{side} language, such as {code}",
        )  # fmt: skip
    parser.add_argument(
        "--train",
        required=True,
        nargs="+",
        metavar="PREFIX|FILE",
        help="training text; several are joined in order",
    )
    held_out = parser.add_mutually_exclusive_group(required=True)
    held_out.add_argument("--valid", metavar="PREFIX|FILE", help="validation text")
    add_number(
        held_out, "--valid-every", "take every Nth pair of train as validation text instead",
        least=2,
    )  # fmt: skip
    parser.add_argument("--test", metavar="PREFIX|FILE", help="test text (optional)")
    parser.add_argument(
        "--fields",
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="names of the two columns of tables, or fields of JSON (default: the languages)",
    )
    parser.add_argument(
        "--tokenizer",
        choices=TOKENIZERS,
        help="default: moses with --subword bpe; none with --subword sentencepiece, which then "
        "keeps every character of the text",
    )
    add_flag(parser, "--lowercase", "lower-case everything")
    add_flag(
        parser, "--protect", "let translations keep tags, URLs, {names}, %%s, numbers with units "
        "and emoji as they are: where both sides of a pair have the same, a symbol stands for it",
    )  # fmt: skip
    add_number(
        parser, "--max-words", "skip training pairs with more words on a side; without spaces two "
        "Chinese or Japanese characters count as one, and four letters of Thai, Lao, Khmer, "
        "Burmese and Tibetan", limits.max_words,
    )  # fmt: skip
    add_number(
        parser, "--max-ratio", "skip training pairs with one side more than R times as long",
        limits.max_ratio, 1, float, metavar="R",
    )  # fmt: skip
    add_path(
        parser, "--like", "DIR", "reuse the subwords, dictionaries and tokeniser of this prepared "
        "folder, so that a model trained on it can be fine-tuned on the new text "
        "(--finetune-from-model)",
    )  # fmt: skip
    translation.add_subword_options(parser)
    args = parser.parse_args(argv)
    if args.source_lang == args.target_lang:
        raise ConfigurationError(f"--source-lang and --target-lang are both {args.source_lang}")
    if args.subword is None:
        args.subword = "bpe" if args.tokenizer else "sentencepiece"
    languages = [args.source_lang, args.target_lang]
    given = given_options(parser, argv, args)
    args.like_settings = settings_like(args.like, languages, translation.SHARED_BY_LIKE, given)
    return args


def main(argv: Sequence[str]) -> int:
    args = read_arguments(argv)
    needs_fairseq("prepare-translation")
    languages = [args.source_lang, args.target_lang]
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
        **args.like_settings,
    }
    codes = {name: two_letters(name) for name in languages if two_letters(name) != name}
    if codes and settings["tokenizer"] == "moses" and args.like is None:
        settings["moses_codes"] = codes
    task = translation.Pairs(settings, list(inputs.of_split))
    prepare_folder(
        args.destination, task, lambda _: inputs.corpus(parse_texts), args.workers, like=args.like
    )
    show(args.destination)
    return 0
