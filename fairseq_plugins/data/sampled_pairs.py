"""A language pair's training data, cut into subwords anew for each epoch."""

import logging
import time
from random import Random
from typing import Any, Dict, List, Tuple

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset, LanguagePairDataset
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError

logger = logging.getLogger(__name__)


class SampledPairs(BaseWrapperDataset):
    """`pairs` with both sides cut anew by `set_epoch`, a function of seed and epoch alone.

    All sentences are drawn when an epoch begins, so that sizes, and with them the batches and what
    is too long, are those of the sentences that are trained on. Words are those of the data: pieces
    are joined, and cut again. What is no word of the subword model stays as it is.

    Args:
        pairs: fairseq's dataset, without buckets.
        source, target: samplers of its sides (see `subword_sampling`).
        seed: of the training.

    Raises:
        ConfigurationError: most words are not cut as the subword model does it.
    """

    def __init__(self, pairs: LanguagePairDataset, source: Any, target: Any, seed: int):
        super().__init__(pairs)
        self.seed, self.epoch = seed, 0
        self.sides = [
            _Words(pairs.src, source, pairs.src_dict, "source"),
            _Words(pairs.tgt, target, pairs.tgt_dict, "target"),
        ]

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        return False  # batches depend on lengths

    def set_epoch(self, epoch: int) -> None:
        """Draw the sentences of an epoch."""
        super().set_epoch(epoch)
        if epoch == self.epoch:
            return
        begun = time.perf_counter()
        pairs = self.dataset
        source, target = (
            words.draw(Random(f"{self.seed} {epoch} {words.name}")) for words in self.sides
        )
        pairs.src, pairs.src_sizes = source, source.sizes
        pairs.tgt, pairs.tgt_sizes = target, target.sizes
        pairs.sizes = np.vstack((source.sizes, target.sizes)).T
        self.epoch = epoch
        more = [len(s.tokens) / w.usual for s, w in zip((source, target), self.sides)]
        logger.info(
            f"drew subwords of epoch {epoch} in {time.perf_counter() - begun:.1f} s: "
            f"{more[0]:.2f} and {more[1]:.2f} times as many as usual"
        )


class _Sentences(torch.utils.data.Dataset):
    """Sentences that stand one after the other in an array."""

    def __init__(self, tokens: np.ndarray, sizes: np.ndarray):
        self.tokens, self.sizes = tokens, sizes
        self.ends = np.cumsum(sizes)

    def __getitem__(self, index: int) -> Tensor:
        end = self.ends[index]
        return torch.from_numpy(self.tokens[end - self.sizes[index] : end].astype(np.int64))

    def __len__(self) -> int:
        return len(self.sizes)


class _Words:
    """The sentences of one side as words, of which a sampler draws pieces."""

    def __init__(self, sentences: Any, sampler: Any, dictionary: Any, name: str):
        self.name, self.sampler, self.usual = name, sampler, 0
        self.words: List[Tuple[Any, Tuple[int, ...]]] = []  # for the sampler or None; usual pieces
        self.sentences: List[np.ndarray] = []  # numbers of words
        numbers: Dict[Tuple[int, ...], int] = {}
        symbols = dictionary.symbols
        for index in range(len(sentences)):
            tokens = sentences[index].tolist()
            self.usual += len(tokens)
            pieces = [symbols[token] for token in tokens]
            found, start = [], 0
            for end in range(1, len(tokens) + 1):
                special = tokens[end - 1] < dictionary.nspecial
                next_special = end < len(tokens) and tokens[end] < dictionary.nspecial
                if special or next_special or sampler.is_word_end(pieces, end):
                    word = tuple(tokens[start:end])
                    number = numbers.setdefault(word, len(self.words))
                    if number == len(self.words):
                        known = None if special else sampler.prepare(pieces[start:end])
                        self.words.append((known, word))
                    found.append(number)
                    start = end
            self.sentences.append(np.array(found, dtype=np.int32))
        ordinary = [known for known, word in self.words if word[0] >= dictionary.nspecial]
        missing = sum(known is None for known in ordinary)
        if missing > len(ordinary) / 2:
            raise ConfigurationError(
                f"{sampler.option} cannot be used: {missing:,} of {len(ordinary):,} {name} words "
                f"are not cut as the {sampler.file_name} beside the data does it; give a folder "
                "whose data was cut with it"
            )

    def draw(self, random: Random) -> _Sentences:
        """All sentences, freshly cut."""
        self.sampler.begin(random.random)
        draw, words = self.sampler.draw, self.words
        tokens: List[int] = []
        sizes = np.empty(len(self.sentences), dtype=np.int64)
        parts = []
        for index, sentence in enumerate(self.sentences):
            before = len(tokens)
            for number in sentence.tolist():
                word, usual = words[number]
                tokens += usual if word is None else draw(word)
            sizes[index] = len(tokens) - before
            if len(tokens) > 1000000:  # a list takes ten times the memory
                parts.append(np.array(tokens, dtype=np.int32))
                tokens = []
        parts.append(np.array(tokens, dtype=np.int32))
        return _Sentences(np.concatenate(parts), sizes)
