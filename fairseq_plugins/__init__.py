"""Models and tools for fairseq: give fairseq this package's folder as `--user-dir`.

Importing the package applies the workarounds for newer torch and Python (`compat`), registers
architectures, criterions, scorers and tasks, and makes generation fast (`generation`). It prints
nothing. `python -m fairseq_plugins` skips all this until a command needs it.
Without fairseq, `Translator`, `Summarizer` and `Classifier` take exported models.
"""

import contextlib
import gc
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_plugins.errors import ConfigurationError, show_configuration_errors_in_one_line
from fairseq_plugins.importing import watch_imports
from fairseq_plugins.version import __version__

if TYPE_CHECKING:
    from fairseq_plugins.classifier import Classifier
    from fairseq_plugins.summarizer import Summarizer
    from fairseq_plugins.translator import Translator

SCRIPT = "fairseq-plugins"  # `python -m fairseq_plugins`, installed as a program
__all__ = ["Classifier", "Summarizer", "Translator", "__version__", "register"]
# modules that change fairseq, each with its `install`
PATCHES = (
    "criterions.auxiliary",
    "generation",
    "facts_for_compat",
    "models.loaded_optimizer",
    "tasks.bleu_of_valid",
    "training.kernel_choice",
    "training.recorded_step",
)


def fairseq_is_installed() -> bool:
    """Whether torch and fairseq are installed: a mere folder with their name does not count."""
    found = map(importlib.util.find_spec, ("torch", "fairseq"))
    return all(spec is not None and spec.origin is not None for spec in found)


def register(needed_by: str = "this") -> None:
    """Register everything with fairseq. A second call does nothing.

    Raises:
        ConfigurationError: fairseq is not installed.
    """
    if not fairseq_is_installed():
        raise ConfigurationError(
            f"{needed_by} needs torch and fairseq, which are not installed: run bash "
            "scripts/install.sh in the checkout (exported models run without them)"
        )
    with _no_garbage_collection(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fairseq and torch, about their code
        compat = importlib.import_module("fairseq_plugins.compat")
    compat.apply()  # before fairseq is used; its warning filters stay
    with _no_garbage_collection(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in ("criterions", "models", "scoring", "tasks"):
            importlib.import_module(f"fairseq_plugins.{part}")
        for part in PATCHES:
            importlib.import_module(f"fairseq_plugins.{part}").install()
    if PROGRAM:
        gc.freeze()  # imported objects stay: no collection needs to scan them


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Pause garbage collection during slow imports: it takes 0.5 s and frees nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def __getattr__(name: str) -> Any:
    """`Classifier`, `Summarizer` and `Translator` are imported on first use."""
    if name not in ("Classifier", "Summarizer", "Translator"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"fairseq_plugins.{name.lower()}"), name)


def _is_the_program() -> bool:
    """Whether Python imports this package to run it: `python -m` with its name, or its script."""
    if Path(sys.argv[0] if sys.argv else "").name == SCRIPT:
        return True
    if sys.argv[:1] != ["-m"]:  # argv[0] while Python looks for the module to run
        return False
    words = sys.orig_argv
    return "-m" in words and words[words.index("-m") + 1].split(".")[0] == __name__


PROGRAM = _is_the_program()
show_configuration_errors_in_one_line()
if __name__ != "fairseq_plugins":  # fairseq imports a --user-dir by the name of its folder
    raise ConfigurationError(
        f"--user-dir {Path(__file__).parent}: give the folder itself, or a link named "
        "fairseq_plugins, as everything would be registered twice"
    )
watch_imports()
if not PROGRAM and fairseq_is_installed():
    register()
