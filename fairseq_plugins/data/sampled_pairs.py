"""Training data of a language pair with newly sampled subwords in each epoch."""

import logging
import math
import time
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset, LanguagePairDataset
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError

logger = logging.getLogger(__name__)


class SampledPairs(BaseWrapperDataset):
    """`pairs`, where `set_epoch` samples new segmentations of both sides.

    Segmentations depend only on seed and epoch. All sentences are sampled at the start of an
    epoch, so that batches and length limits use the sizes of the sampled sentences. The words are
    those of the data: their pieces are joined and segmented again. Words that the sampler's
    `prepare` rejects keep the pieces of the data. So do all words of a sentence whose sample
    exceeds its limit, because fairseq would skip it in this epoch.

    Args:
        pairs: fairseq's dataset, without buckets.
        source, target: the samplers of both sides (see `subword_sampling`).
        seed: the seed of the training.
        limits: the maximum tokens of a source and of a target.

    Raises:
        ConfigurationError: a sampler rejects most words, as the data was split with another
            subword model.
    """

    def __init__(
        self,
        pairs: LanguagePairDataset,
        source: Any,
        target: Any,
        seed: int,
        limits: Sequence[float] = (math.inf, math.inf),
    ):
        super().__init__(pairs)
        self.seed, self.epoch, self.limits = seed, 0, limits
        self.sides = [
            _Words(pairs.src, source, pairs.src_dict, "source"),
            _Words(pairs.tgt, target, pairs.tgt_dict, "target"),
        ]

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        return False  # batches depend on lengths, which change with every epoch

    def set_epoch(self, epoch: int) -> None:
        """Sample the sentences of an epoch, unless it is the current one."""
        super().set_epoch(epoch)
        if epoch == self.epoch:
            return
        begun = time.perf_counter()
        pairs = self.dataset
        source, target = (
            words.draw(Random(f"{self.seed} {epoch} {words.name}"), limit)
            for words, limit in zip(self.sides, self.limits)
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
    """Sentences stored one after the other in an array; an item is int64 of length T."""

    def __init__(self, tokens: np.ndarray, sizes: np.ndarray):
        self.tokens, self.sizes = tokens, sizes
        self.ends = np.cumsum(sizes)

    def __getitem__(self, index: int) -> Tensor:
        end = self.ends[index]
        return torch.from_numpy(self.tokens[end - self.sizes[index] : end].astype(np.int64))

    def __len__(self) -> int:
        return len(self.sizes)


class _Words:
    """The sentences of one side as indices of words, for which a sampler draws pieces."""

    def __init__(self, sentences: Any, sampler: Any, dictionary: Any, name: str):
        self.name, self.sampler, self.usual = name, sampler, 0
        # what the sampler prepared for each word (None: not sampled), and its usual pieces
        self.words: list[tuple[Any, tuple[int, ...]]] = []
        self.sentences: list[np.ndarray] = []  # indices of `words`, int32
        numbers: dict[tuple[int, ...], int] = {}
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
                f"are not split as the {sampler.file_name} beside the data does; give a folder "
                "whose data was split with it"
            )

    def draw(self, random: Random, limit: float) -> _Sentences:
        """Sample segmentations of all sentences, of at most `limit` tokens where possible."""
        self.sampler.begin(random.random)
        draw, words = self.sampler.draw, self.words
        tokens: list[int] = []
        sizes = np.empty(len(self.sentences), dtype=np.int64)
        parts = []
        for index, sentence in enumerate(self.sentences):
            before = len(tokens)
            for number in sentence.tolist():
                word, usual = words[number]
                tokens += usual if word is None else draw(word)
            if len(tokens) - before > limit:
                del tokens[before:]
                for number in sentence.tolist():
                    tokens += words[number][1]
            sizes[index] = len(tokens) - before
            if len(tokens) > 1000000:  # a list needs ten times the memory of an array
                parts.append(np.array(tokens, dtype=np.int32))
                tokens = []
        parts.append(np.array(tokens, dtype=np.int32))
        return _Sentences(np.concatenate(parts), sizes)
