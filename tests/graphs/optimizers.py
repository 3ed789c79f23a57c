"""fairseq's optimizers, built without a trainer."""

from types import SimpleNamespace
from typing import Any

import torch
from fairseq.optim import FairseqOptimizer, FP16Optimizer
from fairseq.optim.adam import Adam


class Inner(FairseqOptimizer):
    """fairseq's Adam, or another optimizer of torch."""

    def __init__(self, parameters: list[Any], kind: Any = Adam, **options: Any):
        super().__init__(None)
        self._optimizer = kind(parameters, **options)


def in_half(
    parameters: list[Any], flat: bool = False, scale: float = 0.0, **options: Any
) -> FP16Optimizer:
    """fairseq's optimizer of a model in half precision; a scale of the loss of 0 means bfloat16."""
    common = SimpleNamespace(
        bf16=not scale,
        fp16_scale_window=8,
        fp16_init_scale=scale,
        fp16_scale_tolerance=0.0,
        threshold_loss_scale=None,
        min_loss_scale=1e-4,
    )
    masters = [torch.nn.Parameter(p.detach().float()) for p in parameters]
    if flat:  # as without --fp16-no-flatten-grads
        masters = [torch.nn.Parameter(torch.cat([p.detach().flatten() for p in masters]))]
    for p in masters:
        p.grad = torch.zeros_like(p)
    kept = {parameters[0].device.index: masters[0]} if flat else masters
    cfg = SimpleNamespace(optimizer=None, common=common)
    return FP16Optimizer(cfg, parameters, Inner(masters, **options), kept)
