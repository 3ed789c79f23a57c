"""Limit what fairseq logs."""

import contextlib
import logging
from typing import Iterator


@contextlib.contextmanager
def only_warnings_of_fairseq() -> Iterator[None]:
    """Hide fairseq's routine log messages from a command's output."""
    logger = logging.getLogger("fairseq")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
