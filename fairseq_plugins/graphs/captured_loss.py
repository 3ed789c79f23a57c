"""The loss on the validation set, by captured forward passes, in a training with --cuda-graphs.

Every validation has the same batches, so a shape of a batch that comes again is captured. Batches
are packed as in training; fairseq's own stay beside them, for the search that computes BLEU.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_plugins.compat.patch import around
from fairseq_plugins.data.packed_batches import Collate, PackedBatch, Shape, Spec, pack
from fairseq_plugins.errors import first_cause
from fairseq_plugins.graphs.captured_step import MOST, Capture
from fairseq_plugins.graphs.cuda_graph import capture
from fairseq_plugins.models import packed

logger = logging.getLogger(__name__)
NAME = "captured_loss"  # of a task


class CapturedLoss:
    """The loss of packed batches, by one CUDA graph per shape.

    Args:
        model, criterion, spec, new_graph: those of a `CapturedStep`.
    """

    def __init__(
        self, model: Any, criterion: Any, spec: Spec, new_graph: Callable[[], Any]
    ) -> None:
        self.model, self.criterion, self.spec, self.new_graph = model, criterion, spec, new_graph
        self.captures: dict[Shape, Capture] = {}
        self.met: set[Shape] = set()
        self.most = MOST
        self.names: list[str] = []  # names of the sums

    def __call__(self, batch: PackedBatch) -> tuple[Tensor, int, dict[str, Any]] | None:
        """As a criterion in evaluation: the loss, the sample size and the logging output.

        Args:
            batch: on the CPU.

        Returns:
            None for a shape that is met for the first time, or cannot be captured.
        """
        captured = self.captures.get(batch.shape)
        if captured is None:
            if batch.shape in self.met and len(self.captures) < self.most:
                captured = self._capture(batch)
            self.met.add(batch.shape)
        if captured is None:
            return None
        captured.graph.load(captured.numbers, batch.numbers)
        captured.graph.replay()
        size = batch.sentences if self.criterion.sentence_avg else batch.tokens
        log: dict[str, Any] = dict(zip(self.names, captured.sums.clone().unbind()))
        log.update(ntokens=batch.tokens, nsentences=batch.sentences, sample_size=size)
        return log["loss"], size, log

    @torch.no_grad()
    def _once(self, shape: Shape, numbers: Tensor) -> Tensor:
        """The sums of the criterion's logging output."""
        model = packed.PackedModel(self.model, numbers, shape)
        _, _, log = self.criterion(model, model.sample(1, 1))
        self.names = [name for name, value in log.items() if isinstance(value, Tensor)]
        return torch.stack([log[name].float() for name in self.names])

    def _capture(self, batch: PackedBatch) -> Capture | None:
        """Capture the loss of a shape; None if that fails, and then nothing else is captured."""
        sums: Tensor | None = None

        def work() -> None:
            nonlocal sums
            found = self._once(batch.shape, numbers)
            # a copy, out of the shared memory pool
            sums = found.clone() if sums is None else sums.copy_(found)

        self.model.eval()
        try:
            numbers = batch.numbers.to(next(self.model.parameters()).device, copy=True)
            with torch.no_grad():
                graph = capture(self.new_graph, work)
            assert sums is not None
            self.captures[batch.shape] = Capture(graph, numbers, sums)
        except RuntimeError as error:
            logger.warning(f"the loss on the validation set is not captured: {first_cause(error)}")
            self.drop()
        return self.captures.get(batch.shape)

    def drop(self) -> None:
        """Free the memory of the captured graphs, and capture nothing else."""
        self.captures.clear()
        self.most = 0


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
            if NAME not in vars(self.task):
                parts = step.model, step.criterion, step.spec, step.new_graph
                vars(self.task)[NAME] = CapturedLoss(*parts)
            iterator.collate_fn = _Collate(iterator.collate_fn, step.spec)
        return iterator

    @around(FairseqTask, "valid_step")
    def valid_step(
        original: Callable, self: FairseqTask, sample: Any, model: Any, criterion: Any
    ) -> Any:
        batch = sample.get("packed")
        found = None if batch is None else vars(self)[NAME](batch)
        return found or original(self, sample, model, criterion)

    @around(Trainer, "_log_oom")
    def _log_oom(original: Callable, self: Trainer, error: Exception) -> None:
        original(self, error)
        if NAME in vars(self.task):
            vars(self.task)[NAME].drop()
