"""Pooling over time and features, its masks, and the way back."""

import pytest
import torch

from fairseq_plugins.layers.compression import (
    FEATURE_POOLINGS,
    TIME_POOLINGS,
    FeaturePooling,
    TimePooling,
    align_to_start,
    pool_padding_mask,
    restore_alignment,
    upsample,
)
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
from tests.reference import compression as truth

WINDOWS = (1, 2, 3, 4)
LENGTHS = tuple(range(1, 10))  # 1 .. 2 w + 1 for every window above


@pytest.mark.parametrize("fill", [0.0, 1e9, float("nan")])
@pytest.mark.parametrize("kind", TIME_POOLINGS)
@pytest.mark.parametrize("window", WINDOWS)
def test_time_pooling_equals_the_reference(window, kind, fill):
    """In a batch, and of each sentence alone, without a mask."""
    sentences = make_sentences(LENGTHS, channels=5)
    mask = padding_mask(LENGTHS, width=11)
    pooled_mask = pool_padding_mask(mask, window)
    pooling = TimePooling(window, kind)
    for pool in (
        lambda: unpad(pooling(pad(sentences, mask, fill), mask), pooled_mask),
        lambda: [pooling(sentence.unsqueeze(1)).squeeze(1) for sentence in sentences],
    ):
        assert_same_function(
            pool,
            lambda: [truth.pool_time(sentence, window, kind) for sentence in sentences],
            leaves_of(pooling, x=sentences),
        )


@pytest.mark.parametrize("kind", ["max", "min"])
def test_ties_share_the_gradient(kind):
    # small integers: most windows hold their extreme more than once
    x = torch.randint(0, 2, (9, 1, 40), generator=torch.Generator().manual_seed(0)).double()
    x.requires_grad_()
    mask = torch.zeros(1, 9, dtype=torch.bool)
    time, features = TimePooling(3, kind), FeaturePooling(40, 4, kind)
    assert_same_function(
        lambda: [y.squeeze(1) for y in (time(x, None), time(x, mask), features(x))],
        lambda: [
            *2 * [truth.pool_time(x.squeeze(1), 3, kind)],
            truth.pool_features(x.squeeze(1), 4, kind),
        ],
        {"x": x},
    )


@pytest.mark.parametrize("kind", TIME_POOLINGS)
def test_windows_of_padding_alone_are_zero(kind):
    mask = padding_mask([0, 1, 5], width=6)
    x = torch.full((6, 3, 4), float("nan"))
    x[:1, 1], x[:5, 2] = 1.0, 1.0
    x.requires_grad_()
    pooled = TimePooling(2, kind)(x, mask)
    expected = torch.zeros(3, 3, 4)
    expected[:1, 1], expected[:, 2] = 1.0, 1.0
    assert torch.equal(pooled, expected)
    pooled.sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("window", WINDOWS)
def test_pooled_position_is_padding_only_when_its_whole_window_is(window, side):
    mask = padding_mask((0,) + LENGTHS, side, width=10)
    pooled = pool_padding_mask(mask, window)
    for row, pooled_row in zip(mask, pooled):
        expected = [all(row[t] for t in ts) for ts in truth.windows(10, window)]
        assert pooled_row.tolist() == expected


@pytest.mark.parametrize("fill", [0.0, 1e9, float("nan")])
@pytest.mark.parametrize("side", SIDES)
def test_alignment_moves_real_tokens_to_the_start_and_back(side, fill):
    lengths = (3, 0, 7, 1, 6)
    sentences = make_sentences(lengths, channels=4)
    mask = padding_mask(lengths, side)
    # padding within a sentence happens when a user pads by hand: order is what counts
    mask[2] = torch.tensor([False] * 7)
    mask[4] = torch.tensor([False, False, True, False, False, False, False])
    aligned, aligned_mask, rank = align_to_start(pad(sentences, mask, fill), mask)
    assert torch.equal(aligned_mask, padding_mask(lengths, "right"))
    assert torch.isfinite(aligned).all()
    assert_same_function(
        lambda: unpad(align_to_start(pad(sentences, mask, fill), mask)[0], aligned_mask),
        lambda: list(sentences),
        leaves_of(torch.nn.Identity(), x=sentences),
    )
    assert_same_function(
        lambda: unpad(restore_alignment(align_to_start(pad(sentences, mask), mask)[0], rank), mask),
        lambda: list(sentences),
        leaves_of(torch.nn.Identity(), x=sentences),
    )
    assert torch.isfinite(restore_alignment(aligned, rank)).all()


@pytest.mark.parametrize("kind", FEATURE_POOLINGS)
@pytest.mark.parametrize("window", WINDOWS)
def test_feature_pooling_equals_the_reference(window, kind):
    sentences = make_sentences([7, 7], channels=36)
    pooling = randomize(FeaturePooling(36, window, kind))
    no_padding = torch.zeros(2, 7, dtype=torch.bool)
    parameters = list(pooling.parameters())
    assert len(parameters) == (2 if kind == "linear" and window > 1 else 0)
    true_kind = kind if parameters or kind != "linear" else "mean"  # a window of 1 changes nothing
    assert_same_function(
        lambda: unpad(pooling(torch.stack(sentences, dim=1)), no_padding),
        lambda: [truth.pool_features(s, window, true_kind, *parameters) for s in sentences],
        leaves_of(pooling, x=sentences),
    )


@pytest.mark.parametrize("time_window", WINDOWS)
@pytest.mark.parametrize("feature_window", WINDOWS)
def test_upsample_equals_the_reference(time_window, feature_window):
    pooled = make_sentences([-(-length // time_window) for length in LENGTHS], channels=3)
    windows = time_window, feature_window
    assert_same_function(
        lambda: [upsample(x.unsqueeze(1), *windows, n).squeeze(1) for x, n in zip(pooled, LENGTHS)],
        lambda: [truth.upsample(x, *windows, n) for x, n in zip(pooled, LENGTHS)],
        leaves_of(torch.nn.Identity(), x=pooled),
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", TIME_POOLINGS)
def test_reduced_precision_is_as_good_as_the_plain_sum(kind, dtype):
    lengths = (17, 16, 5)
    sentences = [s.detach().to(dtype) for s in make_sentences(lengths, channels=64)]
    mask = padding_mask(lengths)
    fast = unpad(TimePooling(4, kind)(pad(sentences, mask), mask), pool_padding_mask(mask, 4))
    for sentence, pooled in zip(sentences, fast):
        assert pooled.dtype == dtype
        exact = truth.pool_time(sentence.double(), 4, kind)
        plain = truth.pool_time(sentence, 4, kind)
        assert (pooled - exact).abs().max() <= 2 * (plain - exact).abs().max()
