"""Language pairs: sentences in two languages, from any raw text."""

import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.data.binary import Encoder, Pieces, Words
from fairseq_plugins.data.cleaning import Limits
from fairseq_plugins.data.pipeline import TOKENS, Shards, Task
from fairseq_plugins.data.prepared_folder import Record
from fairseq_plugins.data.readers import Example, Inputs, parse_texts, parsed
from fairseq_plugins.files import read_lines
from fairseq_plugins.options.fields import option
from fairseq_plugins.system.progress import progress_bar
from fairseq_plugins.text.languages import main_script
from fairseq_plugins.text.processing import Processing
from fairseq_plugins.text.protection import SYMBOL, SYMBOLS, Protection
from fairseq_plugins.text.subwords import KINDS

# settings that belong to a subword model and its dictionaries
SHARED_BY_LIKE = (
    "tokenizer", "lowercase", "subword", "vocab_size", "joined_dictionary", "moses_codes",
    "normalization", "protect", "protect_patterns",
)  # fmt: skip
SCRIPT_LINES = 1000  # of train, to detect the script of a language


class Pairs(Task):
    """Sentence pairs. Unfit ones are left out of train; valid and test stay whole.

    Args:
        settings: those of `Processing` and `Limits`, `vocab_size`, `joined_dictionary` and
            `valid_every` (every n-th pair is held out; or None).
        splits: those of the corpus; valid may be among them or be held out.
        terms: see `Protection`; for one half of the training pairs.
    """

    units, texts = "pairs", TOKENS
    complete, names = True, False

    def __init__(
        self,
        settings: dict[str, Any],
        splits: Sequence[str],
        terms: Mapping[str, str] | None = None,
    ):
        super().__init__(settings, splits)
        self.valid_every, self.subword = settings["valid_every"], settings["subword"]
        self.sides = (settings["source_lang"], settings["target_lang"])
        if self.valid_every:
            self.splits = ("train", "valid", *(split for split in splits if split == "test"))
        self.processing, self.limits = Processing.of(settings), Limits.of(settings)
        self.protection = self.processing.protection
        self.symbols = SYMBOLS if self.protection is not None else ()
        self._with_terms = self.protection
        if terms is not None:
            self._with_terms = Protection(self.processing.protect_patterns or (), terms)
        self._tokenise = [self.processing.tokenise(language) for language in self.sides]

    def convert(self, example: Example) -> tuple[str, tuple[str, ...]]:
        raw = example.source, example.target
        protection = self.protection
        if example.split == "train" and zlib.crc32(raw[0].encode("utf-8")) & 64:
            protection = self._with_terms  # the other half teaches the terms themselves
        texts = raw if protection is None else protection.protect_pair(*raw)
        source, target = (tokenise(text) for tokenise, text in zip(self._tokenise, texts))
        problem = None
        if example.split == "train":
            before = self.processing.tokenised_before
            problem = self.limits.reason_against(source, target, before)
        return problem or "", (*raw, source, target)

    def samples(self, folder: Path) -> list[Path]:
        return [folder / TOKENS / f"train.{language}" for language in self.sides]

    def encoders(self, model: Any, threads: int) -> tuple[Encoder, Encoder]:
        numbers = Words(model.cut) if self.subword == "bpe" else Pieces(model, threads)
        return Encoder(numbers), Encoder(numbers)

    def advice(self, read: int, reasons: dict[str, int]) -> str:
        return Limits.advice(self.settings, read, reasons)

    def notes(self, folder: Path, results: dict[str, Any]) -> list[str]:
        results["in_train"] = also_in_train(folder / TOKENS, self.splits, self.sides)
        lines = [
            f"fairseq-generate takes --remove-bpe {KINDS[self.processing.subword].fairseq_name}"
        ]
        lines += filter(None, [self.advice(results["read"], results["removed"])])
        if self.valid_every:
            lines += [
                f"One in {self.valid_every} of the pairs is for validation, and not for training"
            ]
        also = [
            f"{split} {same:,} of {results['examples'][split]:,}"
            for split, same in results["in_train"].items()
            if same
        ]
        if also:
            lines += ["Pairs that are in the training set, too: " + ", ".join(also)]
        if not self.settings["joined_dictionary"]:
            lines += ["Small settings need one: --joined-dictionary, or join-dictionaries later"]
        if self.protection is not None:
            texts = read_lines(folder / TOKENS / f"train.{self.sides[0]}")
            count = sum(SYMBOL.search(text) is not None for text in texts)
            lines += [f"Both sides of {count:,} training pairs have the same protected text"]
        return lines


def also_in_train(folder: Path, splits: Sequence[str], languages: Sequence[str]) -> dict[str, int]:
    """The number of pairs of each other split whose tokens also occur in train."""

    def pairs(split: str) -> Iterator[tuple[bytes, bytes]]:
        paths = (folder / f"{split}.{language}" for language in languages)
        with open(next(paths), "rb") as source, open(next(paths), "rb") as target:
            yield from zip(source, target)

    others = {split: list(pairs(split)) for split in splits if split != "train"}
    wanted = set(itertools.chain.from_iterable(others.values()))
    train = wanted.intersection(progress_bar(pairs("train"), description="pairs compared"))
    return {split: sum(pair in train for pair in found) for split, found in others.items()}


@dataclass
class SubwordsOfPairs(Shards):
    """The options that every preparation of a language pair has."""

    subword: str | None = option(
        None, "byte-pair encoding by subword-nmt, or SentencePiece (default: sentencepiece; bpe "
        "with --tokenizer)", choices=sorted(KINDS),
    )  # fmt: skip
    vocab_size: int = option(
        10000, "the maximum number of merges of BPE, or of SentencePiece's subwords, learnt on "
        "both sides of the training set", least=1,
    )  # fmt: skip
    joined_dictionary: bool | None = option(
        None, "one dictionary for both sides, which --share-all-embeddings needs, or two (default: "
        "one where both languages share a script)",
    )  # fmt: skip


def subword_settings(args: SubwordsOfPairs) -> dict[str, Any]:
    """The settings of a preparation from these options."""
    return {
        "subword": args.subword,
        "vocab_size": args.vocab_size,
        "joined_dictionary": bool(args.joined_dictionary),
        **args.sharding,
    }


def fits_one_dictionary(destination: Path, inputs: Inputs) -> bool:
    """Whether both languages share a dictionary if no option decides.

    If the folder exists, as it has; else whether most letters at the start of train are of one
    script.
    """
    stored = Record.read(destination).settings.get("joined_dictionary")
    if stored is not None:
        return bool(stored)
    corpus = inputs.corpus(parse_texts)
    start = [parsed(corpus.parse, item) for item in itertools.islice(corpus.items, SCRIPT_LINES)]
    sides = zip(*((example.source, example.target) for example in start))
    return len({main_script(side) for side in sides}) == 1
