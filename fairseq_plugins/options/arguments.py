"""Command lines: the parser of a command, and options that take numbers, paths or nothing."""

import argparse
import difflib
import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from fairseq_plugins.errors import ConfigurationError, range_problem

MOST = 1024  # the limit of processes, threads or machines: a larger number is a slip


class Parser(argparse.ArgumentParser):
    """A parser that reports a wrong argument in one line, without the list of all options."""

    _words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words = sys.argv[1:] if args is None else args
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        unknown = message.startswith("unrecognized arguments: ")
        if unknown or message.startswith("the following arguments are required: "):
            words = message.split()[2:] if unknown else self._words
            after = re.search(r"\[-- more (options for [\w-]+)\]", self.usage or "")
            hint = f"{after[1]} come after --" if after else ""
            if unknown and hint and any(word.startswith("-") for word in words):
                message += f": {hint}"
            option, question = find_misspelt(words, self)
            if option:
                message = f"{option} is unknown: {hint and hint + '; '}{question}"
        raise ConfigurationError(re.sub(r"^argument (\S+): ", r"\1 ", message))


def find_misspelt(words: Sequence[str], parser: argparse.ArgumentParser) -> tuple[str, str]:
    """The first unknown option near to one of the parser, and a question; both "" for none."""
    known = parser._option_string_actions
    for option in (word.split("=")[0] for word in words if word.startswith("--")):
        near = difflib.get_close_matches(option, known, 1, 0.75)
        if near and not near[0].startswith(option):  # argparse takes a beginning
            return option, f"did you mean {near[0]}?"
    return "", ""


def parser_of(command: str, description: str | None, **how: Any) -> Parser:
    """The parser of a command.

    Args:
        command: its name.
        description: the docstring of its file, shown by -h as it is.
        how: more arguments of `argparse.ArgumentParser`.
    """
    return Parser(
        prog=f"python -m fairseq_plugins {command}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **how,
    )


def add_number(
    parser: Any,
    option: str,
    text: str,
    default: float | None = None,
    least: float = 1,
    kind: Callable[[str], Any] = int,
    most: float = math.inf,
    metavar: str = "N",
) -> None:
    """Add an option that takes a number.

    Args:
        parser: where to add it: a parser or a group of one.
        option: its name.
        text: its help, to which the default is added, if there is one.
        default: its default.
        least, kind, most: see `at_least`.
        metavar: the name of the value in the help.
    """
    text += "" if default is None else " (default: %(default)s)"
    number = at_least(least, kind, most)
    parser.add_argument(option, type=number, default=default, metavar=metavar, help=text)


def add_count(
    parser: Any, option: str, text: str, default: int | None = None, least: int = 1
) -> None:
    """Add an option that counts processes, threads or machines: at most `MOST`."""
    add_number(parser, option, text, default, least, most=MOST)


def at_least(
    least: float, kind: Callable[[str], Any] = int, most: float = math.inf
) -> Callable[[str], Any]:
    """An argparse type: a finite number of type `kind`, from `least` to `most`."""

    def convert(text: str) -> Any:
        try:
            number = kind(text)
        except ValueError:
            whole = "whole " if kind is int else ""
            raise argparse.ArgumentTypeError(f"{text}: must be a {whole}number") from None
        problem = range_problem(number, least, most)
        if not problem and number == math.inf:
            problem = "must be finite"
        if problem:
            raise argparse.ArgumentTypeError(f"{text}: {problem}")
        return number

    return convert


def add_path(parser: Any, option: str, metavar: Any, text: str, **how: Any) -> None:
    """Add an option that takes a file or folder, or several with `nargs`."""
    parser.add_argument(option, type=Path, metavar=metavar, help=text, **how)


def add_flag(parser: Any, option: str, text: str) -> None:
    """Add an option without a value, which is off unless it is given."""
    parser.add_argument(option, action="store_true", help=text)
