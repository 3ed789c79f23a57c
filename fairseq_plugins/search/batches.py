"""Fill batches with texts of similar length."""

import sys
from collections.abc import Sequence
from typing import Any

MOST_BYTES = 1 << 30


def fill_batches(
    lengths: Sequence[int],
    max_tokens: int,
    most: int = sys.maxsize,
    kinds: Sequence[Any] | None = None,
    sizes: Sequence[int] | None = None,
    most_bytes: int | None = None,
) -> list[list[int]]:
    """Indices of texts in batches of similar length, the longest first.

    Args:
        lengths: tokens of each text.
        max_tokens: tokens in a batch, including padding; a longer text gets a batch of its own.
        most: maximum number of texts in a batch.
        kinds: the kind of each text; only texts of one kind share a batch.
        sizes: bytes that each text takes, estimated.
        most_bytes: a batch takes so many, or has one text; the default is `MOST_BYTES`.
    """
    texts = list(zip(kinds or [0] * len(lengths), lengths))
    sizes, room = sizes or [0] * len(lengths), most_bytes or MOST_BYTES
    batches: list[list[int]] = []
    largest = 0  # of the last batch
    for index in sorted(range(len(texts)), key=texts.__getitem__, reverse=True):
        if batches:
            batch, longest = batches[-1], lengths[batches[-1][0]]
            size = max(largest, sizes[index])
            fits = len(batch) < most and longest * (len(batch) + 1) <= max_tokens
            fits = fits and size * (len(batch) + 1) <= room
            if fits and texts[batch[0]][0] == texts[index][0]:
                batch.append(index)
                largest = size
                continue
        batches.append([index])
        largest = sizes[index]
    return batches
