"""The captured optimizer against fairseq's own, with `Tape` for the graph."""

import copy
import math

import pytest
import torch

from fairseq_plugins.graphs import flat_optimizer
from fairseq_plugins.graphs.cuda_graph import graph_class
from fairseq_plugins.graphs.flat_optimizer import FlatOptimizer
from tests.batches import assert_close
from tests.graphs.optimizers import Inner, in_half
from tests.tape import Tape

SIZES = ((16, 3), (1,), (8,))
ADAM = {"betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 1e-2}
# type, loss scale, tolerance
TYPES = {
    "fp32": (torch.float32, 0.0, 1e-5),
    "bf16": (torch.bfloat16, 0.0, 1e-5),
    "fp16": (torch.float16, 2.0**20, 1e-5),
    "fp16, one master": (torch.float16, 2.0**20, 1e-5),
}


class Trained:
    """The parameters of a model, and an optimizer that gets the same gradients as others."""

    def __init__(self, name, flat=True, new_graph=Tape, device="cpu", **options):
        self.dtype, scale, _ = TYPES[name]
        random = torch.Generator().manual_seed(1)
        self.parameters = [
            torch.nn.Parameter(torch.randn(size, generator=random).to(device, self.dtype))
            for size in SIZES
        ]
        if self.dtype.itemsize == 2:
            self.optimizer = in_half(self.parameters, "one" in name, scale, **options or ADAM)
        else:
            self.optimizer = Inner(self.parameters, **options or ADAM)
        if flat:
            self.optimizer = FlatOptimizer(self.optimizer, new_graph)

    def set_gradient(self, update, first=None):
        """As captured steps, or fairseq's backward, do; `first` replaces the first number."""
        random = torch.Generator().manual_seed(update)
        scale = getattr(self.optimizer, "scaler", None)
        scale = scale.loss_scale if scale is not None else 1.0
        gradients = [
            (torch.randn(size, generator=random) * scale * 10.0 ** (-update % 5)).to(
                self.parameters[0].device, self.dtype
            )
            for size in SIZES
        ]
        if first is not None:
            gradients[0][0, 0] = first
        if isinstance(self.optimizer, FlatOptimizer):
            self.optimizer.gradient.copy_(torch.cat([g.flatten() for g in gradients]))
            self.optimizer.empty = False
        else:
            for p, g in zip(self.parameters, gradients):
                p.grad = g
            self.optimizer._needs_sync = True

    def update(self, number, first=None):
        """What fairseq's trainer calls; returns the norm, or the message of an overflow."""
        self.optimizer.set_lr(0.01 * min(number + 1, 10) / max(number, 10) ** 0.5)
        self.optimizer.zero_grad()
        self.set_gradient(number, first)
        self.optimizer.multiply_grads(1 / 7)
        try:
            norm = self.optimizer.clip_grad_norm(0.5)
        except OverflowError as error:
            return str(error)
        self.optimizer.step()
        return norm


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(
    "captures, device",
    [
        (True, "cpu"),
        (False, "cpu"),
        pytest.param(
            *(True, "cuda"),
            marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="")],
        ),
    ],
)
def test_100_updates_are_fairseqs(name, captures, device):
    """With a schedule, clipping, overflows and a checkpoint of the other one."""
    tolerance = TYPES[name][-1]
    new_graph = Tape if device == "cpu" else graph_class(torch.device(device))
    plain, flat = Trained(name, False, device=device), Trained(name, True, new_graph, device)
    flat.optimizer.captures = captures
    overflows = 0
    for number in range(100):
        expected, found = plain.update(number), flat.update(number)
        if isinstance(expected, str):
            assert found == expected
            overflows += 1
        else:
            assert float(found) == pytest.approx(float(expected), rel=tolerance)
        for p, q in zip(plain.optimizer.params, flat.optimizer.params):
            assert_close(q.data, p.data, f"parameter, update {number}", tolerance)
        if number == 50:
            flat.optimizer.load_state_dict(copy.deepcopy(plain.optimizer.state_dict()))
    assert (overflows > 3) == name.startswith("fp16") and overflows < 50
    assert (flat.optimizer.graph is not None) == captures
    if captures and device == "cpu":
        assert len(flat.optimizer.graph.kernels) <= 16, flat.optimizer.graph.kernels
    one, other = (x.optimizer.state_dict() for x in (plain, flat))
    assert one.keys() == other.keys() and one["param_groups"] == other["param_groups"]
    assert one.get("loss_scale") == other.get("loss_scale")
    for before, after in zip(one["state"].values(), other["state"].values(), strict=True):
        assert before.keys() == after.keys()
        assert before["step"] == after["step"] == 100 - overflows
        assert_close(after["exp_avg_sq"], before["exp_avg_sq"], "moment", tolerance)
    halves = torch.cat([p.detach().flatten() for p in flat.parameters])
    assert torch.equal(halves, flat.optimizer.values.to(halves.dtype))


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_after_a_norm_that_is_not_finite_nothing_changes(name):
    """Until the host has read it; then the updates may be repeated."""
    trained, other = Trained(name), Trained(name)
    for each in (trained, other):
        each.update(0)
    flat = trained.optimizer
    before = [x.clone() for x in (flat.values, *flat.moments, *trained.parameters)]
    flat.deferred = True
    norms = [trained.update(number, math.inf if number == 1 else None) for number in (1, 2, 3)]
    assert [float(norm) for norm in norms] == [0, 0, 0]
    flat.read()
    assert norms[0] == math.inf and all(0 < norm < math.inf for norm in norms[1:])
    after = (flat.values, *flat.moments, *trained.parameters)
    assert all(torch.equal(x, y) for x, y in zip(before, after))
    flat.undo(3)
    for each in (trained, other):
        each.update(4)
    assert torch.equal(other.optimizer.values, flat.values)


