"""Additive attention: all of its forms against the equations."""

import copy

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
    value_and_gradients,
)

DIM, HEADS = 15, 3
SHARED = ("none", "query-value", "head", "query-value,head")
FORMS = ("plain", "keyless", "folded")
ALL_FORMS = pytest.mark.parametrize("form", FORMS)


def build(dim, heads, memory_dim=None, interaction="product", shared="query-value", **numbers):
    """A Fastformer: `shared` is --fastformer-sharing, the numbers are of its specification."""
    spec = MixerSpec(dim, memory_dim or dim, heads, **numbers)
    return Fastformer(spec, FastformerOptions(interaction=interaction, sharing=shared))


def make_fastformer(**options):
    return randomize(build(DIM, HEADS, **options))


def use(form, mixer):
    """Force a form: as the equations go; without keys; with one matrix a sentence, too."""
    mixer.reassociate = form != "plain"
    mixer.fold = form == "folded"


@pytest.mark.parametrize("interaction, form", [("add", "plain"), ("concat", "plain")])
def test_padding_may_be_nan(interaction, form):
    padding_may_be_nan(make_fastformer(interaction=interaction, shared="none"), form)


@ALL_FORMS
def test_padding_may_be_nan_in_every_form(form):
    padding_may_be_nan(make_fastformer(), form)


def padding_may_be_nan(mixer, form):
    """It reaches no sum, not even as 0 * NaN."""
    use(form, mixer)
    lengths, memory_lengths = (4, 1, 6), (7, 2, 11)
    x, memory = make_sentences(lengths, DIM), make_sentences(memory_lengths, DIM, seed=1)
    masks = padding_mask(lengths, "left"), padding_mask(memory_lengths, "left")

    def run(fill):
        out = mixer(pad(x, masks[0], fill), pad(memory, masks[1], fill), *masks)
        return unpad(out, masks[0])

    leaves = leaves_of(mixer, x=x, memory=memory)
    assert_same_function(lambda: run(float("nan")), lambda: run(0.0), leaves)


def test_the_form_is_chosen_by_the_size_of_the_batch(monkeypatch):
    mixer = make_fastformer()
    calls = []
    for name in ("k_proj", "out_proj"):  # not called where their weights are read instead
        linear = getattr(mixer, name)
        monkeypatch.setattr(
            linear, "forward", lambda x, n=name, f=linear.forward: calls.append(n) or f(x)
        )
    for length, bsz, expected in (
        (6, 1, ["k_proj", "out_proj"]),
        (3, 40, ["k_proj", "out_proj"]),
        (6, 40, ["out_proj"]),
        (3 * DIM, 1, []),
    ):
        x = torch.randn(length, bsz, DIM).double()
        mixer(x, x)
        assert calls == expected, (length, bsz)
        calls.clear()


@pytest.mark.parametrize(
    "options", [{"shared": "head"}, {"interaction": "add"}, {"interaction": "concat"}]
)
def test_options_that_exclude_reassociation_use_the_plain_form(options):
    mixer = make_fastformer(**options)
    mixer.reassociate = True
    x = torch.randn(40 * DIM, 1, DIM).double()
    plain = copy.deepcopy(mixer)
    plain.reassociate = False
    assert torch.equal(mixer(x, x), plain(x, x))


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
        use(form, mixer)
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
        use(form, mixer)
        torch.manual_seed(0)
        assert_close(mixer(x, x), expected)


def test_sharing_means_fewer_parameters():
    def count(**options):
        mixer = build(24, 4, **options)
        return sum(p.numel() for p in mixer.parameters())

    separate = count(shared="none")
    assert separate == 4 * (24 * 24 + 24) + 2 * 24
    assert count() == separate - (24 * 24 + 24)
    assert count(shared="head") == 3 * (36 + 6) + (576 + 24) + 2 * 6
    assert count(interaction="concat") == 2 * (576 + 24) + (3 * 576 + 24) + 24 + 2 * 24


@ALL_FORMS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_of_padding_alone_are_finite(dtype, form):
    lengths = (0, 5, 0)
    mask = padding_mask(lengths)
    mixer = build(DIM, HEADS).to(dtype)
    use(form, mixer)
    x = torch.randn(5, 3, DIM).to(dtype).requires_grad_()
    out = run_or_skip(lambda: mixer(x, x, mask, mask))
    assert out.dtype == dtype and torch.isfinite(out).all()
    out.float().pow(2).sum().backward()
    for tensor in [x] + list(mixer.parameters()):
        assert torch.isfinite(tensor.grad).all()


