"""Cheap dropout is dropout: its distribution, its gradient and when it is left out."""

import pytest
import torch
from fairseq.modules.fairseq_dropout import FairseqDropout

from fairseq_plugins.modules.dropout import FastDropout, draw_kept, use_fast_dropout

COUNT = 2_000_003  # no multiple of 8


@pytest.mark.parametrize("keep", [0.7, 0.9, 0.5, 0.001, 0.9999, 1 / 256, 255.5 / 256])
def test_kept_with_the_probability_asked_for(keep):
    torch.manual_seed(1)
    kept = draw_kept(torch.empty(COUNT), keep)
    assert set(kept.unique().tolist()) <= {0.0, 1.0}
    deviation = (COUNT * keep * (1 - keep)) ** 0.5
    assert abs(kept.sum().item() - COUNT * keep) < 4.5 * deviation


def test_the_sparse_part_reaches_every_place():
    """A byte alone would give 0.9961, the mean of a place would then be below 0.99 somewhere."""
    torch.manual_seed(2)
    kept = draw_kept(torch.empty(2000, 1001), 0.999)
    places = kept.mean(dim=0)
    assert 0.992 < places.min() and abs(places[0] - 0.999) < 0.0028 > abs(places[-1] - 0.999)


@pytest.mark.parametrize("lag", [1, 2, 7, 8, 64])
def test_neighbours_are_independent(lag):
    torch.manual_seed(3)
    kept = draw_kept(torch.empty(COUNT), 0.7)
    both = (kept[lag:] * kept[:-lag]).mean().item()
    assert abs(both - 0.49) < 5 * (0.49 * 0.51 / COUNT) ** 0.5 * 1.6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_scale_gradient_and_seed(dtype):
    dropout = FastDropout(0.3).train()
    x = torch.ones(50, 41, dtype=dtype, requires_grad=True)
    torch.manual_seed(4)
    y = dropout(x)
    y.backward(torch.full_like(y, 2.0))
    expected = torch.tensor(1 / 0.7, dtype=dtype)
    assert y.dtype == dtype and set(y.unique().tolist()) == {0.0, expected.item()}
    assert torch.equal(x.grad, 2 * y.detach())
    torch.manual_seed(4)
    assert torch.equal(dropout(x), y)
    assert not torch.equal(dropout(x), y)


def test_left_out_where_fairseqs_is():
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


def test_put_in_the_place_of_each():
    model = torch.nn.Sequential(
        torch.nn.Sequential(FairseqDropout(0.2, module_name="Layer")), FairseqDropout(0.1)
    )
    use_fast_dropout(model)
    assert type(model[0][0]) is type(model[1]) is FastDropout
    assert (model[0][0].p, model[0][0].module_name, model[1].p) == (0.2, "Layer", 0.1)
