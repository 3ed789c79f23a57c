"""Fixtures of the tests of preparation."""

from tests.data.conftest import shared  # noqa: F401
