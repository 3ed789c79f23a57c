"""Options of fairseq's commands, parsed as these do, with mistakes in one line."""

import argparse
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from unittest import mock

from fairseq import options

from fairseq_plugins.errors import ConfigurationError, flag

_parsing = threading.Lock()  # sys.argv is patched; a sweep uses threads


def parse(
    words: Sequence[str],
    off: Collection[str] = (),
    command: str = "fairseq-train",
    make_parser: Callable[[], argparse.ArgumentParser] = options.get_training_parser,
) -> argparse.Namespace:
    """The options as a command of fairseq parses them, with the architecture's defaults filled in.

    Args:
        words: the command line.
        off: names of options that files set to false, which only removes a flag.
        command, make_parser: its name and what makes its parser.

    Raises:
        ConfigurationError: the architecture is missing, fairseq does not know an option or a value,
            or one of `off` takes a value (one line).
    """
    with _parsing, mock.patch.object(sys, "argv", [command]):  # fairseq's parsers look there too
        parser = make_parser()
    given = options.parse_args_and_arch(parser, list(words))
    for action in parser._actions:
        if action.dest in off and action.nargs != 0:
            raise ConfigurationError(
                f"{flag(action.dest)} is false in the recipe or a --settings file (YAML also reads "
                "no and off as false), but takes a value: write 0, 'no' in quotes, or null for none"
            )
    return given
