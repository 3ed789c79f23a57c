"""Generators of fairseq, plain and accelerated, over the same tiny models."""

import functools

import pytest
import torch

from fairseq_plugins.search.torch_backend import decoding, grouped_top_k


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


def assert_close(found, expected, **tolerance):
    """Of every sentence of a batch: all hypotheses, with scores in total and token by token."""
    for some, others in zip(found, expected, strict=True):
        assert [h["tokens"].tolist() for h in some] == [h["tokens"].tolist() for h in others]
        for a, b in zip(some, others):
            torch.testing.assert_close(a["positional_scores"], b["positional_scores"], **tolerance)
            torch.testing.assert_close(a["score"], b["score"], **tolerance)


assert_same_hypotheses = functools.partial(assert_close, rtol=0, atol=1e-5, check_dtype=False)


@pytest.fixture
def small_sizes(monkeypatch):
    """So that a toy's vocabulary has groups, and its short outputs outgrow the first memory."""
    monkeypatch.setattr(grouped_top_k, "GROUP", 3)
    monkeypatch.setattr(decoding, "FIRST_STEPS", 2)


@pytest.fixture(scope="module")
def models(build, build_joined):
    """By name: this package's, fairseq's, one that copies, and several."""
    ftc = build(*"--encoder-blocks 1,1 --decoder-layers 2".split())
    learned = build(
        *"--encoder-blocks 1,2 --decoder-layers 1 --decoder-learned-pos".split(), seed=2
    )
    fairseqs = build("--decoder-layers", "1", arch="transformer")
    copying = build_joined("--copy-attention", "--copy-next", "--decoder-layers", "1")
    for model in (ftc, learned, fairseqs, copying):
        model.decoder.output_projection.register_forward_hook(_end_sooner)
    return {"ftc": [ftc], "fairseq": [fairseqs], "copy": [copying], "two": [ftc, learned]}


def _end_sooner(module, args, logits):
    """So that untrained models have preferences, and end before they must."""
    logits = 6 * logits
    logits[..., 2] = logits[..., 5:25].sum(dim=-1)
    return logits
