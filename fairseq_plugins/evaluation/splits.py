"""Splits of a test set: whether their files exist, and which texts to show."""

from pathlib import Path
from typing import Iterable, Sequence

from fairseq_plugins.errors import ConfigurationError


def check_files(option: str, files: Iterable[Path], data: Path, indices: Iterable[Path]) -> None:
    """Refuse a split with missing files.

    Args:
        option: the option that names the split, such as "--split test".
        files: the files of the split.
        data: the prepared folder.
        indices: the files of all splits, each named after its split.

    Raises:
        ConfigurationError: a file is missing; the message lists the splits of the folder.
    """
    for path in files:
        if not path.is_file():
            have = sorted({index.name.split(".")[0] for index in indices})
            raise ConfigurationError(f"{option}: {path} is missing; {data} holds {', '.join(have)}")


def evenly(total: int, count: int) -> Sequence[int]:
    """Up to `count` different numbers below `total`, evenly spaced."""
    count = min(count, total)
    return [total * place // count for place in range(count)]
