"""The feed-forward networks against the equations."""

import pytest
import torch

from fairseq_plugins.modules.feed_forward import MSCFFN, StandardFeedForward
from tests.batches import (
    assert_close,
    assert_same_function,
    leaves_of,
    make_sentences,
    randomize,
    run_or_skip,
)
from tests.reference import feed_forward as truth

SIZES = [  # dimension, subspaces, expansion
    (12, 2, 1),
    (12, 6, 3),
    (12, 12, 2),
    (30, 10, 6),
    (36, 12, 6),
    (40, 4, 5),
]


def true_mscffn(ffn, x):
    return truth.mscffn(
        x,
        ffn.in_proj.weight,
        ffn.in_proj.bias,
        ffn.expand_weight.transpose(1, 2),
        ffn.expand_bias.squeeze(1),
        ffn.contract_weight.transpose(1, 2),
        ffn.contract_bias.squeeze(1),
        ffn.out_proj.weight,
        ffn.out_proj.bias,
    )


@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("dim, subspaces, expansion", SIZES)
def test_mscffn_equals_the_reference(dim, subspaces, expansion, length):
    ffn = randomize(MSCFFN(dim, subspaces, expansion))
    x = make_sentences([length, length, length], dim)
    assert_same_function(
        lambda: list(ffn(torch.stack(x, dim=1)).unbind(1)),
        lambda: [true_mscffn(ffn, sentence) for sentence in x],
        leaves_of(ffn, x=x),
    )


@pytest.mark.parametrize("dim, subspaces, expansion", SIZES)
def test_mscffn_has_the_size_of_the_paper(dim, subspaces, expansion):
    ffn = MSCFFN(dim, subspaces, expansion)
    weights = [p for name, p in ffn.named_parameters() if "weight" in name]
    # 1.5 d^2 + 1.5 (m / n) d^2
    assert 2 * subspaces * sum(w.numel() for w in weights) == 3 * dim**2 * (subspaces + expansion)


def test_mscffn_defaults_are_those_of_the_paper():
    ffn = MSCFFN(48)
    assert (ffn.subspaces, ffn.expansion) == (12, 6)


def test_mscffn_accepts_any_layout():
    ffn = randomize(MSCFFN(12, 4, 3))
    x = torch.randn(5, 7, 12, dtype=torch.float64)
    expected = ffn(x)
    transposed = x.transpose(0, 1)
    assert_close(ffn(transposed), expected.transpose(0, 1))
    assert_close(ffn(x[2, 3]), expected[2, 3])
    assert_close(ffn(x.unsqueeze(0)), expected.unsqueeze(0))


def test_mscffn_positions_are_independent():
    """1e9 or NaN at one position stays there: padding cannot reach a real token."""
    ffn = randomize(MSCFFN(12, 4, 3))
    x = torch.randn(6, 2, 12, dtype=torch.float64)
    clean = ffn(x)
    for poison in (1e9, float("nan")):
        poisoned = x.clone()
        poisoned[2, 1] = poison
        out = ffn(poisoned)
        out[2, 1] = clean[2, 1]
        assert_close(out, clean)


def test_mscffn_dropout_acts_on_the_products():
    """With every product C_j dropped, the output is the same constant whatever the input."""
    ffn = randomize(MSCFFN(12, 4, 3, activation_dropout=0.999999)).train()
    out = ffn(torch.randn(5, 2, 12, dtype=torch.float64))
    constant = torch.cat(list(ffn.contract_bias.squeeze(1)))
    assert_close(out, (ffn.out_proj.weight @ constant + ffn.out_proj.bias).expand(5, 2, 12))
    assert ffn.eval()(torch.randn(5, 2, 12).double()).std() > 0.01


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mscffn_in_reduced_precision_is_as_good_as_the_plain_one(dtype):
    torch.manual_seed(0)
    ffn = MSCFFN(96).to(dtype)
    x = torch.randn(64, 2, 96).to(dtype)
    fast = run_or_skip(lambda: ffn(x))
    assert fast.dtype == dtype
    plain = torch.stack([true_mscffn(ffn, s) for s in x.unbind(1)], dim=1)
    exact = ffn.double()(x.double())
    assert (fast - exact).abs().max() <= 2 * (plain - exact).abs().max()


def test_mscffn_scripted_equals_eager():
    ffn = randomize(MSCFFN(12, 4, 3))
    x = torch.randn(6, 2, 12, dtype=torch.float64)
    assert torch.equal(torch.jit.script(ffn)(x), ffn(x))


@pytest.mark.parametrize(
    "dim, subspaces, nearest",
    [
        (512, 12, ["8", "16"]),
        (12, 3, ["2", "4"]),
        (12, 5, ["4", "6"]),
        (12, 24, ["12"]),
        (12, 0, ["2"]),
        (12, -4, ["2"]),
    ],
)
def test_mscffn_names_the_nearest_subspaces_that_work(dim, subspaces, nearest):
    with pytest.raises(ValueError) as error:
        MSCFFN(dim, subspaces)
    message = str(error.value)
    assert "\n" not in message and str(dim) in message and str(subspaces) in message
    for number in nearest:
        assert number in message.split("nearest", 1)[1]
        MSCFFN(dim, int(number))  # and they do


def test_mscffn_needs_an_expansion():
    with pytest.raises(ValueError, match="expansion 0"):
        MSCFFN(12, 4, 0)


@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh"])
def test_standard_network_equals_the_reference(activation):
    from fairseq import utils

    ffn = randomize(StandardFeedForward(6, 11, activation))
    x = make_sentences([5, 5], 6)
    assert_same_function(
        lambda: list(ffn(torch.stack(x, dim=1)).unbind(1)),
        lambda: [
            truth.standard(
                sentence,
                ffn.fc1.weight,
                ffn.fc1.bias,
                ffn.fc2.weight,
                ffn.fc2.bias,
                utils.get_activation_fn(activation),
            )
            for sentence in x
        ],
        leaves_of(ffn, x=x),
        # fairseq computes gelu in float32
        tolerance=1e-5 if activation == "gelu" else 1e-10,
    )
