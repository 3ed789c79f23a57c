"""Tiny models that have learnt made-up text, with their data and exports, made by real commands."""

import importlib
import os
import random
from contextlib import contextmanager
from pathlib import Path

from fairseq.data import Dictionary, data_utils

from fairseq_plugins.files import write_lines

NOUNS = {
    "der Hund": "the dog", "die Katze": "the cat", "das Mädchen": "the girl",
    "der Bär": "the bear", "Müllers": "the Millers", "Zoë": "Zoe",
}  # fmt: skip
VERBS = {"schläft": "sleeps", "läuft": "runs", "ißt": "eats", "singt's": "sings it"}
ENDS = {"heute.": "today.", "nie!": "never!", "jetzt?": "now?", "\u201egern\u201c.": '"gladly".'}

SIZES = {"train": 150, "valid": 12, "test": 8}


def write_pairs(folder, names, line, sizes):
    generator = random.Random(7)
    folder.mkdir(parents=True)
    for split, size in sizes.items():
        pairs = [line(generator) for _ in range(size)]
        for side, name in enumerate(names):
            text = "".join(pair[side] + "\n" for pair in pairs)
            (folder / f"{split}.{name}").write_text(text, encoding="utf-8")


def sentence(generator):
    words = [generator.choice(list(part.items())) for part in (NOUNS, VERBS, ENDS)]
    source, target = (" ".join(word[side] for word in words) for side in (0, 1))
    return source[0].upper() + source[1:], target[0].upper() + target[1:]


def weather(generator):
    days = generator.choices("Rain Snow Wind Hail Fog Sun".split(), k=generator.randint(2, 6))
    document = " ".join(f"{day} fell." for day in days)
    return document, f"{days[0]} first. <q> {days[-1]} last."


TRAINING = (
    "--encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2"
    " --decoder-embed-dim 16 --decoder-ffn-embed-dim 16 --decoder-attention-heads 2"
    " --decoder-layers 1 --share-all-embeddings --dropout 0.1 --optimizer adam"
    " --adam-betas (0.9,0.98) --lr 0.02 --lr-scheduler inverse_sqrt --warmup-updates 20"
    " --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --clip-norm 1"
    " --max-tokens 400 --seed 1 --max-update 155 --no-epoch-checkpoints --save-dir run --cpu"
).split(" ")
TRANSLATES = "--task translation --arch transformer_ftc --encoder-blocks 1,1".split()
SUMMARIZES = (
    "--task summarization --max-source-positions 40 --max-target-positions 60 --truncate-source"
    " --arch fastformer_encoder --encoder-layers 1 --copy-attention"
).split()
PREPARE = (
    "data --workers 1 --train raw/train --valid raw/valid --test raw/test --vocab-size".split()
)


@contextmanager
def within(folder):
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def call(command, *words):
    module = importlib.import_module("fairseq_plugins.cli." + command.replace("-", "_"))
    assert module.main([str(word) for word in words]) == 0


def prepare(folder, text, *words, languages=("de", "en"), name="data"):
    """The folder that prepare-translation makes of {split: (source lines, target lines)}."""
    given = ["--source-lang", languages[0], "--target-lang", languages[1], "--workers", 1]
    for split, sides in text.items():
        for language, lines in zip(languages, sides, strict=True):
            write_lines(folder / f"{split}.{language}", lines)
        given += [f"--{split}", folder / split]
    call("prepare-translation", folder / name, *given, *words)
    return folder / name


def binarised(prefix):
    """The sentences of binary data such as train.de-en.de, as subwords."""
    dictionary = Dictionary.load(str(prefix.with_name(f"dict{prefix.suffix}.txt")))
    data = data_utils.load_indexed_dataset(str(prefix), dictionary)
    return [dictionary.string(data[i]) for i in range(len(data))]


def translation(folder, run_train, subword, size):
    """`data` (150, 12 and 8 pairs), `run` and `export` of a translator, German to English."""
    folder.mkdir()
    with within(folder):
        write_pairs(Path("raw"), ("de", "en"), sentence, SIZES)
        languages = "--source-lang de --target-lang en --joined-dictionary --subword".split()
        call("prepare-translation", *PREPARE, size, *languages, subword)
        run_train("data", *TRANSLATES, *TRAINING)
        call("export", "run", "--out", "export")


def summarization(folder, run_train):
    """`data` and `run` of a summarizer that copies."""
    folder.mkdir()
    with within(folder):
        write_pairs(Path("raw"), ("source", "target"), weather, SIZES)
        call("prepare-summarization", *PREPARE, 28)
        run_train("data", *SUMMARIZES, *TRAINING)
