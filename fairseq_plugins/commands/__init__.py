"""The commands of `python -m fairseq_plugins COMMAND`, one file each, here or in `lab/commands`.

A command's file has a docstring, whose first line the list of commands shows, and a function
`main(argv) -> int`: arguments in, a call into the package, a message out, the exit status. A file
`a_b.py` is the command `a-b`. Only the file of the command that runs is imported. It reads its
arguments first, and then calls `needs_fairseq` and imports what is slow: help and mistakes come at
once.
"""

import ast
import contextlib
import importlib
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fairseq_plugins
from fairseq_plugins.commands import _completion
from fairseq_plugins.errors import ConfigurationError

PACKAGE = Path(__file__).resolve().parent.parent
FOLDERS = PACKAGE / "commands", PACKAGE / "lab" / "commands"
TITLES = "", "\nOf the laboratory: the papers' tables, measurements, made corpora:\n"
# what exported models need, by the names of imports
RUN_EXPORTS = {"numpy", "onnxruntime", "sacremoses", "sentencepiece", "subword_nmt"}
USAGE = """usage: python -m fairseq_plugins [COMMAND] [arguments]

Without a command: print the folder for fairseq's --user-dir. --version prints the version.
COMMAND -h shows its options.
"""


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM or SIGHUP, with its number: like Ctrl-C, it lets trainings save."""


@contextlib.contextmanager
def interrupted_when_terminated() -> Iterator[None]:
    """Turn SIGTERM, which clusters send before they end a job, into `Terminated`.

    The same for SIGHUP (a closed terminal), unless it is ignored, as under nohup.
    """

    def handle(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second signal ends it at once
        raise Terminated(number)

    if threading.current_thread() is not threading.main_thread():  # other threads get no signals
        yield
        return
    numbers = [signal.SIGTERM, signal.SIGHUP]
    before = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def commands() -> dict[str, Path]:
    """The file of each command: those of the product first, then those of the laboratory."""
    files = [path for folder in FOLDERS for path in sorted(folder.glob("[a-z]*.py"))]
    return {path.stem.replace("_", "-"): path for path in files}


def summary(path: Path) -> str:
    """The first line of a file's docstring; the file is not imported."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return (text or "").split("\n")[0]


def _print_help(found: dict[str, Path]) -> None:
    print(USAGE)
    for folder, title in zip(FOLDERS, TITLES):
        print(title, end="")
        for command, path in found.items():
            if path.parent == folder:
                print(f" {command:23s}{summary(path)}")


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments before the first `--`, and those after it, which are for fairseq."""
    words = list(argv)
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]


def needs_fairseq(command: str) -> None:
    """Register everything with fairseq, whose import takes seconds: call it after parsing."""
    fairseq_plugins.register(command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    found = commands()
    completed = _completion.command_to_complete()
    if completed is not None:
        if completed not in found:
            _completion.complete_a_command(found)
        words = [completed]
    if not words:
        print(PACKAGE)
        return 0
    name = words[0]
    if name in ("-h", "--help"):
        _print_help(found)
        return 0
    if name == "--version":
        print(fairseq_plugins.__version__)
        return 0
    if name not in found:
        raise ConfigurationError(f"{name}: no such command; choose from {', '.join(found)}")
    if sys.stderr is None:  # closed, but libraries write to it
        sys.stderr = open(os.devnull, "w")
    place = found[name].relative_to(PACKAGE.parent).with_suffix("")
    try:
        module = importlib.import_module(".".join(place.parts))
        if completed is not None:
            _completion.complete_its_options(module.main)
        return run(name, module.main, words[1:])
    except ModuleNotFoundError as error:  # what serves models was installed, without the rest
        missing = (error.name or "").split(".")[0]
        if missing in ("", PACKAGE.name):
            raise
        if missing not in RUN_EXPORTS and not fairseq_plugins.fairseq_is_installed():
            needs_fairseq(name)
        raise ConfigurationError(
            f"{name} needs {missing}, which is not installed: install it"
        ) from error


def run(name: str, main: Callable[[Sequence[str]], int], words: Sequence[str]) -> int:
    """Call the `main` of a command; returns its exit status.

    Raises:
        ConfigurationError: also in place of OSError (a full disk); names the file, or else `name`.
    """
    try:
        with interrupted_when_terminated():
            return int(main(words))
    except ConfigurationError:
        raise
    except OSError as error:
        raise ConfigurationError(f"{error.filename or name}: {error.strerror or error}") from error
    except KeyboardInterrupt as error:
        print("stopped", file=sys.stderr)
        return 128 + (error.args[0] if isinstance(error, Terminated) else signal.SIGINT)
