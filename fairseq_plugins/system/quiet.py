"""Limit what fairseq and other libraries log."""

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def at_least(lowest: int, name: str) -> Iterator[None]:
    """Hide messages below a level that the logger of a package or file writes."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(lowest)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def only_warnings_of_fairseq() -> Iterator[None]:
    """Hide fairseq's routine log messages from a command's output."""
    with at_least(logging.WARNING, "fairseq"):
        yield


@contextlib.contextmanager
def only_errors() -> Iterator[None]:
    """Hide everything below errors that any library logs."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(level)
