"""`python -m fairseq_plugins COMMAND`; without a command it prints the folder for `--user-dir`."""

import io
import sys

from fairseq_plugins.commands import main


def run() -> int:
    """The program; returns its exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a label that the locale cannot write is no error
        sys.stdout.reconfigure(errors="backslashreplace")
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(run())
