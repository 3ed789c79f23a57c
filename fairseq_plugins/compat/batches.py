"""Batches that hold every sentence."""

from typing import Any, Callable, List

import numpy as np
from fairseq.data import data_utils

from fairseq_plugins.compat.patch import wrap
from fairseq_plugins.errors import ConfigurationError


def keep_the_last_batch() -> None:
    """ff drops the last batch unless its size is a multiple of 8 (not in 0.12.2).

    100 sentences give 96 translations, and the score of the 96 is printed as that of all. Fewer
    than 8 give an error, and no sentence at all an IndexError. The sentences that the original
    drops are the end of `indices`: one batch, within all limits.
    """

    def make(original: Callable) -> Callable:
        def batch_by_size(indices: Any, *args: Any, **kwargs: Any) -> List[Any]:
            if not isinstance(indices, np.ndarray):
                indices = np.fromiter(indices, dtype=np.int64, count=-1)
            try:
                batches = original(indices, *args, **kwargs)
            except IndexError:
                if len(indices) > 0:
                    raise
                raise ConfigurationError(
                    "no sentence to make a batch of: the data is empty, or every sentence is "
                    "longer than --max-source-positions, --max-target-positions or --max-tokens"
                ) from None
            rest = indices[sum(len(batch) for batch in batches) :]
            return batches + [rest] if len(rest) > 0 else batches

        return batch_by_size

    wrap(data_utils, "batch_by_size", "keep_the_last_batch", make)
