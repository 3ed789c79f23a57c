"""Impressions as batches: the titles of their news, once each, and who clicked and was shown which.

An impression is stored as integers: the length of the history, the news of the history, and for
each news that was shown ``2 * news + clicked``. In train there is one for each click, with the news
of its impression that were not clicked.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset, data_utils

Sample = dict[str, Any]


def pack(history: Sequence[int], shown: Sequence[int], clicked: Sequence[bool]) -> list[int]:
    """The stored form of an impression."""
    return [len(history), *history, *(2 * news + click for news, click in zip(shown, clicked))]


class Impressions(FairseqDataset):
    """The impressions of a split.

    Args:
        rows: the stored impressions.
        titles: the tokens of each news.
        pad: the index of padding.
        max_history: how many of the latest clicks are read.
        negatives: how many of the news that were not clicked are sampled, anew in each epoch; with
            replacement where there are fewer. None for all candidates, in their order.
        seed: of these samples, with the epoch and the index.
    """

    def __init__(
        self,
        rows: Any,
        titles: Sequence[Any],
        pad: int,
        max_history: int,
        negatives: int | None,
        seed: int,
    ):
        self.rows, self.titles, self.pad = rows, titles, pad
        self.max_history, self.negatives, self.seed = max_history, negatives, seed
        self.sizes = np.array(rows.sizes)
        self.epoch = 1

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Sample:
        row = self.rows[index].numpy()
        history, shown = np.split(row[1:], row[:1])
        news, clicked = shown // 2, shown % 2 == 1
        if self.negatives is not None:
            (others,) = np.nonzero(~clicked)
            with data_utils.numpy_seed(self.seed, self.epoch, index):
                few = len(others) < self.negatives
                others = np.random.choice(others, self.negatives, replace=few)
            chosen = np.concatenate([np.flatnonzero(clicked), others])
            news, clicked = news[chosen], clicked[chosen]
        return {
            "id": index,
            "history": history[-self.max_history :],
            "candidates": news,
            "clicked": clicked,
        }

    def collater(self, samples: list[Sample]) -> Sample:
        """A batch for `NewsRecommenderModel`; "target" is bool, B x C: which were clicked."""
        if not samples:
            return {}
        lists = [sample[name] for name in ("history", "candidates") for sample in samples]
        different, places = np.unique(np.concatenate(lists), return_inverse=True)
        numbers = np.split(places, np.cumsum([len(each) for each in lists])[:-1])
        titles = data_utils.collate_tokens([self.titles[n] for n in different], self.pad)
        count = len(samples)
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": count,
            "ntokens": int((titles != self.pad).sum()),
            "net_input": {
                "titles": titles,
                "history": _pad(numbers[:count], -1),
                "candidates": _pad(numbers[count:], -1),
            },
            "target": _pad([sample["clicked"] for sample in samples], False),
        }

    def num_tokens(self, index: int) -> int:
        return int(self.sizes[index])

    def size(self, index: int) -> int:
        return int(self.sizes[index])

    def ordered_indices(self) -> np.ndarray:
        """In training a random order; elsewhere that of the file."""
        if self.negatives is None:
            return np.arange(len(self))
        return np.random.permutation(len(self))

    def filter_indices_by_size(self, indices: np.ndarray, max_sizes: Any) -> Any:
        """Keep all: titles and histories are cut, and all candidates are read."""
        return indices, []

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        return self.negatives is None

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def _pad(rows: Sequence[Any], fill: int) -> torch.Tensor:
    """Arrays of different lengths as B x the longest (at least 1), with `fill` after them."""
    return data_utils.collate_tokens([torch.as_tensor(row) for row in rows], fill, pad_to_length=1)
