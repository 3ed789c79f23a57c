"""Switch networks: routing, capacity and the loss that balances them, with any criterion."""

from argparse import Namespace

import pytest
import torch
from fairseq.logging import metrics
from fairseq.tasks import FairseqTask, LegacyFairseqTask
from torch import nn

from fairseq_plugins.layers.feed_forwards import (
    FeedForwardSpec,
    LowDimensionalFeedForward,
    SwitchFeedForward,
    SwitchOptions,
)
from fairseq_plugins.layers.feed_forwards.low_dimensional import inner_dim
from fairseq_plugins.losses.expert_balance import add_auxiliary_losses, install
from tests.batches import (
    SIDES,
    assert_close,
    assert_same_function,
    leaves_of,
    make_sentences,
    pad,
    padding_mask,
    randomize,
    unpad,
)
from tests.reference import feed_forward as truth

DIM = 6
LENGTHS = (5, 1, 7, 3)


def make_switch(**options):
    torch.manual_seed(1)
    ffn = randomize(SwitchFeedForward(FeedForwardSpec(DIM, 9), SwitchOptions(**options)))
    with torch.no_grad():
        ffn.router.mul_(3)  # decided, and not even
    return ffn


def true_rows(ffn, rows, capacity_factor=None):
    def run(expert):
        return lambda row: truth.standard(
            row, expert.fc1.weight, expert.fc1.bias, expert.fc2.weight, expert.fc2.bias
        )

    return truth.switch(rows, ffn.router, [run(e) for e in ffn.experts], capacity_factor)


def test_the_router_begins_with_small_scores():
    """Of features of deviation 1 they deviate by 0.1^0.5."""
    router = SwitchFeedForward(FeedForwardSpec(900, 2)).router
    assert router.std().item() == pytest.approx((0.1 / 900) ** 0.5, rel=0.1)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("capacity_factor", [0, 0.5, 1, 1.25])
def test_training_equals_the_reference_with_any_padding(capacity_factor, side):
    ffn = make_switch(experts=3, capacity_factor=capacity_factor).train()
    x = make_sentences(LENGTHS, DIM)
    mask = padding_mask(LENGTHS, side)

    def batch():
        out = ffn(pad(x, mask, float("nan")), mask)
        return [*unpad(out, mask), ffn.take_balance().reshape(1)]

    def reference():
        padded = pad(x, mask)
        places = [(t, b) for t in range(7) for b in range(4) if not mask[b, t]]
        rows, balance = true_rows(ffn, [padded[place] for place in places], capacity_factor or None)
        at = dict(zip(places, rows))
        sentences = [[at[t, b] for t in range(7) if (t, b) in at] for b in range(4)]
        return [torch.stack(rows) for rows in sentences] + [balance.reshape(1)]

    assert_same_function(batch, reference, leaves_of(ffn, x=x))
    dropped = sum((row == 0).all().item() for out in batch()[:-1] for row in out)
    assert (dropped > 0) == (capacity_factor in (0.5, 1, 1.25))


def test_without_a_limit_training_and_evaluation_are_equal():
    ffn = make_switch(capacity_factor=0)
    x = torch.randn(9, 4, DIM).double()
    mask = padding_mask((9, 3, 0, 6))
    expected = ffn(x)
    actual = ffn.train()(x, mask)
    for one, other in zip(unpad(actual, mask), unpad(expected, mask)):
        assert_close(one, other, tolerance=1e-14)
    assert_close(ffn.eval()(x[:, 1:2]), expected[:, 1:2])


def test_a_batch_of_padding_alone_is_finite():
    ffn = make_switch().train()
    x = torch.randn(4, 2, DIM).double().requires_grad_()
    out = ffn(x, padding_mask((0, 0), width=4))
    balance = ffn.take_balance()
    assert torch.equal(out, torch.zeros_like(out)) and balance == 0
    (out.sum() + balance).backward()
    assert all(torch.isfinite(p.grad).all() for p in ffn.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_router_is_exact_in_reduced_precision(dtype):
    ffn = make_switch().to(dtype)
    x = torch.randn(50, DIM).to(dtype)
    exact = torch.softmax(x.double() @ ffn.router.double().t(), dim=-1)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.float32):
        assert (ffn._probabilities(x).double() - exact).abs().max() < 1e-5
        assert torch.isfinite(ffn(x)).all()


class Criterion(nn.Module):
    sentence_avg = False

    def forward(self, model, sample):
        return model(sample).pow(2).sum(), 7, {"loss": 0.0, "ntokens": 40}


@pytest.mark.parametrize("sentence_avg", [False, True])
def test_every_criterion_gets_the_loss_in_training(sentence_avg):
    """Twice, as the hook must find the loss of each batch, and forget it.

    Its weight is that against the loss of a token, also with --sentence-avg.
    """
    model = nn.Sequential(make_switch(balance=0.3), make_switch(experts=2, balance=0.5)).train()
    criterion = Criterion()
    criterion.sentence_avg = sentence_avg
    criterion.register_forward_hook(add_auxiliary_losses)
    for seed in range(2):
        torch.manual_seed(seed)
        x = torch.randn(9, DIM).double()
        with metrics.aggregate() as logs:
            loss, size, _ = criterion(model, x)
        plain = model(x).pow(2).sum()
        balances = [module.take_balance() for module in model]
        assert size == 7
        size = 40 if sentence_avg else 7
        assert_close(loss, plain + size * (0.3 * balances[0] + 0.5 * balances[1]))
        logged = logs.get_smoothed_values()["balance"]
        assert logged == pytest.approx(sum(balances).item() / 2, abs=1e-3)
        (gradient,) = torch.autograd.grad(balances[0], model[0].router)
        assert gradient.abs().max() > 0
        assert [module.take_balance() for module in model] == [None, None]
    model.eval()
    assert_close(criterion(model, x)[0], model(x).pow(2).sum())


@pytest.mark.parametrize("kind", [FairseqTask, LegacyFairseqTask])
def test_a_task_s_criterion_has_the_hook_once(kind):
    install()
    cfg = Namespace(_name="cross_entropy", criterion="cross_entropy", sentence_avg=False)
    task = kind(Namespace())
    criterion = task.build_criterion(cfg)
    assert list(criterion._forward_hooks.values()) == [add_auxiliary_losses]


@pytest.mark.parametrize("dim, inner", [(1, 1), (2, 2), (256, 286), (512, 572), (768, 859)])
def test_low_dimensional_is_as_cheap_as_mscffn(dim, inner):
    assert inner_dim(dim) == inner
    ffn = LowDimensionalFeedForward(FeedForwardSpec(dim, 4 * dim))
    assert ffn.fc1.weight.shape == (inner, dim) and ffn.fc2.weight.shape == (dim, inner)
    assert 2 * inner * dim == pytest.approx(5**0.5 * dim**2, rel=0.005) or dim < 200
