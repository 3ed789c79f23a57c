"""Options as fields of a dataclass: each declares its help, default, choices and range once."""

from collections.abc import Iterator
from dataclasses import Field, field, fields
from typing import Any

from fairseq_plugins.errors import ConfigurationError, check_choice, check_range, flag


def option(
    default: Any,
    help: str,
    least: float | None = None,
    most: float = 2**20,
    odd: bool | None = None,
    **metadata: Any,
) -> Any:
    """A field of a FairseqDataclass.

    Args:
        default: its default value; None for an option that is completed later.
        help: the text of --help; the default is added unless the text has one.
        least, most: the allowed range of a number, for `check_option`.
        odd: whether a number must be odd (True) or even (False).
        metadata: more of fairseq's metadata, such as argparse_const.
    """
    if "efault" not in help and default is not None:
        help += f" (default: {'off' if default is False else default})"
    limits = {"least": least, "most": most, "odd": odd}
    return field(default=default, metadata={"help": help, **limits, **metadata})


def options_of(dataclass: type[Any]) -> Iterator[Field]:
    """The fields of a FairseqDataclass that are options."""
    return (each for each in fields(dataclass) if not each.name.startswith("_"))


def check_option(name: str, value: Any, declared: Field) -> None:
    """Refuse a value that the declaration of an option excludes; None was not given.

    Args:
        name: of the option, such as time_window.

    Raises:
        ConfigurationError: the message names the option, its value and what would work.
    """
    choices = getattr(declared.type, "__members__", {}).values()
    if choices:
        check_choice(name, value, [choice.value for choice in choices])
    limits = declared.metadata
    if value is None or limits.get("least") is None:
        return
    check_range(flag(name), value, limits["least"], limits["most"])
    if limits["odd"] is not None and value % 2 != limits["odd"]:
        raise ConfigurationError(
            f"{flag(name)} {value} must be {'odd' if limits['odd'] else 'even'}"
        )


def checked_options(dataclass: type[Any], args: Any, prefix: str = "") -> dict[str, Any]:
    """The values that `args` has for the options of a dataclass, each after `check_option`.

    Args:
        prefix: of the names in `args`, such as "fastformer_".
    """
    values = {}
    for declared in options_of(dataclass):
        name = prefix + declared.name
        values[declared.name] = getattr(args, name)
        check_option(name, values[declared.name], declared)
    return values
