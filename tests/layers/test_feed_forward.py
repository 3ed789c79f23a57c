"""The feed-forward networks against the equations."""

import pytest
import torch

from fairseq_plugins.layers import chunked_products
from fairseq_plugins.layers.feed_forwards import MSCFFN, FeedForwardSpec, MSCFFNOptions
from tests.batches import (
    assert_close,
    assert_same_function,
    leaves_of,
    make_sentences,
    randomize,
    run_or_skip,
)
from tests.contract import references

SIZES = [  # dimension, subspaces, expansion
    (12, 2, 1),
    (12, 6, 3),
    (12, 12, 2),
    (30, 10, 6),
    (36, 12, 6),
    (40, 4, 5),
]


BOTH_FORMS = pytest.mark.parametrize("chunked", [False, True])


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of a few tokens, and a shorter last one, at the sizes of these tests."""
    monkeypatch.setattr(chunked_products, "CHUNK_NUMBERS", 45)


def make_mscffn(dim, subspaces=None, expansion=6, dropout=0.0):
    options = MSCFFNOptions(subspaces=subspaces, expansion=expansion)
    return MSCFFN(FeedForwardSpec(dim, 4 * dim, dropout=dropout), options)


def true_mscffn(ffn, x):
    return references.mscffn_rows(ffn, {"subspaces": ffn.subspaces}, x)


@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("dim, subspaces, expansion", SIZES)
def test_mscffn_in_several_chunks_equals_the_reference(dim, subspaces, expansion, length):
    ffn = randomize(make_mscffn(dim, subspaces, expansion))
    ffn.chunked = True
    x = make_sentences([length, length, length], dim)
    assert_same_function(
        lambda: list(ffn(torch.stack(x, dim=1)).unbind(1)),
        lambda: [true_mscffn(ffn, sentence) for sentence in x],
        leaves_of(ffn, x=x),
    )


def test_mscffn_begins_as_linear_layers_do():
    ffn = MSCFFN(FeedForwardSpec(96, 0), MSCFFNOptions(subspaces=12, expansion=6))
    for kind, inputs in (("expand", 8), ("contract", 48)):
        largest = max(getattr(ffn, f"{kind}_{of}").abs().max().item() for of in ("weight", "bias"))
        assert largest == pytest.approx(inputs**-0.5, rel=0.01)


@BOTH_FORMS
def test_mscffn_accepts_any_layout(chunked):
    ffn = randomize(make_mscffn(12, 4, 3))
    ffn.chunked = chunked
    x = torch.randn(5, 7, 12, dtype=torch.float64)
    expected = ffn(x)
    transposed = x.transpose(0, 1)
    assert_close(ffn(transposed), expected.transpose(0, 1))
    assert_close(ffn(x[2, 3]), expected[2, 3])
    assert_close(ffn(x.unsqueeze(0)), expected.unsqueeze(0))
    assert ffn(x[:0]).shape == x[:0].shape


@BOTH_FORMS
def test_mscffn_dropout_acts_on_the_products(chunked):
    """With every product C_j dropped, the output is the same constant whatever the input."""
    torch.manual_seed(1)
    for p in (0.999999, 1.0):
        ffn = randomize(make_mscffn(12, 4, 3, dropout=p)).train()
        ffn.chunked = chunked
        out = ffn(torch.randn(5, 2, 12, dtype=torch.float64))
        constant = torch.cat(list(ffn.contract_bias.squeeze(1)))
        assert_close(out, (ffn.out_proj.weight @ constant + ffn.out_proj.bias).expand(5, 2, 12))
        assert ffn.eval()(torch.randn(5, 2, 12).double()).std() > 0.01


@pytest.mark.parametrize("training", [True, False])
def test_both_forms_of_mscffn_drop_the_same(training):
    """One seed, one result, values and all gradients; also where dropout stays on in inference."""
    ffn = randomize(make_mscffn(12, 4, 3, dropout=0.4)).train(training)
    ffn.dropout_module.apply_during_inference = True
    x = make_sentences([7, 7], 12)

    def outputs(chunked):
        torch.manual_seed(3)
        ffn.chunked = chunked
        return list(ffn(torch.stack(x, dim=1)).unbind(1))

    assert_same_function(lambda: outputs(True), lambda: outputs(False), leaves_of(ffn, x=x))
    dropped = outputs(True)
    ffn.eval()
    ffn.dropout_module.apply_during_inference = False
    assert not torch.allclose(dropped[0], outputs(True)[0])


def test_chunks_are_added_up_in_float32(monkeypatch):
    """Each of one token, or a single one: bfloat16 would lose what is small beside the sum."""
    ffn, x = make_mscffn(24).bfloat16(), (torch.randn(600, 24) + 1).bfloat16()
    ffn.chunked = True
    gradients = []
    for numbers in (1, 2**30):
        monkeypatch.setattr(chunked_products, "CHUNK_NUMBERS", numbers)
        out = run_or_skip(lambda: ffn(x).sum())
        gradients.append(torch.autograd.grad(out, list(ffn.parameters())))
    for found, expected in zip(*gradients):
        assert (found - expected).abs().max() <= 0.01 * expected.abs().max()


def test_chunked_mscffn_with_frozen_parameters():
    ffn = randomize(make_mscffn(12, 4, 3))
    x = torch.randn(7, 12, dtype=torch.float64, requires_grad=True)
    everything = torch.autograd.grad(ffn(x).sum(), [x, ffn.expand_weight])
    ffn.chunked = True
    ffn.expand_bias.requires_grad_(False)
    ffn.contract_weight.requires_grad_(False)
    assert_close(torch.autograd.grad(ffn(x).sum(), ffn.expand_weight)[0], everything[1])
    ffn.requires_grad_(False)
    assert_close(torch.autograd.grad(ffn(x).sum(), x)[0], everything[0])
