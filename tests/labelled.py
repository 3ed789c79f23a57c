"""Labelled texts that a tiny model can learn: each label has words of its own."""

import random
from pathlib import Path
from typing import Any

from fairseq_plugins.cli import prepare_classification

SIZES = {"train": 60, "valid": 12, "test": 15}
KINDS = {
    "bad": "dull poor slow weak empty boring tired pale".split(),
    "good": "bright fine quick strong vivid lively fresh sharp".split(),
}

TINY = (
    "--arch encoder_classifier --encoder-layers 2 --encoder-embed-dim 24 --encoder-ffn-embed-dim 36"
    " --encoder-attention-heads 2 --mscffn-subspaces 6 --mscffn-expansion 2 --dropout 0"
).split()
TRAINING = (
    "--task classification --criterion sentence_prediction --max-positions 32 --optimizer adam"
    " --lr 0.01 --batch-size 16 --seed 1 --no-progress-bar --no-epoch-checkpoints"
    " --validate-interval 100 --save-interval 100"
).split()


def write_texts(folder: Path, sizes: dict[str, int] = SIZES) -> dict[str, Path]:
    """A file of `label <TAB> text` for each split."""
    generator = random.Random(3)
    files = {}
    for split, size in sizes.items():
        lines = []
        for number in range(size):
            label = sorted(KINDS)[number % 2]
            words = [generator.choice(KINDS[label]) for _ in range(generator.randint(1, 9))]
            lines.append(f"{label}\t{' '.join(words)} film")
        files[split] = folder / f"{split}.tsv"
        files[split].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files


def prepare(folder: Path, *options: Any) -> tuple[Path, dict[str, Path]]:
    """The prepared folder and the files it was made of; `--words` without other options."""
    files = write_texts(folder)
    words = [folder / "data", "--workers", 1, *(options or ["--words"])]
    for split, path in files.items():
        words += [f"--{split}", path]
    assert prepare_classification.main([str(word) for word in words]) == 0
    return folder / "data", files
