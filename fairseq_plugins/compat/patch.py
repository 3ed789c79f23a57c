"""Replacing a function of fairseq by a repaired one, once."""

import functools
from typing import Any, Callable


def wrap(owner: Any, name: str, repair: str, make: Callable[[Callable], Callable]) -> None:
    """Replace `owner.name` by `make(original)`, once for each `repair`."""
    original = getattr(owner, name)
    done = getattr(original, "repaired_by", ())
    if repair in done:
        return
    replacement = functools.wraps(original)(make(original))
    replacement.repaired_by = done + (repair,)  # type: ignore[attr-defined]
    static = isinstance(vars(owner)[name], staticmethod)
    setattr(owner, name, staticmethod(replacement) if static else replacement)


class Overlay:
    """`module` as another module sees it: some names replaced, all others its own."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        vars(self).update(replaced, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def overlay(owner: Any, name: str, **replaced: Any) -> None:
    """Let the module `owner` see its global module `name` through an Overlay, once."""
    if not isinstance(getattr(owner, name), Overlay):
        setattr(owner, name, Overlay(getattr(owner, name), **replaced))
