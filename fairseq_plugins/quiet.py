"""What fairseq may log."""

import contextlib
import logging
from typing import Iterator


@contextlib.contextmanager
def only_warnings_of_fairseq() -> Iterator[None]:
    """Keep what fairseq logs of its ordinary work out of a command's output."""
    logger = logging.getLogger("fairseq")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
