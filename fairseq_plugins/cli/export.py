"""Export a trained model to a folder that runs without torch and fairseq.

    python -m fairseq_plugins export runs/transformer_ftc --out exported --int8

The folder holds the encoder and the decoder's step as ONNX graphs, the dictionaries, the subword
model and config.json. `translate`, `summarize`, `classify` and `evaluate` take it. First, the
outputs for 20 texts are compared with torch's; a difference is an error. --compare takes a whole
split. --format ctranslate2 writes a folder for CTranslate2; it supports ordinary Transformers only.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.arguments import add_flag, add_path, parser_of
from fairseq_plugins.options.user_dirs import add_user_dir
from fairseq_plugins.system.quiet import only_warnings_of_fairseq


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("export", __doc__)
    parser.add_argument("run", type=Path, help="a checkpoint, or a folder of them")
    add_path(parser, "--out", "DIR", "a new folder", required=True)
    add_path(
        parser, "--data", "DIR", "the prepared folder (default: the one the model was trained on)"
    )
    add_flag(parser, "--int8", "8-bit matrices: faster, and a quarter of the size")
    parser.add_argument(
        "--format", choices=("onnx", "ctranslate2"), default="onnx", help="default: %(default)s"
    )
    parser.add_argument(
        "--compare",
        choices=("valid", "test"),
        help="compare outputs with torch's on this whole split instead of 20 texts; the command "
        "evaluate scores exports",
    )
    parser.add_argument(
        "--licence", metavar="TEXT", help="licence of the model, for config.json (default: none)"
    )
    add_user_dir(parser)
    args = parser.parse_args(argv)
    if args.format == "ctranslate2":
        for option in ("compare", "licence"):
            if getattr(args, option):
                raise ConfigurationError(f"--{option} needs --format onnx, not ctranslate2")
    return args


@only_warnings_of_fairseq()
def main(argv: Sequence[str]) -> int:
    args = read_arguments(argv)
    needs_fairseq("export", args.user_dir)
    from fairseq_plugins import export

    of_both = (args.run, args.out, args.data, args.int8)
    if args.format == "ctranslate2":
        difference = export.export_to_ctranslate2(*of_both)
        kind = "8 bits" if args.int8 else "float32"
        lines = [
            f"{kind}: CTranslate2's scores of torch's hypotheses differ by up to {difference:.1e}"
        ]
    else:
        licence = args.licence or "not stated"
        lines = _comparisons(export.export(*of_both, licence, args.compare))
    print("\n".join([f"wrote {args.out}", *lines]), file=sys.stderr)
    return 0


def _comparisons(found: Any) -> list[str]:
    """`Comparisons` of an export as lines of text for the terminal."""
    lines = []
    if found.too_long:
        lines.append(f"skipped: {found.too_long} sentences longer than the model's limit")
    for agreement in found.agreements:
        output, texts, scores = agreement.words
        lines.append(
            f"{agreement.kind}: torch's {output} or a tie for {agreement.equal} of "
            f"{agreement.total} {texts}; {scores} differ by up to "
            f"{agreement.largest_difference:.1e}"
        )
    return lines
