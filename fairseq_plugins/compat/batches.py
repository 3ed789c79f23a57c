"""Repair of batching: no sentence is dropped."""

from typing import Any, Callable, List

import numpy as np
from fairseq.data import data_utils

from fairseq_plugins.compat.patch import wrap
from fairseq_plugins.errors import ConfigurationError


def keep_the_last_batch() -> None:
    """Keep the last batch; ff drops it unless its size is a multiple of 8 (0.12.2 does not).

    With ff, 100 sentences give 96 translations and a score of those 96, without a warning. Fewer
    than 8 sentences, or none, give an error. The dropped sentences are the end of `indices` and
    form one batch within all limits, so they are appended.
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
                    "there are no sentences for a batch: the data is empty, or every sentence is "
                    "longer than --max-source-positions, --max-target-positions or --max-tokens"
                ) from None
            rest = indices[sum(len(batch) for batch in batches) :]
            return batches + [rest] if len(rest) > 0 else batches

        return batch_by_size

    wrap(data_utils, "batch_by_size", "keep_the_last_batch", make)
