"""Models and tools for fairseq: give fairseq this package's folder as `--user-dir`.

Importing the package applies the workarounds for newer torch and Python (`compat`), registers
architectures, criterions, scorers and tasks, and makes generation fast (`search.torch_backend`).
It prints nothing and changes nothing in the program that imports it (see
`compat.importing.unchanged_host`).
`python -m fairseq_plugins` skips all this until a command needs it.
Without fairseq, `Translator`, `Summarizer` and `Classifier` take exported models.
"""

import gc
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_plugins.compat.importing import unchanged_host, watch_imports
from fairseq_plugins.errors import ConfigurationError, show_errors_in_one_line
from fairseq_plugins.version import __version__

if TYPE_CHECKING:
    from fairseq_plugins.api import Classifier, Summarizer, Translator

SCRIPT = "fairseq-plugins"  # `python -m fairseq_plugins`, installed as a program
__all__ = ["Classifier", "Summarizer", "Translator", "__version__", "register"]
# modules that change fairseq, each with its `install`
PATCHES = (
    "losses.expert_balance",
    "search.torch_backend",
    "tasks.facts_for_compat",
    "tasks.bleu_of_valid",
    "train.kernel_choice",
    "train.warm_start",
    "graphs.captured_step",
    "graphs.captured_loss",
)


def fairseq_is_installed() -> bool:
    """Whether torch and fairseq are installed: a mere folder with their name does not count."""
    found = map(importlib.util.find_spec, ("torch", "fairseq"))
    return all(spec is not None and spec.origin is not None for spec in found)


def register(needed_by: str = "this") -> None:
    """Register everything with fairseq, also parts of installed packages. It may be called again.

    Raises:
        ConfigurationError: fairseq is not installed, or a part of an installed package cannot be
            imported.
    """
    if not fairseq_is_installed():
        raise ConfigurationError(
            f"{needed_by} needs torch and fairseq, which are not installed: run bash "
            "scripts/install.sh in the checkout (exported models run without them)"
        )
    with unchanged_host():
        importlib.import_module("fairseq_plugins.compat").apply()  # before fairseq is used
        for part in ("losses", "models", "scoring", "tasks"):
            importlib.import_module(f"fairseq_plugins.{part}")
        for part in PATCHES:
            importlib.import_module(f"fairseq_plugins.{part}").install()
    importlib.import_module("fairseq_plugins.options.user_dirs").import_installed_parts()
    if PROGRAM == __name__:
        gc.freeze()  # imported objects stay: no collection needs to scan them


def __getattr__(name: str) -> Any:
    """`Classifier`, `Summarizer` and `Translator` are imported on first use."""
    if name not in ("Classifier", "Summarizer", "Translator"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("fairseq_plugins.api"), name)


def _program() -> str:
    """The package whose program Python runs, if it is this one or fairseq; "" for any other."""
    path = Path(sys.argv[0] if sys.argv else "")
    if path.name == SCRIPT:
        return __name__
    if path.name.startswith("fairseq-") or path.parent.name == "fairseq_cli":
        return "fairseq"
    if sys.argv[:1] != ["-m"]:  # argv[0] while Python looks for the module to run
        return ""
    words = sys.orig_argv
    run = words[words.index("-m") + 1].split(".")[0] if "-m" in words else ""
    return run if run == __name__ else ""


PROGRAM = _program()
if PROGRAM:
    show_errors_in_one_line()
if __name__ != "fairseq_plugins":  # fairseq imports a --user-dir by the name of its folder
    raise ConfigurationError(
        f"--user-dir {Path(__file__).parent}: give the folder itself, or a link named "
        "fairseq_plugins, as everything would be registered twice"
    )
watch_imports()
if PROGRAM != __name__ and fairseq_is_installed():
    register()
