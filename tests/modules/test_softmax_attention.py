"""Softmax attention behind the interface of a token mixer.

A row of padding alone is no matter of this module: the encoder shows it none (test_encoder.py).
"""

import pytest

from fairseq_plugins.modules.dropout import use_fast_dropout
from fairseq_plugins.modules.token_mixers import MixerSpec, SoftmaxAttention, softmax_attention
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
from tests.reference.attention import softmax_attention as truth

LENGTHS = tuple(range(1, 10))
DIM, HEADS = 15, 3


def true_rows(mixer, x, memory):
    attention = mixer.attention
    projections = [attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj]
    parameters = [p for layer in projections for p in (layer.weight, layer.bias)]
    return truth(x, memory, HEADS, *parameters)


# with a dropout that drops nothing the fast form is taken, and must compute the same
@pytest.mark.parametrize("training, fast", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("fill", [0.0, 1e9])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("memory_dim", [None, DIM, 21])
def test_equals_the_reference(memory_dim, side, fill, training, fast, monkeypatch):
    dropout = 1e-12 if fast else 0.0
    mixer = SoftmaxAttention(MixerSpec(DIM, memory_dim or DIM, HEADS, dropout=dropout, fast=fast))
    use_fast_dropout(mixer)
    calls = []
    attend = softmax_attention.attend
    monkeypatch.setattr(
        softmax_attention, "attend", lambda *args: calls.append(args) or attend(*args)
    )
    randomize(mixer).train(training)  # fairseq takes other ways in training and evaluation
    x = make_sentences(LENGTHS, DIM)
    mask = padding_mask(LENGTHS, side)
    if memory_dim is None:
        memory, memory_mask = x, mask
    else:
        memory = make_sentences(LENGTHS[::-1], memory_dim, seed=1)
        memory_mask = padding_mask(LENGTHS[::-1], side, width=11)

    def in_a_batch():
        padded = pad(x, mask, fill)
        padded_memory = padded if memory is x else pad(memory, memory_mask, fill)
        return unpad(mixer(padded, padded_memory, mask, memory_mask), mask)

    assert_same_function(
        in_a_batch,
        lambda: [true_rows(mixer, *pair) for pair in zip(x, memory)],
        leaves_of(mixer, x=x, **({} if memory is x else {"memory": memory})),
    )
    assert bool(calls) == fast
