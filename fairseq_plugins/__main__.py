"""`fairseq-plugins COMMAND`; without a command it prints the folder for `--user-dir`."""

import io
import sys

from fairseq_plugins.cli import main


def run() -> int:
    """Run the program; returns its exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # tolerate labels that the locale cannot write
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return main(sys.argv[1:])
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()  # here the hook for errors still sees that the reader has gone


if __name__ == "__main__":
    sys.exit(run())
