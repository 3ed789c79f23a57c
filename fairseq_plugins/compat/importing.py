"""Import fairseq: change two things in it, and nothing in the program that imports it.

Two of its files import scikit-learn and SciPy to score classifiers, which takes a third of its
start-up. They get placeholders until one of the functions is called.

Since Python 3.14 the text of `Optional[int]` is "int | None", in which fairseq finds no type for an
option, so that `import fairseq` fails. Only a program that imports this package first works there;
`fairseq_program` runs fairseq's own.
"""

import contextlib
import functools
import gc
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType, NoneType, UnionType
from typing import Any, get_args

FILES = ("fairseq.criterions.sentence_prediction", "fairseq.tasks.audio_classification")
DEFERRED = ("sklearn", "sklearn.metrics", "scipy", "scipy.stats")
OPTIONS = "fairseq.dataclass.utils"
CRC32C = "CRC32C_SW_MODE"


class OnDemand(ModuleType):
    """A placeholder for a module; its functions import the module when called."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)

    def __getattr__(self, name: str) -> Callable:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(importlib.import_module(self.__name__), name)(*args, **kwargs)

        return call


class Finder:
    """Finds `FILES` and `OPTIONS` as usual, and changes how they run."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in (*FILES, OPTIONS) else None
        if spec is not None and spec.loader is not None:
            change = _read_unions if name == OPTIONS else _defer
            execute = functools.partial(change, spec.loader.exec_module)
            spec.loader.exec_module = execute  # type: ignore[method-assign]
        return spec


def _defer(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Run a module that imports `DEFERRED` as `OnDemand`."""
    placed = {n: OnDemand(n) for n in DEFERRED if n not in sys.modules}
    for child in [n for n in placed if "." in n]:
        parent, _, attribute = child.rpartition(".")
        if parent in placed:
            setattr(placed[parent], attribute, placed[child])
    sys.modules.update(placed)
    try:
        execute(module)
    finally:
        for n in placed:
            sys.modules.pop(n, None)


def _read_unions(execute: Callable[[ModuleType], None], module: Any) -> None:
    """Run `OPTIONS`, and let it read `int | None` as it reads `Optional[int]`."""
    execute(module)
    original = module.interpret_dc_type

    def interpret_dc_type(field_type: Any) -> Any:
        if isinstance(field_type, UnionType) and NoneType in get_args(field_type):
            return get_args(field_type)[0]
        return original(field_type)

    module.interpret_dc_type = interpret_dc_type


def watch_imports() -> None:
    """Change fairseq when it is imported. Call it before that; a second call does nothing."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)


@contextlib.contextmanager
def unchanged_host() -> Iterator[None]:
    """Import torch, fairseq and what they need without what their imports change in the program.

    - Three modules of fairseq call `logging.basicConfig`, one of them with DEBUG. It does nothing
      while the root logger has a handler.
    - fairseq.pdb makes a lock, after which `multiprocessing.set_start_method` raises an error.
    - tensorboardX sets an environment variable for its own import.
    - Their warnings are about their own code.

    Garbage collection is paused: it would take 0.5 s and free nothing.
    """
    import logging
    import multiprocessing

    root, handler = logging.getLogger(), logging.NullHandler()
    method = multiprocessing.get_start_method(allow_none=True)
    collects, mode = gc.isenabled(), os.environ.get(CRC32C)
    root.addHandler(handler)
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.removeHandler(handler)
        if collects:
            gc.enable()
        if mode is None:
            os.environ.pop(CRC32C, None)
        if method is None:
            multiprocessing.set_start_method(None, force=True)
