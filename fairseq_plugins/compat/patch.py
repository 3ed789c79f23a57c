"""Replacing a function of fairseq by a repaired one, once."""

import functools
from typing import Any, Callable


def wrap(owner: Any, name: str, mend: str, make: Callable[[Callable], Callable]) -> None:
    """Replace `owner.name` by `make(original)`, once for each `mend`."""
    original = getattr(owner, name)
    done = getattr(original, "mended_by", ())
    if mend in done:
        return
    replacement = functools.wraps(original)(make(original))
    replacement.mended_by = done + (mend,)  # type: ignore[attr-defined]
    static = isinstance(vars(owner)[name], staticmethod)
    setattr(owner, name, staticmethod(replacement) if static else replacement)
