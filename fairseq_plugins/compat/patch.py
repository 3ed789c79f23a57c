"""Replace functions of fairseq, each only once."""

import functools
import sys
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq import options
from fairseq.distributed import utils as distributed_utils

REPAIRS = defaultdict[str, list[Callable[[], Any]]](list)  # of each module, in their order


def repair(owner: Any = None, *names: str) -> Callable[[Callable], Callable]:
    """Decorator: a repair, which is made when `compat.apply` comes to its module.

    With names, the function is called `around` those of `owner`; without, it is called once.
    """

    def register(function: Callable) -> Callable:
        make = functools.partial(around(owner, *names), function) if names else function
        REPAIRS[function.__module__].append(make)
        return function

    return register


def around(owner: Any, *names: str) -> Callable[[Callable], Callable]:
    """Decorator: call this function instead of those of a module or class.

    It gets the original as its first argument. However often the repair is applied, it replaces
    once. `owner` may be a tuple of owners.
    """

    def replace(function: Callable) -> Callable:
        for each in owner if isinstance(owner, tuple) else (owner,):
            for name in names:
                _replace(each, name, function)
        return function

    return replace


def _replace(owner: Any, name: str, function: Callable) -> None:
    original = getattr(owner, name)
    repair = f"{function.__module__}.{function.__qualname__}"
    done = getattr(original, "repaired_by", ())
    if repair in done:
        return

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        return function(original, *args, **kwargs)

    replacement.repaired_by = (*done, repair)  # type: ignore[attr-defined]
    static = isinstance(vars(owner).get(name), staticmethod)
    setattr(owner, name, staticmethod(replacement) if static else replacement)


def after_parsing(check: Callable[[Namespace], None]) -> Callable[[Namespace], None]:
    """Decorator: let this function read, change or refuse the options of any command of fairseq."""

    @around(options, "parse_args_and_arch")
    @functools.wraps(check)  # `around` tells repairs apart by their names
    def parse_args_and_arch(original: Callable, *args: Any, **kwargs: Any) -> Any:
        parsed = original(*args, **kwargs)  # with parse_known, also the unknown words
        check(parsed[0] if isinstance(parsed, tuple) else parsed)
        return parsed

    return check


def before_main(check: Callable[[Any, str], None]) -> Callable[[Any, str], None]:
    """Decorator: let this function change or refuse the configuration before a program begins.

    It also gets the program's name, such as "train" of fairseq-train; "" if it is not fairseq's.
    fairseq-hydra-train imports the user-dir only when "train" has begun, before `add_defaults`.
    """

    @around(distributed_utils, "call_main")
    @functools.wraps(check)
    def call_main(original: Callable, cfg: Any, main: Callable, **kwargs: Any) -> Any:
        # by the file, as `python -m` names every module __main__; a partial has no code
        file = Path(getattr(getattr(main, "__code__", None), "co_filename", ""))
        check(cfg, file.stem if file.parent.name == "fairseq_cli" else "")
        return original(cfg, main, **kwargs)

    if "fairseq_cli.train" in sys.modules:

        @around(sys.modules["fairseq_cli.train"], "add_defaults")
        @functools.wraps(check)
        def add_defaults(original: Callable, cfg: Any) -> None:
            original(cfg)
            check(cfg, "train")

    return check


class Overlay:
    """A view of a module with some names replaced."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        self._module = module
        vars(self).update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def overlay(owner: Any, name: str, **replaced: Any) -> None:
    """Replace names of the module `name` only for `owner`, in whose globals it is."""
    if not isinstance(getattr(owner, name), Overlay):
        setattr(owner, name, Overlay(getattr(owner, name)))
    vars(getattr(owner, name)).update(replaced)
