"""Numbers as values of command-line options."""

import argparse
import math
from typing import Any, Callable


def at_least(
    least: float, kind: Callable[[str], Any] = int, most: float = math.inf
) -> Callable[[str], Any]:
    """An argparse type: a number of type `kind`, from `least` to `most`."""

    def convert(text: str) -> Any:
        try:
            number = kind(text)
        except ValueError:
            whole = "whole " if kind is int else ""
            raise argparse.ArgumentTypeError(f"{text!r} is not a {whole}number") from None
        if number != number or abs(number) == math.inf:
            raise argparse.ArgumentTypeError(f"{text}: give a finite number")
        if number < least:
            raise argparse.ArgumentTypeError(f"{text}: give at least {least}")
        if number > most:
            raise argparse.ArgumentTypeError(f"{text}: give at most {most}")
        return number

    return convert
