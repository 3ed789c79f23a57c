"""Run a program of fairseq on Python 3.14, which cannot import fairseq without this package.

    python -m fairseq_plugins.fairseq_program train DATA --user-dir fairseq_plugins --arch ...

is fairseq-train, and so on.
"""

import argparse
import importlib
import logging
import sys
from typing import Any

import fairseq_plugins


def words_of(program: str) -> list[str]:
    """The words after `python` that run a program of fairseq, such as "train"."""
    if sys.version_info < (3, 14):
        return ["-m", f"fairseq_cli.{program}"]
    return ["-m", __name__, program]


def main() -> None:
    """Run the program that the first argument names."""
    fairseq_plugins.register()
    logging.getLogger().handlers.clear()  # of a message so far; the program adds its own
    # argparse checks all help texts since Python 3.14, and one of hydra's is no text
    parser: Any = argparse.ArgumentParser
    parser._check_help = lambda self, action: None
    program = sys.argv.pop(1)
    sys.argv[0] = f"fairseq-{program}"
    importlib.import_module(f"fairseq_cli.{program}").cli_main()


if __name__ == "__main__":
    main()
