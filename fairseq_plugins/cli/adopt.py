"""Describe a folder of fairseq-preprocess, so that the other commands take it.

    python -m fairseq_plugins adopt data-bin/wmt --bpe-codes bpe.codes --tokenizer moses --text raw
    python -m fairseq_plugins adopt data-bin/own --sentencepiece spm.model --text raw

fairseq's folders do not tell how text became tokens. This command writes preparation.json, copies
the subword model, and with --text the raw text of the splits, into DATA-BIN. After it, `evaluate`,
`translate`, `distill`, `export` and the Python classes take models trained on DATA-BIN.
"""

from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.errors import ConfigurationError, check_path
from fairseq_plugins.options.arguments import add_flag, add_path, parser_of
from fairseq_plugins.text.processing import TOKENIZERS


def main(argv: Sequence[str]) -> int:
    parser = parser_of("adopt", __doc__)
    parser.add_argument("folder", type=Path, metavar="DATA-BIN", help="of fairseq-preprocess")
    how = parser.add_mutually_exclusive_group(required=True)
    add_path(how, "--bpe-codes", "FILE", "merges of subword-nmt or fastBPE that split the words")
    add_path(how, "--sentencepiece", "FILE", "model of SentencePiece that split the text")
    parser.add_argument(
        "--tokenizer", choices=TOKENIZERS, default="none",
        help="what tokenised the text before (default: %(default)s)",
    )  # fmt: skip
    add_flag(parser, "--lowercase", "the text was made lower-case before")
    add_path(
        parser, "--text", "DIR", "raw text, such as DIR/test.de and DIR/test.en, for `evaluate`"
    )
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-lang", metavar="LANG", help="default: of the names in DATA-BIN"
        )
    args = parser.parse_args(argv)
    if bool(args.source_lang) != bool(args.target_lang):
        raise ConfigurationError("--source-lang and --target-lang belong together: give both")
    if not args.folder.is_dir():
        raise ConfigurationError(f"DATA-BIN {args.folder}: no such folder")
    check_path("DATA-BIN", args.folder)
    needs_fairseq("adopt")
    from fairseq_plugins.data.adopt import adopt

    subword, model = ("bpe", args.bpe_codes) if args.bpe_codes else ("sentencepiece", None)
    pair = (args.source_lang, args.target_lang) if args.source_lang else None
    splits = adopt(
        args.folder, pair, subword, model or args.sentencepiece, args.tokenizer, args.lowercase,
        args.text,
    )  # fmt: skip
    told = f"the text of {', '.join(splits)}" if splits else "no text: evaluate needs --text"
    print(f"{args.folder} can be used as a prepared folder; it has {told}")
    return 0
