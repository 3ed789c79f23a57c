"""The model inside the wrappers of parallel training, and how its output maps to positions."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def unwrap(model: Any) -> list[Any]:
    """The model that a criterion gets, and all models that it wraps, from outside to inside."""
    models = [model]
    while isinstance(getattr(models[-1], "module", None), nn.Module):
        models.append(models[-1].module)
    return models


@contextmanager
def packed_output(model: Any) -> Iterator[None]:
    """Context in which the decoder returns one row per real position, if it computes only those.

    See `Decoder.extract_packed_features`. Other decoders are not changed.
    """
    decoder: Any = getattr(unwrap(model)[-1], "decoder", None)
    if not hasattr(decoder, "packed_output"):
        yield
        return
    decoder.packed_output = True
    try:
        yield
    finally:
        decoder.packed_output = False


def positions_of(extra: Any, mask: Tensor) -> Tensor:
    """The positions of a flattened batch that the rows of a model's output stand for, ascending.

    Args:
        extra: the second result of the model's forward.
        mask: of the shape of the batch.
    """
    if isinstance(extra, dict) and "positions" in extra:
        return extra["positions"][0]
    return torch.arange(mask.numel(), device=mask.device)


def sentences_of_rows(extra: Any) -> Tensor | None:
    """The sentence of each target row, if a model computed on rows (`models/packed.py`), or None.

    Rows of padding have finite values.
    """
    return extra["rows"][0] if isinstance(extra, dict) and "rows" in extra else None
