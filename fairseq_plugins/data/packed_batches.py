"""Packed batches: the concatenated sentences of a batch, in one of a few sizes.

A captured GPU step (`graphs/captured_step.py`) replays kernels of fixed sizes, and nothing in it
may wait for a number. Therefore the layout is computed here, on the host, in the data loader's
worker that collates the batch. Sentences of padding follow the real ones, up to a number of rows
that other batches share. `layers/packed.py` computes on this layout.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.data import LanguagePairDataset
from torch import Tensor

SHORTEST = 16  # smallest of the largest lengths
PAIR = {"id", "source", "target"}  # of a sentence pair without alignments or constraints
LARGE = 1 << 22  # numbers of a padded batch that should not be much larger than the packed one
SENTENCES = 8  # of such a batch, a multiple of it; fewer are a power of two
ALIKE = 4  # up to this ratio, source and target count as equally long


class Shape(NamedTuple):
    """The sizes of a batch: batches of one shape share a captured graph."""

    source: tuple[int, ...]  # rows of the source in each block of the encoder
    target: int  # rows of the target
    sentences: int  # including padding and empty sentences, which come last
    longest: int  # upper bound on the rows of a source sentence, also one of padding
    longest_target: int  # the same for the target


class Spec(NamedTuple):
    """What a model and its batches need from the layout."""

    pad: int
    step: int  # rows are a multiple of it, and of 1/8 of the next power of two
    window: int = 1  # of pooling over time
    blocks: int = 1  # of the encoder that pools over time
    padded: bool = False  # whether a layer computes on all sentences x longest lengths

    @classmethod
    def make(cls, pad: int, step: int, window: int, blocks: int, padded: bool = False) -> "Spec":
        """For an encoder with `blocks` blocks; `window` is 1 without pooling over time."""
        return cls(pad, step, window, blocks if window > 1 else 1, padded)


@dataclass(frozen=True)
class PackedBatch:
    """A batch of one shape. fairseq copies only `numbers` to the GPU.

    Args:
        shape: the shape of the batch.
        numbers: int64, all tokens and the starts of sentences; see `parts`.
        sentences: number of real sentences.
        tokens: number of real target tokens.
    """

    shape: Shape
    numbers: Tensor
    sentences: int
    tokens: int

    def pin_memory(self) -> "PackedBatch":
        """Pin the numbers, so that copies to the GPU need not wait; called by the data loader."""
        return replace(self, numbers=self.numbers.pin_memory())


def parts(numbers: Tensor, shape: Shape) -> dict[str, Any]:
    """Views of `PackedBatch.numbers`.

    Returns:
        "source", N; "previous" and "target", M each: tokens, with padding after the sentences;
            "source_starts" (a list, one per block) and "target_starts": the start of each sentence
            and the end of the last one, `sentences` + 1 numbers each.
    """
    bounds = shape.sentences + 1
    sizes = [shape.source[0], shape.target, shape.target, bounds, *(bounds for _ in shape.source)]
    source, previous, target, target_starts, *source_starts = numbers.split(sizes)
    return {
        "source": source,
        "previous": previous,
        "target": target,
        "target_starts": target_starts,
        "source_starts": source_starts,
    }


def pack(sample: dict[str, Any], spec: Spec) -> PackedBatch:
    """The rows of fairseq's batch of sentence pairs, padded on any side, on the CPU."""
    words, previous = (sample["net_input"][n] for n in ("src_tokens", "prev_output_tokens"))
    tokens = [words, previous, sample["target"]]
    lengths = [x.ne(spec.pad).sum(dim=1).numpy() for x in (words, sample["target"])]
    real = [x[x.ne(spec.pad)] for x in tokens]
    return _pack(real, lengths[0], lengths[1], int(sample["ntokens"]), spec)


def pack_pairs(examples: Sequence[dict[str, Tensor]], eos: int, spec: Spec) -> PackedBatch:
    """The rows of examples of fairseq's LanguagePairDataset, without padding them first.

    On a GPU padding sentence by sentence takes a data loader longer than a captured step.
    """
    source, target = ([example[name] for example in examples] for name in ("source", "target"))
    of_source, of_target = (np.array([len(x) for x in side]) for side in (source, target))
    words, following = torch.cat(source), torch.cat(target)
    previous = following.roll(1)
    previous[torch.from_numpy(of_target.cumsum() - of_target)] = eos  # each sentence's first
    return _pack([words, previous, following], of_source, of_target, len(following), spec)


