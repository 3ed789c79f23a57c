"""Literals instead of eval: what is read, and what is refused without being run."""

import pytest

from fairseq_plugins import compat
from fairseq_plugins.compat.literals import LONGEST, read_literal
from fairseq_plugins.errors import ConfigurationError

compat.apply()


@pytest.mark.parametrize(
    "text",
    [
        "1", "-1.5e-3", "True", "None", "'text'", "(0.9, 0.98)", "0.25,5e-4", "[1, [2, 3], ()]",
        "{'a': [1], 2: None}", "{1, 2}", " [(512, 3)] * 20", "[(512, 10, 5)] + [(512, 3, 2)] * 4",
        "2 * (1,) + (3,)", "[]", "+2",
    ],
)  # fmt: skip
def test_literals_have_the_value_that_eval_gives(text):
    expected = eval(text)
    assert read_literal(text) == expected and type(read_literal(text)) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        "f()", "open('/tmp/x', 'w')", "__import__('os').system('true')", "().__class__", "x", "",
        "[x for x in (1,)]", "lambda: 1", "f'{1}'", "1 if True else 2", "[1][0]", "{**{}}", "*[1]",
        "2 ** 9", "2 * 4", "'a' * 9", "'a' + 'b'", "1 < 2", "(x := 1)", "1; 2", "[1] * 1.5",
        "1 / 0", "{[]: 1}", "-'a'", "\0", "(" * 500, f"[0] * {LONGEST + 1}",
        "[[0] * 9999] * 9999 * 9999",
    ],
)  # fmt: skip
def test_anything_else_is_refused_in_one_line(text):
    with pytest.raises(ConfigurationError, match="is not a plain value and was not run") as error:
        read_literal(text)
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


@pytest.mark.parametrize("value", [None, True, 1, b"1", compile("1", "", "eval")])
def test_what_is_no_text_is_a_type_error_as_with_eval(value):
    with pytest.raises(TypeError):
        read_literal(value)
