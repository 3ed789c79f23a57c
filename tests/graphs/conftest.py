"""The models and batches that captured steps are tested with."""

from tests.models.conftest import (  # noqa: F401
    build,
    build_joined,
    joined_data,
    make_sample,
    make_tokens,
    parse,
    parse_joined,
)
