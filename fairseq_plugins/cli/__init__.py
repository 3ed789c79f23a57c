"""The commands of `fairseq-plugins COMMAND`, one file each, here or in `lab/commands`.

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
from fairseq_plugins.errors import ConfigurationError, did_you_mean, one_line
from fairseq_plugins.options.user_dirs import import_user_dirs

PACKAGE = Path(__file__).resolve().parent.parent
FOLDERS = PACKAGE / "cli", PACKAGE / "lab" / "commands"
TITLES = "", "\nThe laboratory: tables of the papers, measurements, synthetic corpora:\n"
# what exported models need, by the names of imports
RUN_EXPORTS = {"numpy", "onnxruntime", "sacremoses", "sentencepiece", "subword_nmt"}
USAGE = """usage: fairseq-plugins [COMMAND] [arguments]

Without a command: print the folder for fairseq's --user-dir. --version prints the version.
COMMAND -h shows its options.
"""


class Stop:
    """Which signal asked a command to end, if any.

    `signals` turns SIGINT (Ctrl-C), SIGTERM, which clusters send before they end a job, and SIGHUP
    (a closed terminal) into KeyboardInterrupt, so that trainings save. A signal that is ignored, as
    SIGHUP under nohup, stays so. What ends the command then is no fault of it, even if a library
    raises another error instead.
    """

    number = 0

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():  # only it gets signals
            yield
            return
        numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        before = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) != signal.SIG_IGN}
        for number in before:
            signal.signal(number, self._interrupt)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, number: int, frame: Any) -> None:
        # a second one: Ctrl-C interrupts again, and others end the process at once
        again = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, again)
        self.number = number
        raise KeyboardInterrupt


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


def needs_fairseq(command: str, user_dirs: Sequence[Path] = ()) -> None:
    """Register everything with fairseq, whose import takes seconds: call it after parsing.

    Args:
        command: its name.
        user_dirs: folders to import then, from --user-dir.

    Raises:
        ConfigurationError: fairseq is not installed, or a folder cannot be imported.
    """
    fairseq_plugins.register(command)
    if user_dirs:
        import_user_dirs(user_dirs)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    if sys.stderr is None:  # closed, but libraries write to it
        sys.stderr = open(os.devnull, "w")
    words = list(sys.argv[1:] if argv is None else argv)
    found = commands()
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
        advice = did_you_mean(name, found, most=2)
        raise ConfigurationError(
            f"{name}: no such command; {advice and f'{advice} '}-h lists all of them"
        )
    path = found[name].relative_to(PACKAGE.parent).with_suffix("")

    def command(words: Sequence[str]) -> int:
        module = importlib.import_module(".".join(path.parts))
        return int(module.main(words))

    return run(name, command, words[1:])


def run(name: str, command: Callable[[Sequence[str]], int], words: Sequence[str]) -> int:
    """Call a command; returns its exit status. Here its errors become lines, and a stop "stopped".

    Raises:
        ConfigurationError: in place of any error of `errors.one_line`, or a package is missing.
    """
    stop = Stop()
    try:
        with stop.signals():
            return command(words)
    except BaseException as error:
        if stop.number or isinstance(error, KeyboardInterrupt):
            print("stopped", file=sys.stderr)
            return 128 + (stop.number or signal.SIGINT)
        if isinstance(error, ConfigurationError):
            raise
        line = one_line(error, name)
        if isinstance(error, ModuleNotFoundError):  # perhaps only what serves models is installed
            missing = (error.name or "").split(".")[0]
            if missing not in ("", PACKAGE.name):
                if missing not in RUN_EXPORTS and not fairseq_plugins.fairseq_is_installed():
                    needs_fairseq(name)
                line = f"{name} needs {missing}, which is not installed: install it"
        if line is None:
            raise
        raise ConfigurationError(line) from error
