"""Command lines: a command is a dataclass of options, from which its parser is built."""

import argparse
import functools
import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fairseq_plugins.errors import ConfigurationError, did_you_mean, flag
from fairseq_plugins.options.fields import checked_options, kind_of, options_of

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
        checked_options(type(self), self, most=math.inf)


def command(main: Callable[[T], int | None]) -> Callable[[Sequence[str]], int]:
    """Let `main`, whose argument is a `Command`, take a command line.

    The exit status is 0 where `main` returns nothing.

    The module's name is the command's, and its docstring the description that -h shows.
    """

    @functools.wraps(main)
    def run(argv: Sequence[str]) -> int:
        kind = next(iter(inspect.signature(main).parameters.values())).annotation
        module = main.__module__
        name = module.rpartition(".")[2].replace("_", "-")
        return main(read(kind, argv, name, sys.modules[module].__doc__)) or 0

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
    """Text, or a list of it, in the type of the option; `check_option` rejects what stays text.

    Raises:
        ConfigurationError: it is a URL, which no option takes, or a path without characters, which
            would be the current folder.
    """
    if isinstance(value, list):
        return [_converted(declared, each) for each in value]
    if value == "" and kind_of(declared)[0] is Path:
        name = declared.metadata["metavar"] if _is(declared, "positional") else flag(declared.name)
        raise ConfigurationError(f"{name} '' is empty: give a path")
    if re.match("(https?|ftp|s3|gs)://", str(value)):
        raise ConfigurationError(f"{value} is a URL: download it, and give the path of the file")
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
        choices = "{" + ",".join(map(str, what.get("choices", ()))) + "}"
        how["metavar"] = what.get("metavar", "N" if choices == "{}" else choices)
    if _is(declared, "repeatable"):
        how["action"] = "append"
    elif many or "nargs" in what:
        how["nargs"] = what.get("nargs", "+")
    if _is(declared, "positional"):
        parser.add_argument(declared.name, **how)
    else:
        how["required"] = declared.default is MISSING
        parser.add_argument(flag(what.get("name", declared.name)), dest=declared.name, **how)


def words_of(made: Command) -> list[str]:
    """The command line that `read` makes these options of."""
    first: list[Any] = []
    words: list[Any] = []
    last: list[Any] = []
    for declared in options_of(type(made)):
        value, (kind, many) = getattr(made, declared.name), kind_of(declared)
        name = flag(declared.metadata.get("name", declared.name))
        values = value if many else [value]
        if value in (None, declared.default) or not values:
            continue
        if _is(declared, "positional"):
            first += values
        elif _is(declared, "rest"):
            last = ["--", *values]
        elif kind is bool:
            words.append(name if value else name.replace("--", "--no-", 1))
        elif _is(declared, "repeatable"):
            words += [word for each in values for word in (name, each)]
        else:
            words += [name, *values]
    return list(map(str, [*first, *words, *last]))


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments before the first `--`, and those after it, which are for fairseq."""
    words = list(argv)
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]


class Parser(argparse.ArgumentParser):
    """A parser that reports a wrong argument in one line, without the list of all options."""

    _words: Sequence[str] = ()
    _found = argparse.Namespace()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words = sys.argv[1:] if args is None else args
        self._found = namespace or argparse.Namespace()
        return super().parse_known_args(args, self._found)

    def error(self, message: str) -> NoReturn:
        """Report an unknown option first, as argparse takes its value for another argument."""
        after = re.search(r"\[-- more (options for [\w-]+)\]", self.usage or "")
        hint = f"{after[1]} come at the end, after --" if after else ""
        known = self._option_string_actions
        names = [word.split("=")[0] for word in split(self._words)[0]]
        for before, name in zip(["", *names], names):
            begins = self.allow_abbrev and any(each.startswith(name) for each in known)
            is_option = re.fullmatch(r"--?[a-zA-Z]\S*", name)  # not a negative number
            if is_option and name not in known and not begins:
                if before in known and known[before].metavar == "OPTIONS":
                    hint = f"for {before}, write {before}={name}"
                advice = "; ".join(filter(None, [hint, did_you_mean(name, known)]))
                raise ConfigurationError(f"{name} is unknown: {advice or '-h lists the options'}")
        positional = [each for each in self._actions if not each.option_strings]
        order = [str(each.metavar or each.dest) for each in positional]
        problem, _, rest = message.partition(": ")
        if problem == "unrecognized arguments":
            message = f"too many arguments: {rest}: give {' '.join(order) or 'only options'}"
        elif problem == "the following arguments are required":
            needed, missing = [name for name in rest.split(", ") if name in known], ""
            needed = [f"{name} {known[name].metavar}" for name in needed]
            if len(needed) <= rest.count(", "):
                given = [str(getattr(self._found, each.dest, None) or "") for each in positional]
                needed = [*order, *needed]
                missing = f", not only {' '.join(given).strip()}" * any(given)
            message = f"give {' '.join(needed)}{missing}: -h explains this"
        raise ConfigurationError(re.sub(r"^argument (\S+): (\1 )?", r"\1 ", message))


def parser_of(command: str, description: str | None, **how: Any) -> Parser:
    """The parser of a command.

    Args:
        command: its name.
        description: the docstring of its file, shown by -h as it is.
        how: more arguments of `argparse.ArgumentParser`.
    """
    return Parser(
        prog=f"fairseq-plugins {command}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **how,
    )


def subcommand(
    argv: Sequence[str], command: str, description: str | None, known: Mapping[str, str]
) -> str:
    """The first argument, which must be one of the known subcommands; their values are help."""
    parser = parser_of(command, description)
    commands = parser.add_subparsers(dest="subcommand", required=True)
    for name, about in known.items():
        commands.add_parser(name, help=about)
    return str(parser.parse_known_args(argv[:1])[0].subcommand)
