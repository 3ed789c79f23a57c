"""Describe a folder of fairseq-preprocess, so that the other commands take it.

    fairseq-plugins adopt data-bin/wmt --bpe-codes bpe.codes --tokenizer moses --text raw
    fairseq-plugins adopt data-bin/own --sentencepiece spm.model --text raw

fairseq's folders do not record how text became tokens. This command writes preparation.json, copies
the subword model, and with --text the raw text of the splits, into DATA-BIN. After it, `evaluate`,
`translate`, `distill`, `export` and the Python classes take models trained on DATA-BIN.
"""

from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data.prepared_folder import check_data
from fairseq_plugins.errors import ConfigurationError, check_path
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import argument, option
from fairseq_plugins.text.processing import TOKENIZERS


@dataclass
class Adopt(Command):
    """The options of the command."""

    folder: Path = argument("a folder of fairseq-preprocess", "DATA-BIN")
    bpe_codes: Path | None = option(
        None, "the merges of subword-nmt or fastBPE that split the words", metavar="FILE",
        group="subwords",
    )  # fmt: skip
    sentencepiece: Path | None = option(
        None, "the SentencePiece model that split the text", metavar="FILE", group="subwords"
    )
    tokenizer: str = option("none", "what tokenised the text before", choices=TOKENIZERS)
    lowercase: bool = option(False, "the text was made lower-case before")
    text: Path | None = option(
        None, "the raw text, such as DIR/test.de and DIR/test.en, for `evaluate`", metavar="DIR"
    )
    source_lang: str | None = option(
        None, "the source language (default: that in the names of the data)", metavar="LANG",
        needs="target_lang",
    )  # fmt: skip
    target_lang: str | None = option(
        None, "the target language (default: that in the names of the data)", metavar="LANG",
        needs="source_lang",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.bpe_codes and not self.sentencepiece:
            raise ConfigurationError("how was the text split? Give --bpe-codes or --sentencepiece")
        check_data(self.folder, "DATA-BIN")
        check_path("DATA-BIN", self.folder)


@command
def main(args: Adopt) -> None:
    needs_fairseq("adopt")
    from fairseq_plugins.data.adopt import adopt

    kind = "bpe" if args.bpe_codes else "sentencepiece"
    pair = (args.source_lang, args.target_lang) if args.source_lang and args.target_lang else None
    model = args.bpe_codes or args.sentencepiece
    assert model is not None
    splits = adopt(args.folder, pair, kind, model, args.tokenizer, args.lowercase, args.text)
    told = f"the text of {', '.join(splits)}" if splits else "no text: evaluate needs --text"
    print(f"{args.folder} can be used as a prepared folder; it has {told}")
