"""Softmax attention on the fast path of training, where `attend` computes it."""

import pytest

from fairseq_plugins.layers.dropout import use_fast_dropout
from fairseq_plugins.layers.token_mixers import MixerSpec, SoftmaxAttention, softmax_attention
from tests.batches import (
    SIDES,
    assert_same_function,
    leaves_of,
    make_sentences,
    pad,
    padding_mask,
    randomize,
    unpad,
)
from tests.contract.references import MIXERS

LENGTHS = tuple(range(1, 10))
DIM, HEADS = 15, 3


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("memory_dim", [DIM, 21])
def test_equals_the_reference(memory_dim, side, monkeypatch):
    # with a dropout that drops nothing it is taken, and must compute the same
    spec = MixerSpec(DIM, memory_dim, HEADS, dropout=1e-12, fast=True)
    mixer = randomize(SoftmaxAttention(spec)).train()
    use_fast_dropout(mixer)
    calls = []
    attend = softmax_attention.attend
    monkeypatch.setattr(
        softmax_attention, "attend", lambda *args: calls.append(args) or attend(*args)
    )
    x, memory = make_sentences(LENGTHS, DIM), make_sentences(LENGTHS[::-1], memory_dim, seed=1)
    mask, memory_mask = padding_mask(LENGTHS, side), padding_mask(LENGTHS[::-1], side, width=11)

    def in_a_batch():
        padded = pad(x, mask, 1e9), pad(memory, memory_mask, 1e9)
        return unpad(mixer(*padded, mask, memory_mask), mask)

    assert_same_function(
        in_a_batch,
        lambda: [MIXERS["softmax"].rows(mixer, HEADS, {}, *pair) for pair in zip(x, memory)],
        leaves_of(mixer, x=x, memory=memory),
    )
    assert calls
