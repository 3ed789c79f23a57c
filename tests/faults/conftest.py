"""A corpus of 60 sentences, for trainings of about ten updates an epoch."""

import pytest

SENTENCES = 60


@pytest.fixture(scope="session")
def corpus(tmp_path_factory, make_toy_data):
    sizes = {"train": SENTENCES, "valid": 6, "test": 5}
    return make_toy_data(tmp_path_factory.mktemp("faults"), sizes)
