"""Fixtures that build tiny models."""

from tests.models.conftest import (  # noqa: F401
    build,
    build_joined,
    joined_data,
    make_sample,
    make_tokens,
    parse,
    parse_joined,
)
