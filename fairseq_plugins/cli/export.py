"""Export a trained model to a folder that runs without torch and fairseq.

    fairseq-plugins export runs/transformer_ftc --out exported --int8

The folder holds the encoder and the decoder's step as ONNX graphs, the dictionaries, the subword
model and config.json. `translate`, `summarize`, `classify` and `evaluate` take it. First, the
outputs for 20 texts are compared with torch's; a difference is an error. --compare takes a whole
split. --format ctranslate2 writes a folder for CTranslate2; it supports ordinary Transformers only.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.errors import ConfigurationError, counted
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import REQUIRED, argument, option
from fairseq_plugins.options.groups import UserDirs
from fairseq_plugins.system.quiet import only_warnings_of_fairseq


@dataclass
class Export(UserDirs, Command):
    """The options of the command."""

    run: Path = argument("a checkpoint, or a folder of them", "RUN")
    out: Path = option(REQUIRED, "the new folder", metavar="DIR")
    data: Path | None = option(
        None, "the prepared folder (default: the one that the model was trained on)", metavar="DIR"
    )
    int8: bool = option(
        False, "store 8-bit matrices, which are faster and take a quarter of the space"
    )
    format: str = option("onnx", "the format to write", choices=("onnx", "ctranslate2"))
    compare: str | None = option(
        None, "compare the outputs with torch's on this whole split instead of 20 texts; the "
        "command evaluate scores exports", choices=("valid", "test"),
    )  # fmt: skip
    licence: str | None = option(
        None, "the licence of the model, for config.json (default: none)", metavar="TEXT"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("compare", "licence") if self.format == "ctranslate2" else ():
            if getattr(self, name):
                raise ConfigurationError(f"--{name} needs --format onnx, not ctranslate2")


@command
@only_warnings_of_fairseq()
def main(args: Export) -> None:
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


def _comparisons(found: Any) -> list[str]:
    """The `Comparison` of an export as lines of text for the terminal."""
    lines = []
    if found.too_long:
        lines.append(
            f"skipped: {counted(found.too_long, 'sentences')} longer than the model's limit"
        )
    for agreement in found.agreements:
        output, texts, scores = agreement.words
        lines.append(
            f"{agreement.kind}: torch's {output} or a tie for {agreement.equal} of "
            f"{agreement.total} {texts}; {scores} differ by up to "
            f"{agreement.largest_difference:.1e}"
        )
    return lines
