#!/usr/bin/env python3
"""Any language pair, from raw parallel text to the folder that fairseq-train reads.

    python scripts/prepare_translation.py DIR --source-lang de --target-lang en \\
        --train corpus/train --valid corpus/valid --test corpus/test

PREFIX corpus/train stands for two UTF-8 files, corpus/train.de and corpus/train.en, aligned by
line. A run that was killed goes on where it was when the same command is given again; DIR has its
name when all is done (until then it is DIR.part).
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairseq_plugins.errors import ConfigurationError  # noqa: E402
from fairseq_plugins.preparation.cleaning import Limits  # noqa: E402
from fairseq_plugins.preparation.download import digest  # noqa: E402
from fairseq_plugins.preparation.files import read_lines, read_pairs, write_lines  # noqa: E402
from fairseq_plugins.preparation.processing import TOKENIZERS  # noqa: E402
from fairseq_plugins.preparation.steps import Preparation  # noqa: E402
from fairseq_plugins.preparation.translation import (  # noqa: E402
    ALL_RAW,
    add_subword_options,
    prepare,
    show,
    subword_settings,
)


def read_arguments(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    limits = Limits()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("destination", type=Path, metavar="DIR", help="folder to be made")
    parser.add_argument("--source-lang", required=True, metavar="LANG", help="such as de")
    parser.add_argument("--target-lang", required=True, metavar="LANG", help="such as en")
    parser.add_argument(
        "--train",
        required=True,
        nargs="+",
        metavar="PREFIX",
        help="one or several, joined in order",
    )
    held_out = parser.add_mutually_exclusive_group(required=True)
    held_out.add_argument("--valid", metavar="PREFIX", help="validation text")
    held_out.add_argument(
        "--valid-every", type=int, metavar="N", help="or take every Nth pair out of train"
    )
    parser.add_argument("--test", metavar="PREFIX", help="test text, if there is any")
    parser.add_argument(
        "--tokenizer",
        choices=TOKENIZERS,
        help="default: moses with --subword bpe, none with --subword sentencepiece",
    )
    parser.add_argument("--lowercase", action="store_true", help="lower-case everything")
    parser.add_argument(
        "--max-words",
        type=int,
        default=limits.max_words,
        help="leave out training pairs with a longer side (%(default)s)",
    )
    parser.add_argument(
        "--max-ratio",
        type=float,
        default=limits.max_ratio,
        help="leave out training pairs with one side this times as long as the other (%(default)s)",
    )
    add_subword_options(parser)
    args = parser.parse_args(argv)
    if args.source_lang == args.target_lang:
        parser.error("--source-lang and --target-lang are both {}".format(args.source_lang))
    if args.valid_every is not None and args.valid_every < 2:
        parser.error("--valid-every {}: must be at least 2".format(args.valid_every))
    return args


def main(argv: Optional[Sequence[str]] = None) -> int:
    args = read_arguments(argv)
    languages = [args.source_lang, args.target_lang]
    prefixes: Dict[str, List[str]] = {"train": args.train}
    for split in ("valid", "test"):
        if getattr(args, split) is not None:
            prefixes[split] = [getattr(args, split)]

    def files(split: str, language: str) -> List[Path]:
        return [Path("{}.{}".format(prefix, language)) for prefix in prefixes[split]]

    inputs = {}
    for split in prefixes:
        for language in languages:
            for path in files(split, language):
                if not path.is_file():
                    raise ConfigurationError(
                        "{} does not exist: --{} PREFIX stands for PREFIX.{} and PREFIX.{}".format(
                            path, split, *languages
                        )
                    )
            inputs["{}.{}".format(split, language)] = [
                digest(path, "sha256") for path in files(split, language)
            ]
    tokenizer = args.tokenizer or ("moses" if args.subword == "bpe" else "none")
    settings: Dict[str, Any] = {
        "source_lang": args.source_lang,
        "target_lang": args.target_lang,
        "tokenizer": tokenizer,
        "lowercase": args.lowercase,
        "valid_every": args.valid_every,
        **Limits(max_words=args.max_words, max_ratio=args.max_ratio)._asdict(),
        **subword_settings(args),
        "inputs": inputs,
    }
    with Preparation(args.destination, settings) as preparation:
        if not preparation.finished:
            raw = preparation.folder / ALL_RAW
            preparation.step("read text", collect, prefixes, languages, raw)
            prepare(preparation, args.workers)
    show(args.destination)
    return 0


def collect(prefixes: Dict[str, List[str]], languages: Sequence[str], folder: Path) -> None:
    """Join the files of each split, once their sides are known to be aligned."""
    for split, names in prefixes.items():
        for name in names:
            sides = [Path("{}.{}".format(name, language)) for language in languages]
            for _ in read_pairs(*sides):
                pass
        for language in languages:
            paths = ["{}.{}".format(name, language) for name in names]
            lines = (line for path in paths for line in read_lines(path))
            write_lines(folder / "{}.{}".format(split, language), lines)


if __name__ == "__main__":
    sys.exit(main())
