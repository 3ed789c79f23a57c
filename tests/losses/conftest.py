"""Fixtures that build tiny models."""

from tests.models.conftest import (  # noqa: F401
    build,
    make_sample,
    make_tokens,
    parse,
)
