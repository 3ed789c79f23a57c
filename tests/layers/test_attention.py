"""Attention in chunks against attention with all weights at once."""

import pytest
import torch

from fairseq_plugins.layers import attention
from fairseq_plugins.layers.attention import ChunkedAttention, attend_plainly
from fairseq_plugins.layers.dropout import FastDropout
from tests.batches import assert_close

BATCH, HEADS, SIZE = 2, 3, 4


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def make_input(length, memory_length, dtype=torch.float64):
    lengths = (length, memory_length, memory_length)
    tensors = [draw(BATCH, HEADS, n, SIZE, seed=i, dtype=dtype) for i, n in enumerate(lengths)]
    return [tensor.requires_grad_() for tensor in tensors]


def make_mask(length):
    """The second sentence's last third is padding."""
    mask = torch.zeros(BATCH, 1, 1, length, dtype=torch.bool)
    mask[1, :, :, length - length // 3 :] = True
    return mask


def no_dropout():
    return FastDropout(0.0, "test").train()


@pytest.fixture(params=[0.5, 2, 5, 1000])
def rows_at_a_time(request, monkeypatch):
    """Chunks of one query, whose weights may exceed the limit; some; and all."""

    def choose(memory_length):
        limit = int(request.param * BATCH * HEADS * memory_length)
        monkeypatch.setattr(attention, "WEIGHTS_AT_A_TIME", limit)

    return choose


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_pass_on_gradients_beyond_half_precision(dtype):
    """The gradient of log w is 1 / w at the weight, but at most 1 at the scores."""
    query, key, value = (x.detach() for x in make_input(3, 5))
    inputs = [x.to(dtype).requires_grad_() for x in (3 * query, 3 * key, value)]
    mixed, weights = attend_plainly(*inputs, None, False, no_dropout())
    assert mixed.dtype is dtype and weights.dtype is torch.float32
    gradient = 128 / weights.detach().clamp(min=1e-4)  # 128: fairseq's first scale
    assert gradient.max() > torch.finfo(torch.float16).max
    weights.backward(gradient)
    for x in inputs[:2]:
        assert x.grad.isfinite().all() and x.grad.abs().max() > 1


@pytest.mark.parametrize(
    "causal, masked, length, memory_length",
    [(False, False, 7, 5), (False, True, 7, 9), (True, False, 7, 7), (True, True, 9, 9)],
)
def test_equals_all_weights_at_once(rows_at_a_time, causal, masked, length, memory_length):
    rows_at_a_time(memory_length)
    mask = make_mask(memory_length) if masked else None
    inputs = make_input(length, memory_length)
    seed = draw(BATCH, HEADS, length, SIZE, seed=7)
    expected = attend_plainly(*inputs, mask, causal, no_dropout())[0]
    found = ChunkedAttention.apply(*inputs, mask, causal, 0.0)
    assert_close(found, expected, "result", 1e-12)
    gradients = torch.autograd.grad(expected, inputs, seed)
    for name, one, other in zip("QKV", torch.autograd.grad(found, inputs, seed), gradients):
        assert_close(one, other, name, 1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_backward_uses_the_dropout_mask_of_forward(rows_at_a_time, causal):
    rows_at_a_time(5)
    inputs = make_input(5, 5)

    def run(*inputs):
        torch.manual_seed(3)
        return ChunkedAttention.apply(*inputs, make_mask(5), causal, 0.4)

    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


def test_backward_leaves_the_random_stream_as_it_was():
    inputs = make_input(5, 5)
    loss = ChunkedAttention.apply(*inputs, None, False, 0.4).sum()
    torch.rand(3)  # what is drawn between must not be drawn again
    state = torch.get_rng_state()
    loss.backward()
    assert torch.equal(torch.get_rng_state(), state)


def test_dropout_keeps_its_share_and_scales_it(rows_at_a_time):
    """With unit vectors for values the result is the weights after dropout."""
    length, p = 40, 0.3
    rows_at_a_time(length)
    query, key, _ = make_input(length, length)
    value = torch.eye(length, dtype=torch.float64).expand(BATCH, HEADS, -1, -1)
    weights = attend_plainly(query, key, value, None, False, no_dropout())[1]
    torch.manual_seed(5)
    ratio = ChunkedAttention.apply(query, key, value, None, False, p) / weights
    kept = ratio > 0
    assert_close(ratio[kept], torch.full_like(ratio[kept], 1 / (1 - p)), "scale", 1e-9)
    count = kept.numel()
    assert abs(kept.sum().item() - count * (1 - p)) < 5 * (count * p * (1 - p)) ** 0.5


@pytest.mark.parametrize("causal", [False, True])
def test_half_precision_is_rounded_as_with_all_weights_at_once(monkeypatch, causal):
    """Over a hundred chunks: sums in bf16 would lose what is small beside them."""
    length = 300
    monkeypatch.setattr(attention, "WEIGHTS_AT_A_TIME", 3 * BATCH * HEADS * length)
    half = [x.detach().bfloat16() for x in make_input(length, length)]
    half[2] += 2  # a mean, so that sums do not stay near zero
    seed = (draw(BATCH, HEADS, length, SIZE, seed=7) + 1).bfloat16()
    results = []
    for dtype, chunked in ((torch.float64, False), (torch.bfloat16, False), (torch.bfloat16, True)):
        inputs = [x.to(dtype).requires_grad_() for x in half]
        if chunked:
            out = ChunkedAttention.apply(*inputs, None, causal, 0.0)
        else:
            out = attend_plainly(*inputs, None, causal, no_dropout())[0]
        results.append([out, *torch.autograd.grad(out, inputs, seed.to(dtype))])
    for name, exact, plain, found in zip("OQKV", *results):
        assert found.dtype == torch.bfloat16
        errors = [(x.double() - exact).norm().item() for x in (found, plain)]
        assert errors[0] <= 1.2 * errors[1], (name, errors)


@pytest.mark.parametrize("causal", [False, True])
def test_memory_is_limited_to_a_chunk_of_weights(monkeypatch, causal):
    counts = []
    chunks = attention._chunks

    def spy(*args):
        for rows, seen, weights, kept in chunks(*args):
            counts.append(max(weights.numel(), kept.numel()))
            yield rows, seen, weights, kept

    monkeypatch.setattr(attention, "_chunks", spy)
    limit = 5 * BATCH * HEADS * 40
    monkeypatch.setattr(attention, "WEIGHTS_AT_A_TIME", limit)
    out = ChunkedAttention.apply(*make_input(40, 40), None, causal, 0.4)
    out.sum().backward()
    assert len(counts) == 2 * 8 and max(counts) == limit
