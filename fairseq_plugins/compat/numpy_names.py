"""Repairs of names that numpy 1.24 and 2 removed."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from fairseq.data import data_utils, language_pair_dataset, token_block_dataset
from fairseq.modules import dynamic_crf_layer

from fairseq_plugins.compat.patch import overlay, repair

MODULES = (data_utils, dynamic_crf_layer, language_pair_dataset, token_block_dataset)


@repair()
def keep_old_numpy_names() -> None:
    """Repair `--num-batch-buckets` and `--sample-break-mode eos` with numpy 1.24 or newer."""
    for module in MODULES:
        overlay(
            module, "np", int=int, float=float, compat=SimpleNamespace(long=int),
            percentile=_percentile,
        )  # fmt: skip


def _percentile(values: Any, q: Any, interpolation: str = "linear") -> Any:
    """np.percentile with the old name of the argument `method`."""
    return np.percentile(values, q, method=interpolation)  # type: ignore[call-overload]
