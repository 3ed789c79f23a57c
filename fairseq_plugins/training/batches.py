"""Sharing the batch of an update over processes, and checking that every sentence fits."""

import argparse
import itertools
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from fairseq.data import data_utils, indexed_dataset
from fairseq.models.transformer.transformer_config import DEFAULT_MAX_SOURCE_POSITIONS

from fairseq_plugins.compat.data_files import MissingData, check_files
from fairseq_plugins.errors import ConfigurationError, check_range

Languages = Tuple[Optional[str], Optional[str]]  # of source and target; None: those of the data


class Batch(NamedTuple):
    """The largest batch of one process, and how many batches it accumulates for an update."""

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
    """Share the batch of one process over several processes, with the same total per update.

    No batch is larger than that of the one process. Of the possible ways, the one with the smallest
    `update_freq`, and so the largest batches, is returned.

    Args:
        whole: the settings, which are for one process.
        processes: how many processes share the batch.
        limit: the most tokens in one batch of a process (--tokens-per-process), or None.

    Raises:
        ConfigurationError: the total cannot be shared exactly.
    """
    sizes = [size for size in (whole.max_tokens, whole.batch_size) if size is not None]
    totals = [size * whole.update_freq for size in sizes]
    if any(total % processes for total in totals):
        fitting = [n for n in range(1, 4 * processes) if not any(total % n for total in totals)]
        near = sorted(sorted(fitting, key=lambda n: (abs(n - processes), n))[:3])
        raise ConfigurationError(
            f"{processes} processes cannot share {_sizes(whole)} exactly: start {_either(near)} "
            "(--processes, --nodes), or change --max-tokens, --batch-size or --update-freq, which "
            "are those of a single process"
        )
    if limit is not None:
        check_range("--tokens-per-process", limit, 1)
        if whole.max_tokens is None:
            raise ConfigurationError(
                f"--tokens-per-process {limit} needs --max-tokens in the settings: add that"
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
    """The length at which --truncate-source or --shorten-method cuts; None without them."""
    if str(getattr(args, "shorten_method", "none")) != "none":
        return args.max_positions
    if not getattr(args, "truncate_source", False):
        return None
    # fairseq's own architectures set this default only when they build the model
    return getattr(args, "max_source_positions", DEFAULT_MAX_SOURCE_POSITIONS)


def languages_of(given: argparse.Namespace) -> Languages:
    """The languages that the options name."""
    return getattr(given, "source_lang", None), getattr(given, "target_lang", None)


def sizes(prefix: Path) -> np.ndarray:
    """The tokens of each sentence in a binarised file; `prefix` is its path without .idx.

    Raises:
        ConfigurationError: the file is damaged.
    """
    path = str(prefix)
    check_files(path)
    dataset = indexed_dataset.make_dataset(path, impl=indexed_dataset.infer_dataset_impl(path))
    # a copy, because the memory map closes with the dataset
    return np.array(dataset.sizes)


def _sides(data: Path, subset: str, languages: Languages) -> Iterator[Tuple[Path, bool]]:
    """The files of a subset's languages, without .idx, and whether each is the source."""
    source, target = languages
    if not (source and target):
        try:
            source, target = data_utils.infer_language_pair(str(data))
        except MissingData:  # texts without languages
            return
    for pair in (f"{source}-{target}", f"{target}-{source}"):
        names = [(f"{subset}.{pair}.{language}", language) for language in (source, target)]
        there = [each for each in names if (data / f"{each[0]}.idx").is_file()]
        yield from ((data / name, language == source) for name, language in there)
        if there:
            return  # fairseq, too, reads the first order that is there


def longest_sentences(
    data: Path,
    languages: Languages,
    subsets: Sequence[str],
    cut: Optional[int] = None,
    positions: Optional[int] = None,
) -> Dict[str, int]:
    """The tokens of the longest sentence, source or target, of each subset that exists.

    Sources, and texts to classify, count at most `cut` tokens. Sentences of more than `positions`
    tokens do not count.
    """

    def longest_of(prefix: Path, cut: Optional[int]) -> int:
        lengths = sizes(prefix) if cut is None else np.minimum(sizes(prefix), cut)
        return int(lengths[lengths <= (positions or np.inf)].max(initial=0))

    longest: Dict[str, int] = {}
    for subset in subsets:
        texts = data / "input0" / subset
        if texts.with_name(f"{subset}.idx").is_file():
            longest[subset] = longest_of(texts, cut)
        for prefix, is_source in _sides(data, subset, languages):
            size = longest_of(prefix, cut if is_source else None)
            longest[subset] = max(longest.get(subset, 0), size)
    return longest


def count_too_long(
    data: Path, languages: Languages, subset: str, source: int, target: int, cut: Optional[int]
) -> int:
    """How many pairs have more tokens than these numbers, which fairseq leaves out of training.

    Sources count at most `cut` tokens.
    """
    found: Any = 0
    for prefix, is_source in _sides(data, subset, languages):
        lengths = sizes(prefix)
        if is_source:
            found = found | (np.minimum(lengths, cut or np.inf) > source)
        else:
            found = found | (lengths > target)
    return int(np.sum(found))


def check_longest(
    batch: Batch, whole: Batch, processes: int, limited: bool, longest: Dict[str, int]
) -> None:
    """Raise a ConfigurationError if a sentence does not fit into a batch.

    Args:
        batch, whole: the batch of each process, and that of the settings.
        processes: how many processes share the batch.
        limited: whether --tokens-per-process was given.
        longest: tokens of the longest sentence of each subset.
    """
    if batch.max_tokens is None:
        return
    for subset, size in longest.items():
        if size > batch.max_tokens:
            advice = f"--max-tokens {size} or more is needed"
            if whole.max_tokens is not None and size <= whole.max_tokens:
                advice = f"it needs room for {size}: start fewer processes"
                if limited:
                    advice += ", or give a larger --tokens-per-process"
            raise ConfigurationError(
                f"the longest sentence of {subset} has {size} tokens, but a batch holds at most "
                f"{batch.max_tokens} ({batch.describe(processes)}): {advice}"
            )


def check_longest_of_valid(max_tokens_valid: int, longest: Dict[str, int]) -> None:
    """The same for validation subsets with a --max-tokens-valid of their own."""
    for subset, size in longest.items():
        if size > max_tokens_valid:
            raise ConfigurationError(
                f"the longest sentence of {subset} has {size} tokens, but a batch of it holds at "
                f"most --max-tokens-valid {max_tokens_valid}: --max-tokens-valid {size} or more "
                "is needed"
            )
