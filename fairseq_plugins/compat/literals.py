"""Literals instead of `eval`: text that fairseq evaluates is parsed and never run."""

import ast
import sys
from typing import Any

from fairseq_plugins.compat.patch import repair
from fairseq_plugins.errors import ConfigurationError

LONGEST = 10_000  # items of a list product such as [x] * 20; fairseq's own have fewer than 100


def read_literal(text: str) -> Any:
    """The value of a Python literal.

    A literal is a number, text, True, False, None, or a list, tuple, set or dict of literals.
    Sums and multiples of lists are allowed too, because fairseq's options use them: `[(512, 3)] *
    20`. Names, calls and everything else are refused.

    Raises:
        ConfigurationError: `text` is not a literal.
        TypeError: `text` is not a string, as with `eval`.
    """
    if not isinstance(text, str):
        raise TypeError(f"read_literal() needs text, not {type(text).__name__}")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (ArithmeticError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError):
        shown = repr(text if len(text) <= 80 else text[:80] + "...")
        raise ConfigurationError(
            f"{shown} is not a plain value and was not run: fairseq evaluates this option, so it "
            "must be a number, a list such as '[1, 2]', a tuple such as '(0.9, 0.98)' or a dict"
        ) from None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Tuple):  # such as (1,) + [(2, 3)] * 4, inside a tuple or list
        return tuple(map(_value, node.elts))
    if isinstance(node, ast.List):
        return list(map(_value, node.elts))
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult))):
        return ast.literal_eval(node)
    left, right = _value(node.left), _value(node.right)
    if isinstance(node.op, ast.Add) and isinstance(left, (list, tuple)):
        return left + right
    items, times = (left, right) if isinstance(left, (list, tuple)) else (right, left)
    if not isinstance(items, (list, tuple)) or len(items) * int(times) > LONGEST:
        raise ValueError("not a list of sensible length")
    return items * times


@repair()
def read_literals_in_place_of_eval() -> None:
    """Replace `eval` by `read_literal` in every module of fairseq.

    fairseq evaluates options such as `--adam-betas`, which may come from a checkpoint. A module's
    global name hides the built-in one.
    """
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("fairseq", "fairseq_cli"):
            vars(module)["eval"] = read_literal
