"""Cheap dropout is dropout: its distribution, its gradient and when it is left out."""

import pytest
import torch

from fairseq_plugins.layers import dropout
from fairseq_plugins.layers.dropout import FastDropout, draw_kept

COUNT = 2_000_003  # no multiple of 8


@pytest.mark.parametrize("keep", [0.7, 0.9, 0.5, 0.001, 0.9999, 0.995, 0.997, 1 / 256, 255.5 / 256])
def test_elements_are_kept_with_the_given_probability(keep):
    torch.manual_seed(1)
    kept = draw_kept(torch.empty(COUNT), keep)
    assert set(kept.unique().tolist()) <= {0.0, 1.0}
    deviation = (COUNT * keep * (1 - keep)) ** 0.5
    assert abs(kept.sum().item() - COUNT * keep) < 4.5 * deviation


def test_the_sparse_part_reaches_every_place():
    """The first and the last too: five deviations of the mean of 2,000 draws."""
    torch.manual_seed(2)
    changed = torch.zeros(2000, 3)
    for values in changed:
        dropout._change_some(values, 0.3, 1.0)
    assert (changed.mean(dim=0) - 0.3).abs().max() < 5 * (0.3 * 0.7 / 2000) ** 0.5


def test_every_place_is_kept_with_the_given_probability():
    """The last byte of each draw too, in an integer that is used in part."""
    torch.manual_seed(6)
    like = torch.empty(1001)
    places = torch.stack([draw_kept(like, 0.7) for _ in range(4000)]).mean(dim=0)
    assert (places - 0.7).abs().max() < 5 * (0.7 * 0.3 / 4000) ** 0.5


@pytest.mark.parametrize("keep", [0.9999, 0.995, 0.99, 0.9, 0.7, 0.3, 0.199, 0.01])
def test_the_sparse_part_is_sparse_and_exact(keep, monkeypatch):
    """Whatever is asked for: it costs more than torch's dropout where its events are many."""
    calls = []
    monkeypatch.setattr(dropout, "_change_some", lambda *given: calls.append(given[1:]))
    of_bytes = round(256 * draw_kept(torch.empty(COUNT), keep).mean().item()) / 256
    ((rate, to),) = calls
    assert 0 <= rate < 1 / 128
    assert of_bytes + (to - of_bytes) * rate == pytest.approx(keep, abs=1e-12)


@pytest.mark.parametrize("lag", [1, 2, 7, 8, 64])
def test_neighbours_are_independent(lag):
    torch.manual_seed(3)
    kept = draw_kept(torch.empty(COUNT), 0.7)
    both = (kept[lag:] * kept[:-lag]).mean().item()
    assert abs(both - 0.49) < 5 * (0.49 * 0.51 / COUNT) ** 0.5 * 1.6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_scale_gradient_and_seed(dtype):
    module = FastDropout(0.3).train()
    x = torch.ones(50, 41, dtype=dtype, requires_grad=True)
    torch.manual_seed(4)
    y = module(x)
    y.backward(torch.full_like(y, 2.0))
    expected = torch.tensor(1 / 0.7, dtype=dtype)
    assert y.dtype == dtype and set(y.unique().tolist()) == {0.0, expected.item()}
    assert torch.equal(x.grad, 2 * y.detach())
    torch.manual_seed(4)
    assert torch.equal(module(x), y)
    assert not torch.equal(module(x), y)


def test_off_where_fairseqs_dropout_is_off():
    x = torch.randn(5, 7)
    assert FastDropout(0.3).eval()(x) is x
    assert FastDropout(0.0).train()(x) is x
    assert not FastDropout(1.0).train()(x).any()
    retained = FastDropout(0.3).eval()
    retained.make_generation_fast_("name", retain_dropout=True)
    assert not torch.equal(retained(x), x)
    assert FastDropout(0.5).train()(torch.empty(0, 4)).shape == (0, 4)


def test_scripted_in_evaluation():
    x = torch.randn(5, 7)
    assert torch.equal(torch.jit.script(FastDropout(0.3).eval())(x), x)
