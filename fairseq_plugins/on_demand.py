"""Import scikit-learn and SciPy when they are used, not with every `import fairseq`.

Two files of fairseq import them to score classifiers, which takes a third of fairseq's start-up.
These files get placeholders until one of the functions is called.
"""

import importlib
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Callable, Optional, Sequence

FILES = ("fairseq.criterions.sentence_prediction", "fairseq.tasks.audio_classification")
DEFERRED = ("sklearn", "sklearn.metrics", "scipy", "scipy.stats")


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
    """Finds `FILES` as usual; while one of them runs, `DEFERRED` are imported as `OnDemand`."""

    @staticmethod
    def find_spec(
        name: str, path: Optional[Sequence[str]] = None, target: Any = None
    ) -> Optional[ModuleSpec]:
        spec = PathFinder.find_spec(name, path, target) if name in FILES else None
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                placed = {n: OnDemand(n) for n in DEFERRED if n not in sys.modules}
                for child in [n for n in placed if "." in n]:
                    parent, _, attribute = child.rpartition(".")
                    if parent in placed:
                        setattr(placed[parent], attribute, placed[child])
                sys.modules.update(placed)
                try:
                    run(module)
                finally:
                    for n in placed:
                        sys.modules.pop(n, None)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def defer_statistics() -> None:
    """Import `DEFERRED` on demand. Call it before fairseq is imported."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
