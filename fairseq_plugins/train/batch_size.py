"""Share the batch of an update over processes, and check that every sentence fits."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from fairseq_plugins.errors import ConfigurationError, check_range


class Batch(NamedTuple):
    """The largest batch of one process, and how many batches it accumulates for an update."""

    max_tokens: int | None
    batch_size: int | None
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


def share(whole: Batch, processes: int, limit: int | None = None) -> Batch:
    """Share the batch of one process over several processes, with the same total per update.

    No batch is larger than that of one process. The smallest possible `update_freq`, with the
    largest batches, is returned.

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


def check_longest(
    longest: dict[str, int], option: str, room: int, most: int = 0, ways: Sequence[str] = ()
) -> None:
    """Raise a ConfigurationError if a sentence does not fit into a batch.

    Args:
        longest: tokens of the longest sentence of each subset.
        option: sets the size of the batch.
        room: tokens that a batch holds.
        most: tokens that the batch of a single process would hold.
        ways: how a sentence of at most so many tokens gets room.
    """
    for subset, size in longest.items():
        if size > room:
            more = f"it needs room for {size}: {', or '.join(ways)}"
            advice = more if size <= most else f"give {option} {size} or more after --"
            raise ConfigurationError(
                f"the longest sentence of {subset} has {size} tokens, but a batch holds at most "
                f"{room}: {advice}"
            )
