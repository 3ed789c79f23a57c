"""Fill batches with texts of similar length."""

import sys
from typing import Any, Callable, List, Optional, Sequence


def fill_batches(
    lengths: Sequence[int],
    max_tokens: int,
    most: int = sys.maxsize,
    kind: Optional[Callable[[int], Any]] = None,
) -> List[List[int]]:
    """Indices of texts in batches of similar length, the longest first.

    Args:
        lengths: tokens of each text.
        max_tokens: tokens in a batch, padding included; a longer text is a batch by itself.
        most: texts in a batch.
        kind: texts share a batch only if this has one value for their lengths.
    """
    batches: List[List[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batches:
            batch, longest = batches[-1], lengths[batches[-1][0]]
            fits = len(batch) < most and longest * (len(batch) + 1) <= max_tokens
            if fits and (kind is None or kind(longest) == kind(lengths[index])):
                batch.append(index)
                continue
        batches.append([index])
    return batches
