"""Captured search steps: one CUDA graph for each bucket of batches, which all searches share.

A step's tensors have the sizes of a bucket: sentences, source positions and slots of the caches are
rounded up, so that a few graphs serve all batches. The state of the running search lies in one
block of memory, where the graphs of all buckets read and write it.
"""

import logging
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_plugins.errors import OUT_OF_MEMORY, first_cause

logger = logging.getLogger(__name__)

MOST = 64  # captured graphs; the oldest one is dropped
ALIGNED = 256  # bytes, as torch's own memory
State = list[tuple[Any, str]]  # attributes that are tensors


def bucket(size: int, least: int = 1) -> int:
    """The smallest power of two, or three halves of one, that is at least `size` and `least`."""
    size = max(size, least)
    power = 1 << max(0, size - 1).bit_length()
    return power * 3 // 4 if power >= 4 and size <= power * 3 // 4 else power


def pad_encoded(
    encoded: dict[str, list[Tensor]], rows: Tensor, length: int, pad: int
) -> dict[str, list[Tensor]]:
    """The encoder's output for these sentences, with padding up to a length.

    Args:
        encoded: fairseq's dictionary for B sentences of S positions.
        rows: B' numbers of sentences.
        length: S', at least S.
        pad: the padding symbol.
    """
    (memory,) = encoded["encoder_out"]  # S x B x d
    more = length - memory.size(0)
    masks = encoded["encoder_padding_mask"] or [memory.new_zeros(memory.shape[:2]).t().bool()]
    padded = {
        **encoded,
        "encoder_out": [F.pad(memory.index_select(1, rows), (0, 0, 0, 0, 0, more))],
        "encoder_padding_mask": [F.pad(masks[0].index_select(0, rows), (0, more), value=True)],
    }
    if encoded.get("src_tokens"):
        padded["src_tokens"] = [pad_tokens(encoded["src_tokens"][0], rows, length, pad)]
    return padded


def pad_tokens(tokens: Tensor, rows: Tensor, length: int, pad: int) -> Tensor:
    """These rows of B x S tokens, with padding up to a length."""
    return F.pad(tokens.index_select(0, rows), (0, length - tokens.size(1)), value=pad)


class StepGraphs:
    """The captured steps of a generator.

    Args:
        new_graph: makes a graph, see `graph_class`.
        models: their parameters are read by the graphs; if one has moved, all are captured anew.

    Attributes:
        lock: a search holds it, because all use the same memory.
        failed: whether a capture failed; then nothing else is captured.
    """

    def __init__(self, new_graph: Callable[[], Any], models: Sequence[Any]) -> None:
        self.new_graph, self.models = new_graph, models
        self.graphs: dict[Any, tuple[Any, list[Tensor]]] = {}
        self.memory: Tensor | None = None
        self.lock, self.failed = threading.Lock(), False
        self.read: list[int] = []  # addresses of the parameters

    def begin(self) -> None:
        """Prepare for a search; call it with the lock."""
        read = [x.data_ptr() for m in self.models for x in (*m.parameters(), *m.buffers())]
        if read != self.read:
            self.graphs.clear()
            self.read = read

    def drop(self) -> None:
        """Free the memory of all captured steps."""
        self.graphs.clear()
        self.memory = None

    def enter(self, holders: Sequence[Any], constants: Any, step: Callable[[], None]) -> Any:
        """Move the state of a search to the memory of its bucket.

        Args:
            holders: objects whose attributes that are tensors are the state; a step may write
                into them, or replace them by others of the same shape.
            constants: all else that the step depends on.
            step: computes a step, without reading numbers from the device.

        Returns:
            the graph that computes the step; None, after one line in the log, if its capture fails.

        Raises:
            torch.OutOfMemoryError: memory is too short for a capture.
        """
        state = [(h, name) for h in holders for name, x in vars(h).items() if isinstance(x, Tensor)]
        values = [_apart(getattr(holder, name)) for holder, name in state]
        key = constants, tuple((n, x.shape, x.dtype) for (_, n), x in zip(state, values))
        if key not in self.graphs:
            graph = self.new_graph()
            try:
                self.graphs[key] = graph, self._capture(graph, state, values, step)
            except RuntimeError as error:
                graph.recover()
                if re.search(OUT_OF_MEMORY, first_cause(error)):  # a smaller batch can be captured
                    raise torch.OutOfMemoryError(first_cause(error)) from None
                logger.warning(f"search steps are not captured: {first_cause(error)}")
                self.failed = True
                self.drop()
                _set(state, values)
                return None
            if len(self.graphs) > MOST:
                self.graphs.pop(next(iter(self.graphs)))
        graph, own = self.graphs[key]
        _load(state, values, own)
        return graph

    def _capture(
        self, graph: Any, state: State, values: list[Tensor], step: Callable[[], None]
    ) -> list[Tensor]:
        """Capture a step; returns the tensors that it reads and writes, in the order of `state`."""
        sizes = [-(-x.nbytes // ALIGNED) * ALIGNED for x in values]
        room = 0 if self.memory is None else self.memory.numel()
        if self.memory is None or sum(sizes) > room:
            # graphs keep the smaller blocks: together they should take little more than the last
            size = max(sum(sizes), room * 3 // 2)
            self.memory = values[0].new_empty(size, dtype=torch.uint8)
        pieces = self.memory[: sum(sizes)].split(sizes)
        own = [part[: x.nbytes].view(x.dtype).view(x.shape) for part, x in zip(pieces, values)]
        for context in (graph.warming_up(), graph.capturing()):
            _load(state, values, own)
            with context:
                step()
                for (holder, name), x in zip(state, own):
                    if getattr(holder, name) is not x:
                        x.copy_(getattr(holder, name))
        return own


def _apart(x: Tensor) -> Tensor:
    """The tensor, or a copy if it is part of a block, which another bucket may overwrite."""
    return x if x.untyped_storage().nbytes() == x.nbytes else x.clone()


def _load(state: State, values: list[Tensor], own: list[Tensor]) -> None:
    for x, value in zip(own, values):
        x.copy_(value)
    _set(state, own)


def _set(state: State, values: list[Tensor]) -> None:
    for (holder, name), x in zip(state, values):
        setattr(holder, name, x)
