"""Generators of fairseq, plain and accelerated, over the same tiny models."""

import pytest


@pytest.fixture(scope="session")
def dictionary(parse):
    return parse("--arch", "transformer").task.target_dictionary


@pytest.fixture(scope="session")
def build_generator():
    """build_generator(models, accelerated, **options) -> as fairseq's tasks make them."""
    from fairseq.sequence_generator import SequenceGenerator

    from fairseq_plugins.search.torch_backend import accelerate

    def run(models, accelerated, **options):
        options = dict({"beam_size": 5, "max_len_b": 12}, **options)
        generator = SequenceGenerator(models, models[0].decoder.dictionary, **options)
        return accelerate(generator) if accelerated else generator

    return run


def assert_same_hypotheses(found, expected):
    """Of every sentence of a batch: all of them, with scores in total and token by token."""
    assert len(found) == len(expected)
    for some, others in zip(found, expected):
        assert [h["tokens"].tolist() for h in some] == [h["tokens"].tolist() for h in others]
        for a, b in zip(some, others):
            for key in ("score", "positional_scores"):
                assert a[key].shape == b[key].shape
                assert ((a[key] - b[key]).abs() < 1e-5).all(), key
