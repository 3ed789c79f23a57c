"""Options of fairseq's commands, parsed as these do, with mistakes in one line."""

import argparse
import re
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from unittest import mock

from fairseq import options

from fairseq_plugins.errors import ConfigurationError, did_you_mean, flag

_parsing = threading.Lock()  # sys.argv is patched; a sweep uses threads


def parse(words: Sequence[str], off: Collection[str] = ()) -> argparse.Namespace:
    """The options as fairseq-train parses them, with the architecture's defaults filled in.

    Args:
        words: the command line.
        off: names of options that files set to false, which only removes a flag.

    Raises:
        ConfigurationError: the architecture is missing, fairseq does not know an option or a value,
            or one of `off` takes a value (one line).
    """
    if not any(word.split("=")[0] in ("--arch", "-a") for word in words):
        raise ConfigurationError(
            "no model: set model._name in the recipe (such as transformer_ftc), or give --arch"
        )
    return parse_as("fairseq-train", options.get_training_parser, words, off)


def parse_as(
    command: str,
    make_parser: Callable[[], argparse.ArgumentParser],
    words: Sequence[str],
    off: Collection[str] = (),
) -> argparse.Namespace:
    """The options as a command of fairseq parses them.

    Raises:
        ConfigurationError: fairseq does not know an option or a value (one line).
    """

    def refuse(message: str) -> None:
        if strange := re.match(
            r"argument (--[\w-]+).*: invalid choice: '?(.*?)'? \(choose", message
        ):
            known = parser._option_string_actions[strange[1]].choices or ()
            near = did_you_mean(strange[2], known, "-h lists the choices")
            raise ConfigurationError(f"{strange[1]} {strange[2]} is unknown: {near}")
        unknown = message.removeprefix("unrecognized arguments: ")
        if wrong := re.fullmatch(r"argument (\S+): invalid (\S+) value: (.*)", message):
            whole = "whole " if wrong[2] == "int" else ""
            raise ConfigurationError(f"{wrong[1]} {wrong[3]}: must be a {whole}number")
        if unknown == message:
            raise ConfigurationError(f"{command} does not take this: {message}")
        question = did_you_mean(re.split("[ =]", unknown)[0], parser._option_string_actions)
        raise ConfigurationError(
            f"{command} does not take {unknown}" + (f": {question}" if question else "")
        )

    with _parsing, mock.patch.object(sys, "argv", [command]):  # fairseq's parsers look there too
        parser = make_parser()
    with mock.patch.object(parser, "error", refuse):
        given = options.parse_args_and_arch(parser, list(words))
    for action in parser._actions:
        if action.dest in off and action.nargs != 0:
            raise ConfigurationError(
                f"{flag(action.dest)} is false in the recipe or a --settings file (YAML also reads "
                "no and off as false), but takes a value: write 0, 'no' in quotes, or null for none"
            )
    return given
