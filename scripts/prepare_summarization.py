#!/usr/bin/env python3
"""Any documents with summaries, from raw text to the folder that fairseq-train reads.

    python scripts/prepare_summarization.py DIR --train text/train --valid text/valid
    python scripts/prepare_summarization.py DIR --train train.txt --valid val.txt --test test.txt \\
        --fields article_text abstract_text

text/train stands for two files, text/train.source and text/train.target, aligned by line. A name of
an existing file is JSON lines: two fields of each, article and highlights if --fields does not name
others, are text or a list of sentences (PubMed and arXiv are such). Sentences of a summary are
separated by new lines, <q>, or being elements of the list; --split-sentences finds more.

A run that was killed goes on where it was when the same command is given again; DIR has its name
when all is done (until then it is DIR.part).
"""

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairseq_plugins.errors import ConfigurationError  # noqa: E402
from fairseq_plugins.preparation.download import digest  # noqa: E402
from fairseq_plugins.preparation.files import count_lines  # noqa: E402
from fairseq_plugins.preparation.steps import Preparation  # noqa: E402
from fairseq_plugins.preparation.summarization import (  # noqa: E402
    SPLITS,
    JsonReader,
    PairReader,
    add_options,
    json_items,
    pair_items,
    prepare,
    show,
    summarization_settings,
    tell_left_out,
    write_documents,
)


def read_arguments(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("destination", type=Path, metavar="DIR", help="folder to be made")
    for split in SPLITS:
        parser.add_argument(
            "--" + split, type=Path, required=split != "test", metavar="PREFIX|FILE"
        )
    parser.add_argument(
        "--fields",
        nargs=2,
        default=["article", "highlights"],
        metavar=("DOCUMENT", "SUMMARY"),
        help="of JSON lines (%(default)s)",
    )
    parser.add_argument(
        "--split-sentences",
        action="store_true",
        help="also end sentences of summaries at punctuation",
    )
    add_options(parser)
    return parser.parse_args(argv)


def input_files(path: Path, split: str) -> List[Path]:
    """The JSON lines, or both sides of the prefix."""
    if path.is_file():
        return [path]
    sides = [path.with_name(path.name + side) for side in (".source", ".target")]
    for side in sides:
        if not side.is_file():
            raise ConfigurationError(
                "{} does not exist: --{} {} is no file, so it stands for {} and {}".format(
                    side, split, path, *(side.name for side in sides)
                )
            )
    return sides


def read(folder: Path, inputs: Dict[str, Path], args: argparse.Namespace) -> Dict[str, Any]:
    """Files to text."""
    json_lines = [path.is_file() for path in inputs.values()]
    if any(json_lines) != all(json_lines):
        raise ConfigurationError("give JSON lines for all splits, or a prefix for all")
    items_of = json_items if all(json_lines) else pair_items
    reader: Any = (
        JsonReader(args.fields, args.split_sentences)
        if all(json_lines)
        else PairReader(args.split_sentences)
    )
    found = write_documents(
        folder,
        itertools.chain.from_iterable(items_of(split, path) for split, path in inputs.items()),
        reader,
        args.workers,
        list(inputs),
        sum(count_lines(input_files(path, split)[0]) for split, path in inputs.items()),
    )
    tell_left_out(found, folder)
    return found


def main(argv: Optional[Sequence[str]] = None) -> int:
    args = read_arguments(argv)
    inputs = {split: getattr(args, split) for split in SPLITS if getattr(args, split) is not None}
    settings = {
        **summarization_settings(args),
        "fields": args.fields,
        "split_sentences": args.split_sentences,
        "inputs": {
            split: [digest(file, "sha256") for file in input_files(path, split)]
            for split, path in inputs.items()
        },
    }
    with Preparation(args.destination, settings) as preparation:
        if not preparation.finished:
            found = preparation.step("read documents", read, preparation.folder, inputs, args)
            prepare(preparation, found, args.workers)
    show(args.destination)
    return 0


if __name__ == "__main__":
    sys.exit(main())
