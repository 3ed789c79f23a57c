"""Fill batches with texts of similar length."""

import sys
from typing import Any, List, Optional, Sequence


def fill_batches(
    lengths: Sequence[int],
    max_tokens: int,
    most: int = sys.maxsize,
    kinds: Optional[Sequence[Any]] = None,
) -> List[List[int]]:
    """Indices of texts in batches of similar length, the longest first.

    Args:
        lengths: tokens of each text.
        max_tokens: tokens in a batch, including padding; a longer text gets a batch of its own.
        most: maximum number of texts in a batch.
        kinds: the kind of each text; only texts of one kind share a batch.
    """
    texts = list(zip(kinds or [0] * len(lengths), lengths))
    batches: List[List[int]] = []
    for index in sorted(range(len(texts)), key=texts.__getitem__, reverse=True):
        if batches:
            batch, longest = batches[-1], lengths[batches[-1][0]]
            fits = len(batch) < most and longest * (len(batch) + 1) <= max_tokens
            if fits and texts[batch[0]][0] == texts[index][0]:
                batch.append(index)
                continue
        batches.append([index])
    return batches