@ALL_FORMS
@pytest.mark.parametrize("scale", [1.0, 200.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_long_input_is_finite_in_reduced_precision(dtype, scale, form):
    """Large scores and 2,048 positions: neither the softmax nor the sums overflow."""
    torch.manual_seed(0)
    mixer = build(32, 4).to(dtype)
    with torch.no_grad():
        mixer.query_score.mul_(scale)
        mixer.key_score.mul_(scale)
    use(form, mixer)
    x = torch.randn(2048, 2, 32).to(dtype).requires_grad_()
    mask = padding_mask((2048, 3))
    out = run_or_skip(lambda: mixer(x, x, mask, mask))
    assert torch.isfinite(out).all()
    out.float().mean().backward()
    for tensor in [x] + list(mixer.parameters()):
        assert torch.isfinite(tensor.grad).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length, dim, heads", [(70, 64, 4), (257, 64, 2), (130, 96, 16)])
def test_reduced_precision_is_as_good_as_the_plain_form(dtype, length, dim, heads):
    """max |other form - exact| <= 2 max |plain - exact|, output and input gradient."""
    worst = {}
    for seed in range(3):
        torch.manual_seed(seed)
        mixer = build(dim, heads).to(dtype)
        x = torch.randn(length, 3, dim).to(dtype)
        exact_mixer = copy.deepcopy(mixer).double()

        def compute(model, x):
            leaf = x.clone().requires_grad_()
            out = model(leaf, leaf)
            gradient = torch.autograd.grad(out.double().pow(2).mean(), leaf)[0]
            return out.detach().double(), gradient.double() / gradient.double().abs().max()

        use("plain", exact_mixer)
        exact = compute(exact_mixer, x.double())
        for form in FORMS:
            use(form, mixer)
            found = run_or_skip(lambda m=mixer, x=x: compute(m, x))
            for what, value, true in zip(("output", "gradient"), found, exact):
                key = (what, form)
                worst[key] = max(worst.get(key, 0.0), (value - true).abs().max().item())
    for what in ("output", "gradient"):
        for form in FORMS[1:]:
            assert worst[what, form] <= 2 * worst[what, "plain"], worst


def test_layer_sharing_adds_up_gradients():
    """Two layers with one mixer: its gradient is the sum over both uses."""
    mixer = make_fastformer()
    twin = copy.deepcopy(mixer)
    x = make_sentences((5,), DIM)
    parameters = dict(mixer.named_parameters())
    twins = dict(twin.named_parameters())

    def twice(first, second):
        y = first(x[0].unsqueeze(1), x[0].unsqueeze(1))
        return [second(y, y).squeeze(1)]

    _, shared = value_and_gradients(lambda: twice(mixer, mixer), parameters)
    _, first = value_and_gradients(lambda: twice(mixer, twin), parameters)
    _, second = value_and_gradients(lambda: twice(mixer, twin), twins)
    for name in parameters:
        assert_close(shared[name], first[name] + second[name], name)


def test_order_of_positions_does_not_matter():
    """Additive attention sees a set: permuting the input permutes the output."""
    mixer = make_fastformer()
    x = torch.randn(9, 2, DIM, dtype=torch.float64)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    for form in FORMS:
        use(form, mixer)
        assert_close(mixer(x[order], x[order]), mixer(x, x)[order])


@ALL_FORMS
def test_input_in_any_memory_layout(form):
    mixer = make_fastformer()
    use(form, mixer)
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


@pytest.mark.parametrize("form", ["keyless", "folded"])
def test_under_autocast(form):
    """Products in bfloat16, parameters and their gradients in float32."""
    torch.manual_seed(0)
    mixer = build(32, 4)
    use(form, mixer)
    x = torch.randn(40, 2, 32)
    exact = mixer(x, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = mixer(x, x)
    assert (out - exact).abs().max() < 0.05 * exact.abs().max()
    out.float().pow(2).sum().backward()
    found = [p.grad.clone() for p in mixer.parameters()]
    mixer.zero_grad()
    exact.pow(2).sum().backward()
    for gradient, parameter in zip(found, mixer.parameters()):
        assert gradient.dtype == torch.float32
        worst = (gradient - parameter.grad).abs().max()
        assert worst <= 0.05 * parameter.grad.abs().max() + 1e-2


def test_a_second_derivative_is_refused():
    mixer = make_fastformer()
    use("keyless", mixer)
    x = torch.randn(7, 2, DIM, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(mixer(x, x).pow(2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
