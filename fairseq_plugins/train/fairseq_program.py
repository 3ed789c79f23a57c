"""Run a program of fairseq on Python 3.14, which cannot import fairseq without this package.

    python -m fairseq_plugins.train.fairseq_program train DATA --user-dir fairseq_plugins --arch ...

is fairseq-train, and so on.
"""

import argparse
import importlib
import pkgutil
import sys
from typing import Any

import fairseq_plugins
from fairseq_plugins.errors import ConfigurationError


def words_of(program: str) -> list[str]:
    """The words after `python` that run a program of fairseq, such as "train"."""
    if sys.version_info < (3, 14):
        return ["-m", f"fairseq_cli.{program}"]
    return ["-m", __name__, program]


def main() -> None:
    """Run the program that the first argument names, as train, eval-lm or fairseq-train.

    Raises:
        ConfigurationError: fairseq has no such program.
    """
    fairseq_plugins.register()
    given = sys.argv.pop(1) if sys.argv[1:] else ""
    program = given.replace("-", "_").removeprefix("fairseq_")
    programs = importlib.import_module("fairseq_cli").__path__
    known = [module.name for module in pkgutil.iter_modules(programs)]
    if program not in known:
        raise ConfigurationError(
            f"give a program of fairseq first, not '{given}': one of {', '.join(known)}"
        )
    # argparse checks all help texts since Python 3.14, and one of hydra's is no text
    parser: Any = argparse.ArgumentParser
    parser._check_help = lambda self, action: None
    sys.argv[0] = "fairseq-" + program.replace("_", "-")
    importlib.import_module(f"fairseq_cli.{program}").cli_main()


if __name__ == "__main__":
    main()