def _pack(
    parts: list[Tensor], source: np.ndarray, target: np.ndarray, tokens: int, spec: Spec
) -> PackedBatch:
    """The rows of sentences from the concatenated source, previous and target tokens."""
    shape, levels, target_levels = plan(source, target, spec)

    def fill(real: Tensor, rows: int) -> Tensor:
        filled = torch.full((rows,), spec.pad)
        filled[: len(real)] = real
        return filled

    sizes = (shape.source[0], shape.target, shape.target)
    numbers = [
        *(fill(real, rows) for real, rows in zip(parts, sizes)),
        *(_starts(lengths, shape.sentences) for lengths in (target_levels, *levels)),
    ]
    return PackedBatch(shape, torch.cat(numbers), len(source), tokens)


def plan(
    source: np.ndarray, target: np.ndarray, spec: Spec
) -> tuple[Shape, list[np.ndarray], np.ndarray]:
    """Choose the shape of a batch, and the sentences of padding that fill it.

    Their number is the same on both sides and in all blocks. They are not empty, and at most as
    long as the longest: attention does not write rows beyond that.

    Args:
        source, target: the lengths of the real sentences, at least 1.
        spec: the layout's specification.

    Returns:
        the shape, and the lengths of all non-empty sentences: of the source in each block, and
            of the target.
    """
    lengths = [max(SHORTEST, int(x.max())) for x in (source, target)]
    longest, longest_target = map(_power, lengths)
    if max(longest, longest_target) < ALIKE * min(longest, longest_target):
        longest = longest_target = max(longest, longest_target)  # fewer shapes
    large = spec.padded and _power(len(source) + 1) * longest * longest_target > LARGE
    if large:  # closer sizes are worth more shapes
        longest, longest_target = (_round_up(x, max(SHORTEST, _power(x) // 4)) for x in lengths)
    steps = [max(spec.step, _power(int(x.sum())) // 8) for x in (source, target)]
    fillers = 1
    while True:
        sentences = len(source) + fillers
        many = large and sentences > SENTENCES
        sentences = _round_up(sentences, SENTENCES) if many else _power(sentences)
        sizes = [
            _round_up(int(x.sum()) + fillers, step) for x, step in zip((source, target), steps)
        ]
        fills = [_share(rows - int(x.sum()), fillers) for rows, x in zip(sizes, (source, target))]
        levels, rows = [np.concatenate([source, fills[0]])], [sizes[0]]
        for _ in range(1, spec.blocks):
            # at most this many windows are needed, wherever sentences end
            rows.append(-(-(rows[-1] + sentences * (spec.window - 1)) // spec.window))
            windows = -(-levels[-1] // spec.window)
            windows[len(source) :] += _share(rows[-1] - int(windows.sum()), fillers)
            levels.append(windows)
        if max(int(x.max()) for x in levels) <= longest and fills[1].max() <= longest_target:
            shape = Shape(tuple(rows), sizes[1], sentences, longest, longest_target)
            return shape, levels, np.concatenate([target, fills[1]])
        fillers += 1


class Collate:
    """Collates a training batch of fairseq as `PackedBatch`, under "packed".

    Args:
        original: fairseq's collater of the data set.
        spec: the layout's specification.
    """

    def __init__(self, original: Callable[[list[Any]], dict[str, Any]], spec: Spec):
        self.original, self.spec = original, spec
        self.eos: int | None = None  # of a data set whose pairs need no padding
        if getattr(original, "__func__", None) is LanguagePairDataset.collater:
            pairs: Any = original.__self__  # type: ignore[attr-defined]
            self.eos = pairs.eos if pairs.input_feeding else None

    def __call__(self, examples: list[Any]) -> dict[str, Any]:
        if self.eos is not None and examples and examples[0].keys() == PAIR:
            return {"packed": pack_pairs(examples, self.eos, self.spec)}
        sample = self.original(examples)
        if not sample:  # without sentences
            return sample
        return {"packed": pack(sample, self.spec)}


def _starts(lengths: np.ndarray, sentences: int) -> Tensor:
    """The start of each of these sentences, and of each empty one after them."""
    starts = np.full(sentences + 1, lengths.sum(), dtype=np.int64)
    starts[0] = 0
    starts[1 : len(lengths) + 1] = np.cumsum(lengths)
    return torch.from_numpy(starts)


def _share(rows: int, pieces: int) -> np.ndarray:
    return np.full(pieces, rows // pieces) + (np.arange(pieces) < rows % pieces)


def _round_up(x: int, step: int) -> int:
    return -(-x // step) * step


def _power(x: int) -> int:
    """The smallest power of two that is at least x."""
    return 1 << max(0, x - 1).bit_length()
