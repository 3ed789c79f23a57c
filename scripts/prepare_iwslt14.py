#!/usr/bin/env python3
"""IWSLT'14 German-English, from the download to the folder that fairseq-train reads.

    python scripts/prepare_iwslt14.py DIR

Tokenisation, cleaning and splits are those of fairseq's prepare-iwslt14.sh, so that results compare
with the papers'. A run that was killed goes on where it was when the same command is given again;
DIR has its name when all is done (until then it is DIR.part).
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairseq_plugins.errors import ConfigurationError  # noqa: E402
from fairseq_plugins.preparation import iwslt14  # noqa: E402
from fairseq_plugins.preparation.cleaning import Limits  # noqa: E402
from fairseq_plugins.preparation.download import check, fetch  # noqa: E402
from fairseq_plugins.preparation.steps import Preparation  # noqa: E402
from fairseq_plugins.preparation.translation import (  # noqa: E402
    ALL_RAW,
    add_subword_options,
    prepare,
    show,
    subword_settings,
)

VALID_EVERY = 23
DOWNLOADS = "original"


def pair_counts(text: str) -> Optional[Dict[str, int]]:
    """``160239,7283,6750`` or ``any``, as --expect-pairs has it."""
    if text == "any":
        return None
    try:
        train, valid, test = (int(number) for number in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            "'{}' is neither three numbers TRAIN,VALID,TEST nor 'any'".format(text)
        ) from None
    return {"train": train, "valid": valid, "test": test}


def read_arguments(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("destination", type=Path, metavar="DIR", help="folder to be made")
    parser.add_argument(
        "--archive", type=Path, metavar="FILE", help="a copy of de-en.tgz: nothing is downloaded"
    )
    parser.add_argument("--url", default=iwslt14.URL, help="where to download it (%(default)s)")
    parser.add_argument(
        "--checksum",
        default=iwslt14.CHECKSUM,
        metavar="KIND:DIGITS",
        help="what the archive must have, md5:... or sha256:..., or 'none' (%(default)s)",
    )
    parser.add_argument(
        "--expect-pairs",
        type=pair_counts,
        default=iwslt14.PAIRS,
        metavar="TRAIN,VALID,TEST",
        help="how many pairs must come out, or 'any' (160239,7283,6750)",
    )
    add_subword_options(parser)
    return parser.parse_args(argv)


def get_archive(args: argparse.Namespace, folder: Path) -> Path:
    """The archive, checked, from the disk or from the network."""
    checksum = None if args.checksum == "none" else args.checksum
    size = iwslt14.SIZE if checksum == iwslt14.CHECKSUM else None
    if args.archive is None:
        return fetch(args.url, folder / DOWNLOADS / "de-en.tgz", size, checksum)
    try:
        check(args.archive, size, checksum)
    except ConfigurationError as error:
        raise ConfigurationError(
            "{}: give a whole copy of de-en.tgz, or --checksum none to use this one".format(error)
        ) from None
    return args.archive


def main(argv: Optional[Sequence[str]] = None) -> int:
    args = read_arguments(argv)
    settings: Dict[str, Any] = {
        "corpus": "IWSLT'14 De-En",
        "archive": args.checksum,
        "source_lang": "de",
        "target_lang": "en",
        "tokenizer": "moses",
        "lowercase": True,
        "valid_every": VALID_EVERY,
        **Limits()._asdict(),
        **subword_settings(args),
    }
    with Preparation(args.destination, settings, keep=[DOWNLOADS]) as preparation:
        if not preparation.finished:
            archive = get_archive(args, preparation.folder)
            preparation.step("extract", iwslt14.extract, archive, preparation.folder / ALL_RAW)
            prepare(preparation, args.workers, args.expect_pairs)
    show(args.destination)
    return 0


if __name__ == "__main__":
    sys.exit(main())
