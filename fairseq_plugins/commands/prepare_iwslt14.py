"""Prepare IWSLT'14 German-English from its original archive.

    python -m fairseq_plugins prepare-iwslt14 DIR

Tokenisation, cleaning and splits are those of fairseq's prepare-iwslt14.sh, for results comparable
with the papers.

Rerun to resume. Until all is done, DIR is named DIR.part.
"""

import argparse
from pathlib import Path
from typing import Any, Dict, Sequence

from fairseq_plugins.arguments import add_path, parser_of
from fairseq_plugins.commands import needs_fairseq
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import digest
from fairseq_plugins.preparation import iwslt14
from fairseq_plugins.preparation.cleaning import Limits
from fairseq_plugins.preparation.documents import parse_counts
from fairseq_plugins.preparation.reuse import normalization
from fairseq_plugins.preparation.steps import Preparation
from fairseq_plugins.preparation.translation import (
    ALL_RAW,
    add_subword_options,
    prepare,
    show,
    subword_settings,
)


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("prepare-iwslt14", __doc__)
    parser.add_argument("destination", type=Path, metavar="DIR", help="output folder")
    add_path(parser, "--archive", "FILE", "read this copy of de-en.tgz instead of downloading")
    parser.add_argument(
        "--url", default=iwslt14.URL, help="download address (default: %(default)s)"
    )
    parser.add_argument(
        "--checksum",
        default=iwslt14.CHECKSUM,
        metavar="KIND:DIGITS",
        help="checksum of the archive, md5:... or sha256:..., or 'none' to skip the check "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--expect-pairs",
        default="160239,7283,6750",
        metavar="TRAIN,VALID,TEST",
        help="expected numbers of pairs, or 'any' (default: %(default)s)",
    )
    add_subword_options(parser, default="bpe")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    args = read_arguments(argv)
    needs_fairseq("prepare-iwslt14")
    if args.archive is not None and args.url != iwslt14.URL:
        raise ConfigurationError(
            f"--url {args.url} and --archive {args.archive} cannot be combined: give one of them"
        )
    expected = parse_counts("--expect-pairs", args.expect_pairs)
    source = (args.archive, args.url, iwslt14.known_checksum(args.checksum))
    origin: Any = args.checksum
    if source[2] is None:  # nothing else identifies the archive
        origin = args.url
        if args.archive is not None and args.archive.is_file():
            origin = digest(args.archive)
    settings: Dict[str, Any] = {
        "corpus": "IWSLT'14 De-En",
        "archive": origin,
        "source_lang": "de",
        "target_lang": "en",
        "tokenizer": "moses",
        "lowercase": True,
        "valid_every": iwslt14.VALID_EVERY,
        **Limits()._asdict(),
        **subword_settings(args),
        **normalization(args.destination),
    }
    # without a checksum, a download from another address cannot be recognised
    keep = [iwslt14.DOWNLOADS] if source[2] is not None else []
    with Preparation(args.destination, settings, keep=keep) as preparation:
        if not preparation.finished:
            archive = iwslt14.get_archive(preparation.folder, *source)
            preparation.step("extract", iwslt14.extract, archive, preparation.folder / ALL_RAW)
            prepare(preparation, args.workers, expected_pairs=expected)
    show(args.destination)
    return 0
