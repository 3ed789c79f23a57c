"""The batch of an update, shared out over processes, and the sentences that must fit into it."""

import argparse
import itertools
from pathlib import Path
from typing import Dict, NamedTuple, Optional, Sequence

import numpy as np
from fairseq.data import indexed_dataset
from fairseq.models.transformer.transformer_config import DEFAULT_MAX_SOURCE_POSITIONS

from fairseq_plugins.errors import ConfigurationError


class Batch(NamedTuple):
    """What one process takes at a time, and how many times before an update."""

    max_tokens: Optional[int]
    batch_size: Optional[int]
    update_freq: int

    def describe(self, processes: int) -> str:
        parts = []
        for size, unit in ((self.max_tokens, "tokens"), (self.batch_size, "sentences")):
            if size is not None:
                total = size * processes * self.update_freq
                parts.append(
                    f"{size:,} {unit} x {processes} process(es) x update-freq {self.update_freq} "
                    f"= {total:,}"
                )
        return ", ".join(parts)


def share(whole: Batch, processes: int, limit: Optional[int] = None) -> Batch:
    """The batch that each of `processes` processes takes, so that the total stays that of one.

    No process takes more at a time than the one did; of what is left, the fewest and so largest
    batches are chosen.

    Args:
        whole: what the settings say, which is for one process.
        limit: at most so many tokens at a time on a process; more batches are added up for it.

    Raises:
        ConfigurationError: the total cannot be kept exactly.
    """
    sizes = [size for size in (whole.max_tokens, whole.batch_size) if size is not None]
    totals = [size * whole.update_freq for size in sizes]
    if any(total % processes for total in totals):
        fitting = [n for n in range(1, 4 * processes) if not any(total % n for total in totals)]
        near = sorted(sorted(fitting, key=lambda n: (abs(n - processes), n))[:3])
        raise ConfigurationError(
            f"{processes} processes cannot share {_sizes(whole)} exactly: start {_either(near)} "
            "(--processes, --nodes), or change --max-tokens, --batch-size or --update-freq, which "
            "say what one process alone would do"
        )
    if limit is not None:
        if whole.max_tokens is None or limit < 1:
            raise ConfigurationError(
                f"--tokens-per-process {limit} must be above 0, and limits --max-tokens, which the "
                "settings must have"
            )
        sizes[0] = min(sizes[0], limit)
    update_freq = next(
        n
        for n in itertools.count(1)
        if all(
            total % (processes * n) == 0 and total <= size * processes * n
            for size, total in zip(sizes, totals)
        )
        or processes * n > max(totals, default=0)
    )
    shared = [
        None if size is None else size * whole.update_freq // (processes * update_freq)
        for size in (whole.max_tokens, whole.batch_size)
    ]
    if any(size == 0 for size in shared):
        raise ConfigurationError(
            f"{processes} process(es)"
            + (f" and --tokens-per-process {limit}" if limit is not None else "")
            + f" cannot share {_sizes(whole)} exactly: change one of them"
        )
    return Batch(shared[0], shared[1], update_freq)


def _sizes(batch: Batch) -> str:
    sizes = []
    if batch.max_tokens is not None:
        sizes.append(f"--max-tokens {batch.max_tokens}")
    if batch.batch_size is not None:
        sizes.append(f"--batch-size {batch.batch_size}")
    return " and ".join(sizes) + f" x --update-freq {batch.update_freq}"


def _either(numbers: Sequence[int]) -> str:
    words = [str(number) for number in numbers]
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def source_cut(args: argparse.Namespace) -> Optional[int]:
    """Where --truncate-source cuts sources; None without it."""
    if not getattr(args, "truncate_source", False):
        return None
    # fairseq's own architectures leave the default to be filled in later
    return getattr(args, "max_source_positions", DEFAULT_MAX_SOURCE_POSITIONS)


def sizes(prefix: Path) -> np.ndarray:
    """How many tokens each sentence of a binarised file has; `prefix` is its name without .idx."""
    path = str(prefix)
    dataset = indexed_dataset.make_dataset(path, impl=indexed_dataset.infer_dataset_impl(path))
    # a copy: the file is mapped only as long as the dataset lives
    return np.array(dataset.sizes)


def longest_sentences(
    data: Path, subsets: Sequence[str], cut: Optional[int] = None
) -> Dict[str, int]:
    """For each subset that is there, how many tokens its longest side has.

    Sources count up to `cut`, where --truncate-source cuts them.
    """
    longest: Dict[str, int] = {}
    for subset in subsets:
        for index in data.glob(f"{subset}.*-*.*.idx"):
            size = int(sizes(index.with_suffix("")).max())
            pair, language = index.name[len(subset) + 1 : -len(".idx")].rsplit(".", 1)
            if cut is not None and pair.startswith(language + "-"):
                size = min(size, cut)
            longest[subset] = max(longest.get(subset, 0), size)
    return longest


def check_longest(
    batch: Batch, whole: Batch, processes: int, limited: bool, longest: Dict[str, int]
) -> None:
    """Raise a ConfigurationError if a sentence is longer than what a process takes at a time.

    Args:
        batch, whole: what a process takes, and what the settings say.
        limited: whether the user asked for small batches.
        longest: tokens of the longest sentence of each subset.
    """
    if batch.max_tokens is None:
        return
    for subset, size in longest.items():
        if size > batch.max_tokens:
            advice = f"--max-tokens {size} or more is needed"
            if whole.max_tokens is not None and size <= whole.max_tokens:
                advice = f"it must take {size} or more: start fewer processes"
                if limited:
                    advice += ", or give a larger --tokens-per-process"
            raise ConfigurationError(
                f"the longest sentence of {subset} has {size} tokens, and a process would take "
                f"{batch.max_tokens} at a time ({batch.describe(processes)}): {advice}"
            )