@pytest.mark.parametrize("flat", [True, False])
def test_the_smallest_scale_ends_a_training(flat):
    """As in fairseq, after some overflows."""
    trained = Trained("fp16", flat)
    trained.optimizer.scaler.loss_scale = 2.0**-11
    assert trained.update(0, math.nan) == "setting loss scale to: 0.000244140625"
    assert trained.update(1, math.nan) == "setting loss scale to: 0.0001220703125"
    with pytest.raises(FloatingPointError, match=r"Minimum loss scale reached \(0.0001\)"):
        trained.update(2, math.nan)


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("kind", ["AMSGrad", "SGD", "other numbers of updates"])
def test_what_no_flat_adam_computes_is_left_to_fairseqs(name, kind):
    """Also Adam, if a checkpoint lacked the state of a parameter."""
    options = {"AMSGrad": {"amsgrad": True}, "SGD": {"kind": torch.optim.SGD, "momentum": 0.9}}
    plain, flat = (Trained(name, is_flat, **options.get(kind, {})) for is_flat in (False, True))
    if kind not in options:
        for each in (plain, flat):
            first = next(iter(each.optimizer.params))
            moments = {name: torch.ones_like(first) for name in flat_optimizer.MOMENTS}
            each.optimizer.optimizer.state[first] = {"step": 7, **moments}
    for number in range(20):
        expected, found = plain.update(number), flat.update(number)
        assert isinstance(expected, str) == isinstance(found, str)
        for p, q in zip(plain.optimizer.params, flat.optimizer.params):
            assert_close(q.data, p.data, f"parameter, update {number}", 1e-5)
    assert flat.optimizer.graph is None


def test_a_failed_capture_of_the_optimizer_is_told(caplog, monkeypatch):
    trained, other = Trained("bf16"), Trained("bf16")
    other.optimizer.captures = False

    def fail(tape):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(Tape, "capturing", fail)
    for each in (trained, other):
        for number in range(2):
            each.update(number)
    assert "the optimizer is not captured: CUDA out of memory" in caplog.text
    assert torch.equal(trained.optimizer.values, other.optimizer.values)
