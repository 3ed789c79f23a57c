"""Python versions of fairseq's compiled extensions, for installations without them.

Only fairseq's wheel for one Python version has them; installations built without a compiler lack
them. Batches, blocks of tokens and BLEU are computed here, with the same results.
"""

import importlib
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from fairseq.scoring import bleu

from fairseq_plugins.compat.patch import repair

BATCHES, BLOCKS = "fairseq.data.data_utils_fast", "fairseq.data.token_block_utils_fast"


@repair()
def supply_missing_extensions() -> None:
    """Replace each extension that is missing or does not load."""
    for name in (BATCHES, BLOCKS):
        if _missing(name):
            package, _, attribute = name.rpartition(".")
            sys.modules[name] = sys.modules[__name__]
            setattr(sys.modules[package], attribute, sys.modules[__name__])
    if _missing("fairseq.libbleu"):
        bleu.Scorer.__init__ = _begin
        bleu.Scorer.reset = _reset
        bleu.Scorer.add = _add


def _missing(name: str) -> bool:
    try:
        importlib.import_module(name)
    except (ImportError, ValueError):  # ValueError: compiled for another numpy
        return True
    return False


# --- fairseq.data.data_utils_fast -----------------------------------------------------------------


def batch_by_size_vec(
    indices: np.ndarray,
    num_tokens_vec: np.ndarray,
    max_tokens: int,
    max_sentences: int,
    bsz_mult: int,
) -> list[np.ndarray]:
    """Cut `indices` into batches as large as the limits allow.

    A batch of n sentences costs n times the longest of them. From `bsz_mult` sentences on, n is a
    multiple of it. Limits that are not positive are ignored.
    """
    if len(indices) == 0:
        return []
    lengths = num_tokens_vec.tolist()
    assert max_tokens <= 0 or max(lengths) <= max_tokens, (
        f"Sentences lengths should not exceed max_tokens={max_tokens}"
    )
    tokens = max_tokens if max_tokens > 0 else math.inf
    sentences = max_sentences if max_sentences > 0 else math.inf
    ends = []
    start = position = longest = 0
    while position < len(lengths):
        if lengths[position] > longest:
            longest = lengths[position]
        count = position - start  # without this sentence
        if count < sentences and (count + 1) * longest <= tokens:
            position += 1
        else:  # reread for the next batch, after the sentences beyond the multiple
            start += _whole(count, bsz_mult)
            ends.append(start)
            position, longest = start, 0
    rest = len(lengths) - start
    if _whole(rest, bsz_mult) < rest:
        ends.append(start + _whole(rest, bsz_mult))
    return np.split(indices, ends)


def _whole(count: int, multiple: int) -> int:
    return count if count < multiple else count - count % multiple


def batch_by_size_fn(
    indices: np.ndarray,
    num_tokens_fn: Callable[[int], int],
    max_tokens: int,
    max_sentences: int,
    bsz_mult: int,
) -> list[np.ndarray]:
    """`batch_by_size_vec` with the lengths from a function."""
    lengths = np.fromiter(map(num_tokens_fn, indices.tolist()), np.int64, len(indices))
    return batch_by_size_vec(indices, lengths, max_tokens, max_sentences, bsz_mult)


def batch_fixed_shapes_fast(
    indices: np.ndarray, num_tokens_fn: Callable[[int], int], fixed_shapes_sorted: np.ndarray
) -> list[list[int]]:
    """Cut `indices` into batches that fit one of the shapes, S x 2: sentences and length."""
    shapes = fixed_shapes_sorted.tolist()
    batches: list[list[int]] = []
    batch: list[int] = []
    longest = 0
    for index in indices.tolist():
        longest = max(longest, num_tokens_fn(index))
        if not any(len(batch) < count and longest <= length for count, length in shapes):
            batches.append(batch)
            batch, longest = [], 0  # as in fairseq, the first sentence's length does not count
        batch.append(index)
    return [*batches, batch] if batch else batches


# --- fairseq.data.token_block_utils_fast ----------------------------------------------------------


