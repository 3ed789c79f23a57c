#!/usr/bin/env python3
"""Learn a SentencePiece model on both sides of train, and cut all splits into pieces with it.

    python scripts/sentencepiece_corpus.py RAW_DIR OUT_DIR --langs de en --vocab-size 4000

reads RAW_DIR/{train,valid,test}.{de,en}, writes OUT_DIR/sentencepiece.bpe.model and the pieces,
separated by spaces, to OUT_DIR/{train,valid,test}.{de,en}. `fairseq-generate --remove-bpe
sentencepiece` undoes it, and `fairseq-interactive --bpe sentencepiece` does and undoes it.
"""

import argparse
import sys
from pathlib import Path
from typing import Optional, Sequence

import sentencepiece

MODEL = "sentencepiece.bpe.model"
SPLITS = ("train", "valid", "test")


def learn(files: Sequence[Path], model: Path, vocab_size: int, threads: int) -> None:
    """Learn byte-pair pieces on `files`; every character of them gets a piece."""
    try:
        sentencepiece.SentencePieceTrainer.train(
            input=",".join(str(path) for path in files),
            model_prefix=str(model.with_suffix("")),
            vocab_size=vocab_size,
            model_type="bpe",
            character_coverage=1.0,
            num_threads=threads,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).splitlines()[-1]
        raise SystemExit(
            f"sentencepiece_corpus: --vocab-size {vocab_size} does not fit this text: {reason}"
        ) from None


def encode(processor: sentencepiece.SentencePieceProcessor, source: Path, target: Path) -> None:
    """Cut a file into pieces, line by line."""
    with open(source, encoding="utf-8", newline="\n") as lines, open(
        target, "w", encoding="utf-8", newline="\n"
    ) as out:
        for line in lines:
            out.write(" ".join(processor.encode(line.rstrip("\n"), out_type=str)) + "\n")


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("raw", type=Path, metavar="RAW_DIR")
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--langs", nargs=2, required=True, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--vocab-size", type=int, default=4000)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    model = args.out / MODEL
    learn([args.raw / f"train.{lang}" for lang in args.langs], model, args.vocab_size, args.threads)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    for split in SPLITS:
        for lang in args.langs:
            encode(processor, args.raw / f"{split}.{lang}", args.out / f"{split}.{lang}")
    print(f"{processor.get_piece_size()} pieces for both languages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
