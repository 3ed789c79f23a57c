"""The loss on the validation set, by captured forward passes, in a training with --cuda-graphs.

Every validation has the same batches, so a shape of a batch that comes again is captured. Batches
are packed as in training; fairseq's own stay beside them, for the search that computes BLEU.
"""

from collections.abc import Callable
from typing import Any

import torch
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_plugins.compat.patch import around
from fairseq_plugins.data.packed_batches import Collate, PackedBatch, Shape, pack
from fairseq_plugins.graphs.captured_step import LOSS, Captures
from fairseq_plugins.models import packed


class CapturedLoss(Captures):
    """The loss of a batch, by a graph of the forward pass; see `Captures` for the arguments."""

    of_what = " of the loss on the validation set"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.met: set[Shape] = set()

    def __call__(self, batch: PackedBatch) -> tuple[Tensor, int, dict[str, Any]] | None:
        """Compute what the criterion returns in evaluation: the loss, the size and what is logged.

        Args:
            batch: on the CPU.

        Returns:
            None for a shape that is met for the first time, or cannot be captured.
        """
        if self.can_capture(batch) and batch.shape in self.met:
            self.model.eval()
            self.capture(batch)
        self.met.add(batch.shape)
        sums = self.replay(batch)
        return None if sums is None else self.outputs(batch, sums)

    @torch.no_grad()
    def once(self, shape: Shape, numbers: Tensor) -> Tensor:
        """Compute the loss of a batch; returns the sums of the criterion's logging output."""
        model = packed.PackedModel(self.model, numbers, shape)
        _, _, log = self.criterion(model, model.sample(1, 1))
        return self.stack(log, torch.float32)


class _Collate(Collate):
    """Collates a batch of the validation set as fairseq, with the `PackedBatch` under "packed"."""

    def __call__(self, examples: list[Any]) -> dict[str, Any]:
        sample = self.original(examples)
        return {**sample, "packed": pack(sample, self.spec)} if sample else sample


def install() -> None:
    """Capture the loss on the validation set; a second call does nothing."""

    @around(Trainer, "get_valid_iterator")
    def get_valid_iterator(original: Callable, self: Trainer, *args: Any, **kwargs: Any) -> Any:
        iterator = original(self, *args, **kwargs)
        step = getattr(self._optimizer, "captured_step", None)
        if step is not None and not isinstance(iterator.collate_fn, Collate):
            if LOSS not in vars(self.task):
                parts = step.model, step.criterion, step.spec, step.new_graph
                vars(self.task)[LOSS] = CapturedLoss(*parts)
            iterator.collate_fn = _Collate(iterator.collate_fn, step.spec)
        return iterator

    @around(FairseqTask, "valid_step")
    def valid_step(
        original: Callable, self: FairseqTask, sample: Any, model: Any, criterion: Any
    ) -> Any:
        batch = sample.get("packed")
        found = None if batch is None else vars(self)[LOSS](batch)
        return found or original(self, sample, model, criterion)