def _get_slice_indices_fast(
    sizes: np.ndarray, break_mode: str | None, block_size: int, document_sep_len: int
) -> np.ndarray:
    """The start and end of the blocks of a stream of tokens: N x 2.

    none: after `block_size` tokens. complete: only between sentences, whose lengths are `sizes`.
    complete_doc: the same, and at sentences of length `document_sep_len`, which are skipped, like
    blocks of one token. eos: one sentence per block.
    """
    if break_mode is None or break_mode == "none":
        total = int(sizes.sum())
        starts = np.arange(-(-total // block_size), dtype=np.int64) * block_size
        return np.stack([starts, np.minimum(starts + block_size, total)], 1)
    if break_mode == "eos":
        ends = sizes.cumsum()
        return np.stack([ends - sizes, ends], 1)
    if break_mode not in ("complete", "complete_doc"):
        raise ValueError("Invalid break_mode: " + break_mode)
    in_documents = break_mode == "complete_doc"
    separator, least = (document_sep_len, 2) if in_documents else (None, 1)
    blocks = []
    start = size = 0
    for length in sizes.tolist():
        if length == separator or (size > 0 and size + length > block_size):
            if size >= least:
                blocks.append((start, start + size))
            start, size = start + size, 0
        if length == separator:
            start += length
        else:
            size += length
    if size >= least:
        blocks.append((start, start + size))
    return np.array(blocks, np.int64).reshape(len(blocks), -1)


def _get_block_to_dataset_index_fast(sizes: np.ndarray, slice_indices: np.ndarray) -> np.ndarray:
    """For each block its first sentence, the offset in it, and its last sentence: N x 3."""
    starts, ends = slice_indices.T
    sentence_ends = np.concatenate([[0], sizes.cumsum()])

    def find(tokens: np.ndarray) -> np.ndarray:
        """The sentence that follows the first end at or before a token, or that holds the token."""
        found = np.searchsorted(sentence_ends, tokens)
        return np.where(sentence_ends[found] == tokens, found, found - 1)

    first = find(starts)
    last = np.where(ends <= starts, first, find(np.maximum(ends - 1, 0)))
    return np.stack([first, starts - sentence_ends[first], last], 1)


# --- fairseq.libbleu ------------------------------------------------------------------------------


def _begin(self: Any, cfg: Any) -> None:
    self.pad, self.eos, self.unk = cfg.pad, cfg.eos, cfg.unk
    self.reset()


def _reset(self: Any, one_init: bool = False) -> None:
    self.stat = bleu.BleuStat()
    if one_init:
        for order in (2, 3, 4):
            setattr(self.stat, f"match{order}", 1)
            setattr(self.stat, f"count{order}", 1)


def _add(self: Any, ref: torch.Tensor, pred: torch.Tensor) -> None:
    """Count the matching n-grams of a sentence. Unknown words of the reference never match."""
    for name, tokens in (("ref", ref), ("pred", pred)):
        if not isinstance(tokens, torch.IntTensor):
            raise TypeError(f"{name} must be a torch.IntTensor (got {type(tokens)})")
    reference = _trim([-999 if t == self.unk else t for t in ref.view(-1).tolist()], self)
    prediction = _trim(pred.view(-1).tolist(), self)
    stat = self.stat
    stat.reflen += len(reference)
    stat.predlen += len(prediction)
    for order in (1, 2, 3, 4):
        found, known = _ngrams(prediction, order), _ngrams(reference, order)
        count, match = f"count{order}", f"match{order}"
        setattr(stat, count, getattr(stat, count) + sum(found.values()))
        setattr(stat, match, getattr(stat, match) + sum((found & known).values()))


def _trim(tokens: list[int], scorer: Any) -> list[int]:
    """Without padding on the left, and padding and ends on the right, but at least one token."""
    start, end = 0, len(tokens)
    while start < end and tokens[start] == scorer.pad:
        start += 1
    while end > start + 1 and tokens[end - 1] in (scorer.pad, scorer.eos):
        end -= 1
    return tokens[start:end]


def _ngrams(tokens: Sequence[int], order: int) -> Counter:
    return Counter(zip(*(tokens[shift:] for shift in range(order))))
