"""Share the batch of an update over processes."""

from typing import NamedTuple

from fairseq_plugins.errors import ConfigurationError


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
    if limit is not None:
        if whole.max_tokens is None:
            raise ConfigurationError(
                f"--tokens-per-process {limit} needs --max-tokens in the settings: add that"
            )
        sizes[0] = min(sizes[0], limit)
    for update_freq in range(1, max(totals, default=processes) // processes + 1):
        parts = processes * update_freq
        if all(t % parts == 0 and t <= size * parts for size, t in zip(sizes, totals)):
            tokens, sentences = (
                None if size is None else size * whole.update_freq // parts
                for size in (whole.max_tokens, whole.batch_size)
            )
            return Batch(tokens, sentences, update_freq)
    fitting = [n for n in range(1, 4 * processes) if not any(total % n for total in totals)]
    near = sorted(sorted(fitting, key=lambda n: (abs(n - processes), n))[:3])
    given = (("--max-tokens", whole.max_tokens), ("--batch-size", whole.batch_size))
    together = " and ".join(f"{option} {size}" for option, size in given if size is not None)
    limited = "" if limit is None else f" and --tokens-per-process {limit}"
    raise ConfigurationError(
        f"{processes} processes{limited} cannot share {together} x --update-freq "
        f"{whole.update_freq} exactly: start {' or '.join(map(str, near))} (--processes, "
        "--nodes), or change --max-tokens, --batch-size or --update-freq, which are those of a "
        "single process"
    )


def for_fewer(batch: Batch, planned: int, processes: int) -> Batch:
    """The batch of each of fewer processes than planned, so that an update stays the same.

    Each process accumulates more batches. If their number cannot be divided, batches are smaller,
    and an update has a few tokens less.

    Args:
        batch: that of each of the planned processes.
        planned: their number.
        processes: the number that is left.
    """
    parts = planned * batch.update_freq
    freq = -(-parts // processes)
    tokens, sentences = (
        size and size * parts // (processes * freq) for size in (batch.max_tokens, batch.batch_size)
    )
    return Batch(tokens, sentences, freq)
