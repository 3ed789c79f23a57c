"""Batches of a search on a GPU: as many sentences as its memory holds, up to a useful number.

`--max-tokens` of a training is chosen for its updates. A search reads the weights of the decoder in
each step, and launches as many kernels, for one sentence as for hundreds. So unless the user chose
the size of batches, `BeamGenerator` gets larger ones on a GPU. On a CPU nothing changes.
"""

import contextlib
import functools
import math
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_plugins.compat.patch import after_parsing, around
from fairseq_plugins.search.batches import fill_batches

from .generator import BeamGenerator

HYPOTHESES = 2560  # of a batch: with more, a step takes as much longer as steps are saved
SHARE = 0.5  # of the free memory; fragments, and what is estimated too low, take the rest
COPIES = 3  # of the caches: a full one is copied, and captured steps have memory of their own
SCORES = 16  # bytes of a logit and its log-probability, with the options of search applied
WEIGHTS = 8  # bytes of an attention weight of the encoder


def free_bytes(device: torch.device) -> int:
    """The free memory of a GPU, after torch returned what it does not use; 0 for a CPU."""
    if device.type != "cuda":
        return 0
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0]


def estimate_bytes(
    generator: BeamGenerator, sources: np.ndarray, steps: np.ndarray, scored: np.ndarray
) -> np.ndarray:
    """Bytes that each sentence takes in a batch.

    Args:
        generator: has the models, the beam and the vocabulary.
        sources: tokens of each source.
        steps: tokens of the longest hypothesis of each.
        scored: tokens of each target whose loss is computed too; 0 in a search alone.
    """
    beam = generator.beam_size
    numbers = (beam + scored) * (SCORES * generator.vocab_size * len(generator.model.models))
    for model in generator.model.models:
        size = next(model.parameters()).element_size()
        layers = model.decoder.layers
        numbers += layers[0].encoder_attn.num_heads * WEIGHTS * sources**2
        for layer in layers:
            cached = layer.encoder_attn.embed_dim * sources
            cached += layer.self_attn.embed_dim * beam * (steps + 1)
            numbers += 2 * COPIES * size * cached
    return numbers


def fill_by_memory(
    generator: Any,
    sources: Sequence[int],
    steps: Sequence[int],
    scored: Sequence[int] | None = None,
    kinds: Sequence[Any] | None = None,
    processes: int = 1,
) -> list[list[int]] | None:
    """`fill_batches` for the free memory of a GPU; None on a CPU, or for another generator.

    Args:
        generator: the generator of the search; its first call measures the memory.
        sources, steps, scored: see `estimate_bytes`.
        kinds: see `fill_batches`.
        processes: how many call this together, and share the batches.
    """
    if not isinstance(generator, BeamGenerator):
        return None
    if generator.room is None:
        device = next(generator.model.parameters()).device
        room = torch.tensor(free_bytes(device), device=device)
        if processes > 1:  # they need the same batches
            dist.all_reduce(room, dist.ReduceOp.MIN)
        generator.room = int(SHARE * int(room))
    if generator.room == 0:
        return None
    arrays = [np.asarray(x, np.int64) for x in (sources, steps, scored or [0] * len(sources))]
    sizes = estimate_bytes(generator, *arrays).tolist()
    most = min(HYPOTHESES // generator.beam_size, math.ceil(len(sources) / processes))
    return fill_batches(sources, sys.maxsize, max(1, most), kinds, sizes, generator.room)


@contextlib.contextmanager
def _sized(dataset: Any, generator: Any, scored: bool, processes: int = 1) -> Iterator[None]:
    """Context in which a data set of fairseq is divided into batches by `fill_by_memory`."""
    original = dataset.batch_by_size

    def batch_by_size(indices: Any, *args: Any, **kwargs: Any) -> Any:
        sizes = [dataset.size(index) for index in indices]
        sources = [source for source, _ in sizes]
        steps = [int(generator.max_len_a * n + generator.max_len_b) for n in sources]
        targets = [target for _, target in sizes] if scored else None
        batches = fill_by_memory(generator, sources, steps, targets, processes=processes)
        if batches is None:
            return original(indices, *args, **kwargs)
        return [indices[batch] for batch in batches]

    with mock.patch.object(dataset, "batch_by_size", batch_by_size):
        yield


def install() -> None:
    """Size the batches of validation with translations, and of fairseq-generate."""

    @around(Trainer, "get_valid_iterator")
    def get_valid_iterator(
        original: Callable, self: Trainer, subset: str, *args: Any, **kwargs: Any
    ) -> Any:
        given, of_task = self.cfg.dataset, vars(self.task)
        generator = of_task.get("sequence_generator", of_task.get("rouge_generator"))
        of_training = given.max_tokens, given.batch_size
        if generator is None or (given.max_tokens_valid, given.batch_size_valid) != of_training:
            return original(self, subset, *args, **kwargs)
        dummy = self._dummy_batch  # fairseq's, of validation, could be too large for training
        with _sized(self.task.dataset(subset), generator, True, self.data_parallel_world_size):
            found = original(self, subset, *args, **kwargs)
        self._dummy_batch = dummy or self._dummy_batch
        return found

    asked: list[Namespace] = []  # the options of fairseq-generate, if it may choose

    @after_parsing
    def remember(given: Namespace) -> None:
        generates = hasattr(given, "replace_unk") and not hasattr(given, "buffer_size")
        asked.clear()
        # processes with shares of the sentences need equal batches
        if generates and given.distributed_world_size == 1:
            if not (given.max_tokens or given.batch_size or given.lm_path):
                asked.append(given)

    @around(checkpoint_utils, "load_model_ensemble")
    def load_model_ensemble(original: Callable, *args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        task: Any = kwargs.get("task")
        for given in asked if task else ():
            # fairseq makes the generator after the batches
            make = functools.partial(task.build_generator, found[0], given)
            task.get_batch_iterator = functools.partial(_iterate, task.get_batch_iterator, make)
        return found


def _iterate(original: Callable, make_generator: Callable, dataset: Any, **kwargs: Any) -> Any:
    """Batches of fairseq-generate."""
    with _sized(dataset, make_generator(), False):
        return original(dataset=dataset, **kwargs)
