"""Replace functions of fairseq, each only once."""

import functools
from argparse import Namespace
from typing import Any, Callable

from fairseq import options


def wrap(owner: Any, name: str, repair: str, make: Callable[[Callable], Callable]) -> None:
    """Replace `owner.name` by `make(original)`, unless `repair` has done so before."""
    original = getattr(owner, name)
    done = getattr(original, "repaired_by", ())
    if repair in done:
        return
    replacement = functools.wraps(original)(make(original))
    replacement.repaired_by = done + (repair,)  # type: ignore[attr-defined]
    static = isinstance(vars(owner).get(name), staticmethod)
    setattr(owner, name, staticmethod(replacement) if static else replacement)


def around(owner: Any, *names: str) -> Callable[[Callable], Callable]:
    """Decorator: call this function instead of those of a module or class.

    It gets the original as its first argument. However often the repair is applied, it replaces
    once. `owner` may be a tuple of owners.
    """

    def replace(function: Callable) -> Callable:
        def make(original: Callable) -> Callable:
            return lambda *args, **kwargs: function(original, *args, **kwargs)

        for each in owner if isinstance(owner, tuple) else (owner,):
            for name in names:
                wrap(each, name, f"{function.__module__}.{function.__qualname__}", make)
        return function

    return replace


def after_parsing(repair: str, check: Callable[[Namespace], None]) -> None:
    """Let `check` read, change or refuse the options parsed by any command of fairseq."""

    def make(original: Callable) -> Callable:
        def parse_args_and_arch(*args: Any, **kwargs: Any) -> Any:
            parsed = original(*args, **kwargs)  # with parse_known, also the unknown words
            check(parsed[0] if isinstance(parsed, tuple) else parsed)
            return parsed

        return parse_args_and_arch

    wrap(options, "parse_args_and_arch", repair, make)


class Overlay:
    """A view of a module with some names replaced."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def overlay(owner: Any, name: str, **replaced: Any) -> None:
    """Replace names of the module `name` only for `owner`, in whose globals it is."""
    if not isinstance(getattr(owner, name), Overlay):
        setattr(owner, name, Overlay(getattr(owner, name)))
    vars(getattr(owner, name)).update(replaced)
