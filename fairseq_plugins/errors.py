"""Mistakes of the user's, told in one line."""

import sys
from types import TracebackType
from typing import List, Optional, Type


class ConfigurationError(ValueError):
    """An option that cannot work: the message names it, its value and what would work."""


def check_range(option: str, value: float, least: float, most: float) -> None:
    """Refuse a value of an option that is not from `least` to `most`.

    Raises:
        ConfigurationError: it is not, or is no number.
    """
    if not least <= value <= most:
        raise ConfigurationError(f"{option} {value} must be from {least} to {most}")


def nearest(value: int, allowed: List[int]) -> str:
    """The allowed values closest to `value` on either side, for an error message."""
    below = [a for a in allowed if a <= value][-1:]
    above = [a for a in allowed if a > value][:1]
    return " or ".join(str(a) for a in below + above) or "none"


def show_configuration_errors_in_one_line() -> None:
    """Let a ConfigurationError that ends a program be seen without the traceback above it."""
    previous = sys.excepthook

    def hook(
        kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]
    ) -> None:
        if issubclass(kind, ConfigurationError):
            print(f"error: {error}", file=sys.stderr)
        else:
            previous(kind, error, trace)

    sys.excepthook = hook
