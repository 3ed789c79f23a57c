"""Options as fields of a dataclass: each declares its help, default, choices and range once."""

import math
import numbers
import types
from collections.abc import Iterator
from dataclasses import MISSING, Field, field, fields
from typing import Any, Union, get_args, get_origin

from fairseq_plugins.errors import ConfigurationError, check_choice, check_number, flag

REQUIRED = MISSING  # the default of an option that must be given
MOST = 1024  # processes, threads or machines: a larger number is a slip
LARGEST_SIZE = 2**20  # of an option of a model whose declaration has no limit
NUMBERS: dict[Any, Any] = {int: numbers.Integral, float: numbers.Real}


def option(
    default: Any,
    help: str,
    least: float | None = None,
    most: float | None = None,
    odd: bool | None = None,
    **metadata: Any,
) -> Any:
    """A field of a dataclass that is an option: of a model, of the search or of a command.

    Args:
        default: its default value; `REQUIRED` for none; None for one that is completed later.
        help: a phrase or sentence for --help, to which the default is added unless it has one.
        least, most: the allowed range of a number.
        odd: whether a number must be odd (True) or even (False).
        metadata: more of fairseq's metadata, such as argparse_const; or of a command's option:
            choices; metavar, the name of the value in the help; name, if its name on the command
            line is another; group, of options that exclude each other; nargs, of a sequence, which
            is "+" if it is not given; repeatable, for a sequence with one value for each time that
            the option is given; positional; rest, for the arguments after `--`; needs, the name
            of an option without which this one has no effect.
    """
    shown = help
    if "efault" not in help and default is not False and default not in (None, (), "", REQUIRED):
        shown += f" (default: {default})"
    limits = {"least": least, "most": most, "odd": odd, "text": help}
    declared: Any = {"metadata": {**metadata, **limits, "help": shown}}
    if default is not REQUIRED:
        declared["default"] = default
    return field(kw_only=not metadata.get("positional", False), **declared)


def argument(help: str, metavar: str, **metadata: Any) -> Any:
    """A field that is a positional argument of a command."""
    return option(REQUIRED, help, metavar=metavar, positional=True, **metadata)


def with_default(dataclass: type[Any], name: str, default: Any) -> Any:
    """A field like that of another dataclass, with another default."""
    declared = next(each for each in fields(dataclass) if each.name == name).metadata
    return option(default, **{**declared, "help": declared["text"]})


def options_of(dataclass: type[Any]) -> Iterator[Field]:
    """The fields of a dataclass that are options."""
    return (each for each in fields(dataclass) if not each.name.startswith("_"))


def kind_of(declared: Field) -> tuple[Any, bool]:
    """The type of an option's value, T for T | None, and whether it is a sequence of these."""
    kind: Any = declared.type
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(each for each in get_args(kind) if each is not type(None))
    return (get_args(kind)[0], True) if get_args(kind) else (kind, False)


def check_option(name: str, value: Any, declared: Field, most: float = math.inf) -> None:
    """Raise an error for a value that the declaration of an option excludes.

    Args:
        name: of the option, such as time_window.
        value: None, the default and a sequence of allowed values are allowed.
        declared: the field of the option.
        most: the limit of a number whose declaration has none.

    Raises:
        ConfigurationError: the message names the option, its value and what would work.
    """
    limits, (kind, _) = declared.metadata, kind_of(declared)
    name = limits.get("name", name)
    members = getattr(kind, "__members__", {}).values()
    choices = limits.get("choices") or [member.value for member in members]
    if isinstance(value, (list, tuple)):
        for each in value:
            check_option(name, each, declared, most)
    elif choices and (value is not None or members):
        check_choice(name, value, choices)
    elif declared.type is bool and not isinstance(value, bool):
        raise ConfigurationError(f"{flag(name)} {value!r}: must be True or False")
    elif value is not None and kind in NUMBERS:
        least, above, odd = (limits.get(limit) for limit in ("least", "most", "odd"))
        least, above = -math.inf if least is None else least, most if above is None else above
        check_number(name, value, least, above, NUMBERS[kind])
        if odd is not None and value % 2 != odd:
            raise ConfigurationError(f"{flag(name)} {value} must be {'odd' if odd else 'even'}")


def values_of(made: Any, *groups: type[Any]) -> dict[str, Any]:
    """The values that `made` has for the options of these dataclasses, by their names."""
    return {each.name: getattr(made, each.name) for group in groups for each in fields(group)}


def checked_options(
    dataclass: type[Any], args: Any, prefix: str = "", most: float = LARGEST_SIZE
) -> dict[str, Any]:
    """The values that `args` has for the options of a dataclass.

    Args:
        prefix: of the names in `args`, such as "fastformer_".
        most: the limit of a number whose declaration has none.

    Raises:
        ConfigurationError: see `check_option`; or an option is given without one that it needs.
    """
    values = {each.name: getattr(args, prefix + each.name) for each in options_of(dataclass)}
    for declared in options_of(dataclass):
        name, value = prefix + declared.name, values[declared.name]
        check_option(name, value, declared, most)
        needed = declared.metadata.get("needs")
        if needed and value and value != declared.default and not values[needed]:
            told = value if isinstance(value, (list, tuple)) else [value] * (value is not True)
            raise ConfigurationError(
                f"{' '.join([flag(name), *map(str, told)])} needs {flag(prefix + needed)}: add it, "
                "or remove this"
            )
    return values
