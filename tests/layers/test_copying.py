"""Copying of source words: the equations as loops, in value and every gradient."""

import pytest
import torch

from fairseq_plugins.layers.copying import (
    CopyAttention,
    CopySpec,
    find_before,
    find_word_positions,
)
from tests.batches import assert_close, assert_same_function, leaves_of, randomize
from tests.reference.copy_attention import copy_probabilities, go_on

VOCABULARY, STATE, INPUT = 11, 5, 3
WORDS = torch.tensor([[4, 7, 4, 4, 9, 2], [1, 1, 5, 5, 6, 2]])  # the second is padded
PREVIOUS = torch.tensor([[2, 4, 7, 10], [2, 5, 1, 6]])  # 10 is in no source


def make_module(goes_on=False):
    return randomize(CopyAttention(CopySpec(STATE, INPUT, goes_on)))


def make_inputs(steps=4, seed=1):
    """State, input, attention with zeros at padding, and logits; all but words."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((STATE,), (INPUT,), (WORDS.size(1),), (VOCABULARY,))
    state, inputs, scores, logits = (
        torch.randn(len(WORDS), steps, *shape, generator=generator, dtype=torch.float64)
        for shape in shapes
    )
    scores[0, 2, 2] = -20.0  # the word after 7, the previous one, is hardly read
    attention = scores.masked_fill(WORDS.eq(1).unsqueeze(1), -float("inf")).softmax(dim=-1)
    return [x.requires_grad_() for x in (state, inputs, attention.detach(), logits)]


def of_source():
    return find_word_positions(WORDS, VOCABULARY).unsqueeze(1), find_before(WORDS, 1, 2).unsqueeze(
        1
    )


def copy(module, state, inputs, attention):
    return module(state, inputs, attention, WORDS, *of_source(), PREVIOUS)


def logit(linear, *inputs):
    return linear.bias[0] + sum(w * x for w, x in zip(linear.weight[0], torch.cat(inputs)))


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("log_probs", [False, True])
def test_probabilities_are_the_equation(log_probs, goes_on):
    module = make_module(goes_on=goes_on)
    state, inputs, attention, logits = leaves = make_inputs()

    def expected():
        rows = []
        for b, source in enumerate(WORDS.tolist()):
            for t in range(state.size(1)):
                read = attention[b, t]
                if goes_on:
                    share = logit(module.next, state[b, t], inputs[b, t])
                    read = go_on(read, source, int(PREVIOUS[b, t]), share)
                gate = logit(module.gate, state[b, t], inputs[b, t])
                rows.append(copy_probabilities(logits[b, t], read, source, gate))
        found = torch.stack(rows)
        return [found.log() if log_probs else found]

    def found():
        mixed = module.mix(logits, copy(module, state, inputs, attention), log_probs)
        return [mixed.flatten(0, 1)]

    names = leaves_of(module)
    names.update(zip(("state", "inputs", "attention", "logits"), leaves))
    names.pop("attention")  # at padding, where it is zero, P has no logarithm's derivative
    assert_same_function(found, expected, names)
    real = WORDS.ne(1).unsqueeze(1).expand_as(attention)
    gradients = [
        torch.autograd.grad((compute()[0] ** 2).sum(), attention)[0]
        for compute in (found, expected)
    ]
    assert_close(gradients[0][real], gradients[1][real], "attention")
    assert not gradients[0][~real].any()
    total = found()[0].exp().sum(dim=-1) if log_probs else found()[0].sum(dim=-1)
    assert_close(total, torch.ones_like(total))


def test_nothing_underflows():
    """Gates and logits that no float32 can make probabilities of."""
    module = make_module().float()
    state, inputs, attention, logits = (
        (scale * x.detach()).float().requires_grad_()
        for scale, x in zip((300.0, 300.0, 1.0, 300.0), make_inputs())
    )
    extra = copy(module, state, inputs, attention)
    assert extra["copy_log_generate"][0].min() < -100
    found = module.mix(logits, extra, log_probs=True)
    assert torch.isfinite(found).all() and found.min() < -200
    for gradient in torch.autograd.grad(found.sum(), (state, inputs, attention, logits)):
        assert torch.isfinite(gradient).all() and gradient.any()


def test_logarithms_are_in_float32():
    module, inputs = make_module().bfloat16(), [x.detach().bfloat16() for x in make_inputs()]
    extra = copy(module, *inputs[:3])
    for name in ("attn", "copy_log_generate", "copy_log_odds"):
        assert extra[name][0].dtype == torch.float32, name
    exact = module.mix(inputs[3].float(), extra, log_probs=True)
    assert torch.equal(module.mix(inputs[3], extra, log_probs=True), exact)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_word_before(side):
    words, before = [5, 6, 2], [2, 5, 6]
    padded = [1, 1, *words] if side == "left" else [*words, 1, 1]
    expected = [-1, -1, *before] if side == "left" else [*before, -1, -1]
    assert find_before(torch.tensor([padded]), 1, 2).tolist() == [expected]


def test_going_on_ends_at_padding():
    """The weights stay a distribution over real positions, or all zero at target padding."""
    state, inputs, attention, _ = make_inputs()
    attention = attention * PREVIOUS.ne(1).unsqueeze(2)
    read = copy(make_module(goes_on=True), state, inputs, attention)["attn"][0]
    assert not read[WORDS.eq(1).unsqueeze(1).expand_as(read)].any()
    assert_close(read.sum(dim=2), PREVIOUS.ne(1).double())


@pytest.mark.parametrize("vocabulary", [10, 50])
def test_places(vocabulary):
    places = find_word_positions(WORDS, vocabulary)
    for words, row in zip(WORDS.tolist(), places.tolist()):
        assert [words[place] for place in row] == words
        assert len(set(row)) == len(set(words))


@pytest.mark.parametrize("goes_on", [False, True])
def test_scripted_equals_eager(goes_on):
    module, (state, inputs, attention, logits) = make_module(goes_on=goes_on), make_inputs()

    class Mixture(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.copying = module

        def forward(self, state, inputs, attention, logits, words, places, before, previous):
            extra = self.copying(state, inputs, attention, words, places, before, previous)
            return self.copying.mix(logits, extra, True)

    mixture = Mixture()
    arguments = (state, inputs, attention, logits, WORDS, *of_source(), PREVIOUS)
    assert torch.equal(torch.jit.script(mixture)(*arguments), mixture(*arguments))
