"""User errors, reported in one line."""

import difflib
import math
import numbers
import os
import re
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

OUT_OF_MEMORY = "out of memory|can't allocate memory"  # of a GPU, and of the CPU
NAMES_AN_OPTION = re.compile(r"(?<![\w-])--[a-z]")
# how fairseq-train ends on request: its exit status, and a line of its log on each machine
TERMINATED = 128 + signal.SIGTERM
STATE_SAVED = "asked to end: the state is saved"


class ConfigurationError(ValueError):
    """An option that cannot work: the message names it, its value and what would work.

    Its text has one line without control characters, even if it quotes a file.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


def printable(text: str) -> str:
    """The text with escapes for characters that end a line or control a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def killed_by(number: int) -> str:
    """How a process ended that was killed by this signal."""
    name = signal.Signals(number).name
    return f"killed by {name}" + (", probably for lack of memory" if name == "SIGKILL" else "")


def flag(name: str) -> str:
    """The command-line option of a name: --time-window for time_window."""
    return "--" + name.replace("_", "-")


def check_range(option: str, value: Any, least: float, most: float = math.inf) -> None:
    """Refuse a value of an option outside `least` to `most`, both allowed. Text may be a number.

    Raises:
        ConfigurationError: the value is outside, or not a number.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not least <= number <= most:
        wanted = f"at least {least}" if most == math.inf else f"from {least} to {most}"
        raise ConfigurationError(f"{option} {value}: must be {wanted}")
    if number == math.inf:
        raise ConfigurationError(f"{option} {value}: must be finite")


def check_number(
    name: str, value: Any, least: float, most: float = math.inf, kind: Any = numbers.Integral
) -> None:
    """As `check_range` for the option with this name, and refuse text and other types.

    Raises:
        ConfigurationError: the value is outside, or not of `kind`.
    """
    if not isinstance(value, kind) or isinstance(value, bool):
        whole = "whole " if kind is numbers.Integral else ""
        raise ConfigurationError(f"{flag(name)} {value!r}: must be a {whole}number")
    check_range(flag(name), value, least, most)


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Refuse a value that is not among the choices of the option with this name.

    Raises:
        ConfigurationError: it is not among them; the message lists the choices.
    """
    known = [str(choice) for choice in choices]
    if str(value) not in known:
        choose = f"choose one of {', '.join(known)}"
        raise ConfigurationError(f"{flag(name)} {value} is unknown: {choose}")


def counted(number: int, things: str) -> str:
    """The number before a phrase that begins with a plural: "1 line", "2,000 lines of text"."""
    if number == 1:
        things = re.sub(r"(ie)?s\b", lambda end: "y" if end[1] else "", things, count=1)
    return f"{number:,} {things}"


def did_you_mean(name: object, known: Iterable[str], otherwise: str = "", most: int = 1) -> str:
    """A question that names the known names that begin so, or the nearest; else `otherwise`."""
    text, bare = str(name).lstrip("-"), {each.lstrip("-"): each for each in known}
    near = [each for each in bare if each.startswith(text) and len(text) > 2]
    cutoff = 0.6 if text == str(name) else 0.75  # options resemble each other
    near = [bare[each] for each in near[:8] or difflib.get_close_matches(text, bare, most, cutoff)]
    return f"did you mean {' or '.join(near)}?" if near else otherwise


def check_known(
    names: Iterable[str], known: Iterable[str], where: str, problem: str, otherwise: str = ""
) -> None:
    """Raise a ConfigurationError, "`where``name` `problem`: ...", for a name that is not known."""
    known = sorted(known)
    for name in names:
        if name not in known:
            advice = did_you_mean(name, known, otherwise)
            raise ConfigurationError(f"{where}{name} {problem}" + (advice and f": {advice}"))


def check_path(option: str, path: Path, letters: str = os.pathsep) -> None:
    """Refuse a path with a character that fairseq reads as the end of a path.

    Raises:
        ConfigurationError: the path has such a character.
    """
    for letter in letters:
        if letter in str(path):
            raise ConfigurationError(
                f"{option} {path}: fairseq cannot read paths with '{letter}': choose another folder"
            )


def nearest(value: int, allowed: list[int]) -> str:
    """The allowed values closest to `value` on either side, for an error message."""
    below = [a for a in allowed if a <= value][-1:]
    above = [a for a in allowed if a > value][:1]
    return " or ".join(str(a) for a in below + above) or "none"


def first_cause(error: BaseException) -> str:
    """The first line of the error that caused the others."""
    while error.__context__ is not None:
        error = error.__context__
    return (str(error).splitlines() or ["?"])[0].strip().rstrip(".")


def one_line(error: BaseException, name: str) -> str | None:
    """The line for an error that the user can mend; None if only its traceback helps.

    Args:
        error: what ended a command.
        name: the command, for errors that name no file.
    """
    if isinstance(error, ConfigurationError):
        return str(error)
    if isinstance(error, OSError):
        named = error.filename or name
        named = os.fsdecode(named) if isinstance(named, (str, bytes)) else name
        return printable(f"{named}: {error.strerror or error}")
    reason = (str(error).splitlines() or [""])[0]
    checked = isinstance(error, (AssertionError, ValueError)) and NAMES_AN_OPTION.search(reason)
    if checked or type(error) is Exception:  # as fairseq checks its options and data
        return printable(reason)
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and re.search(OUT_OF_MEMORY, reason)
    ):
        return printable(f"{name}: not enough memory{reason and ': ' + reason}")
    if isinstance(error, RecursionError):
        return f"{name}: an input is nested too deeply"
    if isinstance(error, RuntimeError) and reason.startswith("Symlink loop"):  # until Python 3.12
        return printable(f"{name}: {reason}")
    return None


def show_errors_in_one_line() -> None:
    """Show an error of `one_line`, or Ctrl-C, that ends a program without the traceback."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        line = one_line(error, os.path.basename(sys.argv[0]))
        if issubclass(kind, BrokenPipeError):  # the reader of the output is gone, such as head
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python writes the rest when it ends
            return
        if issubclass(kind, KeyboardInterrupt):
            print("stopped", file=sys.stderr)
        elif line is not None:
            print(f"error: {line}", file=sys.stderr)
        else:
            previous(kind, error, trace)

    sys.excepthook = hook
