"""Command lines: a command is a dataclass of options, from which its parser is built."""

import argparse
import difflib
import functools
import inspect
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fairseq_plugins.errors import ConfigurationError, flag, range_problem
from fairseq_plugins.options.fields import MOST, check_option, kind_of, options_of

T = TypeVar("T", bound="Command")


@dataclass
class Command:
    """The options of a command: fields that `fields.option` and `fields.argument` declare.

    Attributes:
        given: the names of the options that a command line has, also with their default value.

    Raises:
        ConfigurationError: a value cannot work, from the command line or from Python.
    """

    given = frozenset[str]()

    def __post_init__(self) -> None:
        for declared in options_of(type(self)):
            check_option(declared.name, getattr(self, declared.name), declared)


def command(main: Callable[[T], int]) -> Callable[[Sequence[str]], int]:
    """Let `main`, whose argument is a `Command`, take a command line; returns the exit status.

    The module's name is the command's, and its docstring the description that -h shows.
    """

    @functools.wraps(main)
    def run(argv: Sequence[str]) -> int:
        kind = next(iter(inspect.signature(main).parameters.values())).annotation
        module = main.__module__
        name = module.rpartition(".")[2].replace("_", "-")
        return main(read(kind, argv, name, sys.modules[module].__doc__))

    return run


def read(options: type[T], argv: Sequence[str], name: str, description: str | None) -> T:
    """The options of a command line.

    Args:
        options: the dataclass of the command.
        argv: the arguments.
        name: the command.
        description: what -h shows before the options.

    Raises:
        ConfigurationError: an argument is wrong; the message has one line.
        SystemExit: after -h.
    """
    declared = {each.name: each for each in options_of(options)}
    rest = [name for name, each in declared.items() if "rest" in each.metadata]
    own, extra = split(argv) if rest else (argv, [])
    found = vars(parser_for(options, name, description).parse_args(own))
    values = {name: _converted(declared[name], value) for name, value in found.items()}
    made = options(**values, **dict.fromkeys(rest, extra))
    made.given = frozenset(found)
    return made


def _converted(declared: Field, value: Any) -> Any:
    """Text, or a list of it, in the type of the option; `check_option` rejects what stays text."""
    if isinstance(value, list):
        return [_converted(declared, each) for each in value]
    try:
        return kind_of(declared)[0](value)
    except ValueError:
        return value


def parser_for(options: type[Command], name: str, description: str | None) -> "Parser":
    """The parser of a command. Its namespace has only the options that are given, as text."""
    fields = sorted(options_of(options), key=lambda each: each.default is not MISSING)
    names = " ".join(each.metadata["metavar"] for each in fields if _is(each, "positional"))
    more = [f"[-- {each.metadata['help']}]" for each in fields if _is(each, "rest")]
    usage = f"%(prog)s {names} [options] {more[0]}" if more else None
    how: Any = {"usage": usage, "allow_abbrev": not more, "argument_default": argparse.SUPPRESS}
    parser, groups = parser_of(name, description, **how), {}
    for declared in fields:
        group = declared.metadata.get("group")
        if group is not None and group not in groups:
            groups[group] = parser.add_mutually_exclusive_group()
        if not _is(declared, "rest"):
            _add(groups.get(group, parser), declared)
    return parser


def _is(declared: Field, what: str) -> bool:
    return bool(declared.metadata.get(what))


def _add(parser: Any, declared: Field) -> None:
    """Add an option to a parser, or to a group of one."""
    (kind, many), what = kind_of(declared), declared.metadata
    how: dict[str, Any] = {"help": what["help"].replace("%", "%%")}
    if kind is bool:
        optional = argparse.BooleanOptionalAction
        how["action"] = "store_true" if declared.type is bool else optional
    else:
        choices = "{" + ",".join(what.get("choices", ())) + "}"
        how["metavar"] = what.get("metavar", "N" if choices == "{}" else choices)
    if _is(declared, "repeatable"):
        how["action"] = "append"
    elif many:
        how["nargs"] = what.get("nargs", "+")
    if _is(declared, "positional"):
        parser.add_argument(declared.name, **how)
    else:
        option = flag(what.get("name", declared.name))
        how["required"] = declared.default is MISSING
        parser.add_argument(option, dest=declared.name, **how)


def words_of(made: Command) -> list[str]:
    """The command line that `read` makes these options of."""
    first: list[Any] = []
    words: list[Any] = []
    last: list[Any] = []
    for declared in options_of(type(made)):
        value, (kind, many) = getattr(made, declared.name), kind_of(declared)
        option = flag(declared.metadata.get("name", declared.name))
        values = value if many else [value]
        if value in (None, declared.default) or not values:
            continue
        if _is(declared, "positional"):
            first += values
        elif _is(declared, "rest"):
            last = ["--", *values]
        elif kind is bool:
            words.append(option if value else option.replace("--", "--no-", 1))
        elif _is(declared, "repeatable"):
            words += [word for each in values for word in (option, each)]
        else:
            words += [option, *values]
    return list(map(str, [*first, *words, *last]))


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments before the first `--`, and those after it, which are for fairseq."""
    words = list(argv)
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]


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
