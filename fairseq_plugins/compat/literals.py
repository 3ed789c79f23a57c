"""Literals instead of `eval`: text that fairseq evaluates is parsed and never run."""

import ast
import operator
import sys
from typing import Any

from fairseq_plugins.errors import ConfigurationError

LONGEST = 10_000  # items of a list product such as [x] * 20; fairseq's own have fewer than 100

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def read_literal(text: str) -> Any:
    """The value of a Python literal.

    A literal is a number, text, True, False, None, or a list, tuple, set or dict of literals.
    Arithmetic with numbers, sums of lists and multiples of lists are allowed too, because fairseq's
    options use them: `[(512, 3)] * 20`. Names, calls and everything else are refused.

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


def _value(node: ast.AST) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        kind = {ast.Tuple: tuple, ast.List: list, ast.Set: set}[type(node)]
        return kind(_value(item) for item in node.elts)
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {_value(key): _value(item) for key, item in zip(node.keys, node.values) if key}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        number = _number(_value(node.operand))
        return -number if isinstance(node.op, ast.USub) else number
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _combine(_OPERATORS[type(node.op)], _value(node.left), _value(node.right))
    raise ValueError("not a literal")


def _combine(operate: Any, left: Any, right: Any) -> Any:
    lists = [value for value in (left, right) if isinstance(value, (list, tuple))]
    if operate is operator.mul and len(lists) == 1:
        times = right if lists[0] is left else left
        if len(lists[0]) * _number(times) > LONGEST:
            raise ValueError("too long")
    elif operate is not operator.add or len(lists) != 2:
        left, right = _number(left), _number(right)
    return operate(left, right)


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float, complex)):
        raise TypeError("not a number")
    return value


def read_literals_in_place_of_eval() -> None:
    """Replace `eval` by `read_literal` in every module of fairseq.

    fairseq evaluates options such as `--adam-betas`, which may come from a checkpoint. A module's
    global name hides the built-in one.
    """
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("fairseq", "fairseq_cli"):
            vars(module)["eval"] = read_literal
