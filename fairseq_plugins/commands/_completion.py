"""Completion of `fairseq-plugins` in a shell, by argcomplete.

eval "$(register-python-argcomplete fairseq-plugins)"     # in ~/.bashrc; for zsh see argcomplete
"""

import argparse
import importlib.util
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any


def command_to_complete() -> str | None:
    """The first word behind the program on the line to complete; None outside a completion.

    It is empty while the cursor is still at the name of a command.
    """
    if "_ARGCOMPLETE" not in os.environ or importlib.util.find_spec("argcomplete") is None:
        return None
    line = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])]
    words = line.split()
    return words[1] if len(words) > 2 or (len(words) == 2 and line.endswith(" ")) else ""


def complete_a_command(names: Iterable[str]) -> None:
    """Print the names that can come next, and exit."""
    import argcomplete

    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=sorted(names))
    argcomplete.autocomplete(parser)


def complete_its_options(main: Callable[[Sequence[str]], Any]) -> None:
    """Print what the parser of a command can complete, and exit."""
    import argcomplete

    os.environ["_ARGCOMPLETE"] = "2"  # the words of the parser begin with the command
    parsers: Any = argparse.ArgumentParser
    parse = parsers.parse_known_args

    def complete(parser: argparse.ArgumentParser, *arguments: Any) -> None:
        parsers.parse_known_args = parse  # argcomplete also parses
        argcomplete.autocomplete(parser)

    parsers.parse_known_args = complete  # importing mock would take 0.1 s
    main([])
