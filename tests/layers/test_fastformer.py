"""Additive attention: all of its forms against the equations."""

import pytest
import torch

from fairseq_plugins.layers.fastformer import INTERACTIONS
from fairseq_plugins.layers.token_mixers import Fastformer, FastformerOptions, MixerSpec
from tests.batches import (
    assert_close,
    assert_same_function,
    leaves_of,
    make_sentences,
    pad,
    padding_mask,
    randomize,
    run_or_skip,
    unpad,
)
from tests.contract.references import MIXERS

DIM, HEADS = 15, 3
FORMS = MIXERS["fastformer"].forms  # sets a form of the computation
ALL_FORMS = pytest.mark.parametrize("form", FORMS)


def build(dim, heads, memory_dim=None, interaction="product", shared="query-value", **numbers):
    """A Fastformer: `shared` is --fastformer-sharing, the numbers are of its specification."""
    spec = MixerSpec(dim, memory_dim or dim, heads, **numbers)
    return Fastformer(spec, FastformerOptions(interaction=interaction, sharing=shared))


def make_fastformer(**options):
    return randomize(build(DIM, HEADS, **options))


@pytest.mark.parametrize("form", ["keyless", "folded"])
@pytest.mark.parametrize("lengths", [(5, 3), (9, 1), (40, 33)])
def test_all_forms_are_equal_in_training(lengths, form):
    """The same seed drops the same weights, so the forms must agree with dropout as well."""
    mixer = make_fastformer(dropout=0.4, memory_dim=21).train()
    x, memory = make_sentences(lengths, DIM), make_sentences(lengths[::-1], 21, seed=1)
    mask, memory_mask = padding_mask(lengths), padding_mask(lengths[::-1])
    leaves = leaves_of(mixer, x=x, memory=memory)

    def outputs(form):
        torch.manual_seed(3)
        FORMS[form](mixer)
        out = mixer(pad(x, mask), pad(memory, memory_mask), mask, memory_mask)
        return unpad(out, mask)

    assert_same_function(lambda: outputs(form), lambda: outputs("plain"), leaves)
    dropped = outputs(form)
    mixer.eval()
    kept = outputs(form)
    assert any((a - b).abs().max() > 1e-3 for a, b in zip(dropped, kept))


class DropSecond(torch.nn.Module):
    """Drops nothing of alpha, and all of beta."""

    p, apply_during_inference = 0.5, False

    calls = 0

    def forward(self, weights):
        self.calls += 1
        return weights * (self.calls % 2)


@pytest.mark.parametrize("dropped", ["both", "second"])
@pytest.mark.parametrize("interaction", INTERACTIONS)
def test_dropout_acts_on_the_weights_of_the_summaries(interaction, dropped):
    """With all of beta dropped the global key is zero, in every interaction."""
    mixer = make_fastformer(interaction=interaction, dropout=0.999999).train()
    if dropped == "second":
        mixer.dropout_module = DropSecond()
    x = torch.randn(7, 2, DIM, dtype=torch.float64)
    q = mixer.q_proj(x)
    weight, bias = mixer.out_proj.weight, mixer.out_proj.bias
    if interaction == "product":
        expected = q + bias
    elif interaction == "add":
        expected = q + bias + q @ weight.t()
    else:  # the last third of each head's columns meets the values
        weight = weight.view(DIM, HEADS, 3, DIM // HEADS)[:, :, 2].reshape(DIM, DIM)
        expected = q + bias + q @ weight.t()
    for form in FORMS:
        FORMS[form](mixer)
        torch.manual_seed(0)
        assert_close(mixer(x, x), expected)


@ALL_FORMS
def test_long_input_is_finite_in_float16(form):
    """Large scores and 2,048 positions: neither the softmax nor the sums overflow."""
    torch.manual_seed(0)
    mixer = build(32, 4).half()
    with torch.no_grad():
        mixer.query_score.mul_(200)
        mixer.key_score.mul_(200)
    FORMS[form](mixer)
    x = torch.randn(2048, 2, 32).half().requires_grad_()
    mask = padding_mask((2048, 3))
    out = run_or_skip(lambda: mixer(x, x, mask, mask))
    assert torch.isfinite(out).all()
    out.float().mean().backward()
    for tensor in [x] + list(mixer.parameters()):
        assert torch.isfinite(tensor.grad).all()


@ALL_FORMS
def test_input_in_any_memory_layout(form):
    mixer = make_fastformer()
    FORMS[form](mixer)
    x = torch.randn(4, 7, DIM, dtype=torch.float64).transpose(0, 1)  # batch first underneath
    assert not x.is_contiguous()
    assert_close(mixer(x, x), mixer(x.contiguous(), x.contiguous()), tolerance=1e-14)


def test_a_separate_memory_has_its_own_mask():
    """The same tensor twice, with different masks: neither mask is taken for the other."""
    mixer = make_fastformer()
    x = torch.randn(6, 2, DIM, dtype=torch.float64)
    mask, memory_mask = padding_mask((6, 3)), padding_mask((4, 6))
    copied = mixer(x, x.clone(), mask, memory_mask)
    assert_close(mixer(x, x, mask, memory_mask), copied, tolerance=1e-14)
    assert not torch.allclose(mixer(x, x, mask, mask)[:3], copied[:3])
