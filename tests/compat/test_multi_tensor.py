"""Updating all parameters at once: fairseq's numbers to the bit, by few operations."""

import pytest
import torch
from fairseq import options, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim.adam import Adam
from fairseq.optim.fp16_optimizer import FP16Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_plugins import compat
from fairseq_plugins.compat import multi_tensor

compat.apply()
SHAPES = [(5, 7), (3,), (1,), (64, 9), (2, 3, 4)]


class Counter(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += "detach" not in str(function) and "zeros" not in str(function)
        return function(*args, **(kwargs or {}))


def parameters(count=1):
    generator = torch.Generator().manual_seed(1)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator))
        for shape in SHAPES
        for _ in range(count)
    ]


def updated(monkeypatch, devices, options, updates=7):
    """Parameters and states after some updates; one parameter has no gradient in some of them."""
    monkeypatch.setattr(multi_tensor, "DEVICES", devices)
    params = parameters()
    optimizer = Adam([{"params": params[:2]}, {"params": params[2:], "lr": 0.3}], **options)
    generator = torch.Generator().manual_seed(2)
    for update in range(updates):
        for number, p in enumerate(params):
            p.grad = torch.randn(p.shape, generator=generator)
            if number == 3 and update % 3 == 0:
                p.grad = None
        if update == 3:  # resumed
            optimizer.load_state_dict(optimizer.state_dict())
        optimizer.step()
    return [*params, *(v for p in params for v in optimizer.state[p].values())]


@pytest.mark.parametrize(
    "options", [{"lr": 0.01}, {"lr": 0.02, "betas": (0.8, 0.98), "eps": 1e-6, "weight_decay": 0.1}]
)
def test_adam_is_fairseqs_to_the_bit(monkeypatch, options):
    plain, listed = (updated(monkeypatch, devices, options) for devices in ((), ("cpu",)))
    assert len(plain) == len(listed) == 4 * len(SHAPES)
    for ours, theirs in zip(listed, plain):
        assert ours == theirs if isinstance(ours, int) else torch.equal(ours, theirs)


def test_nor_does_that_of_a_whole_update_in_bf16(monkeypatch):
    monkeypatch.setattr(multi_tensor, "DEVICES", ("cpu",))
    monkeypatch.setattr(utils, "multi_tensor_total_norm", multi_tensor.total_norm, raising=False)
    monkeypatch.setattr(utils, "multi_tensor_l2norm_available", True)
    words = ["data", "--bf16", "--optimizer", "adam", "--lr", "0.1", "--arch", "transformer"]
    cfg = convert_namespace_to_omegaconf(
        options.parse_args_and_arch(options.get_training_parser(), words)
    )
    counts = []
    for copies in (1, 8):
        params = [torch.nn.Parameter(p.bfloat16()) for p in parameters(copies)]
        optimizer = FP16Optimizer.build_optimizer(cfg, params)
        for _ in range(2):  # the first one allocates
            for p in params:
                p.grad = torch.ones_like(p)
            optimizer._needs_sync = True  # as `backward` does
            with Counter() as counter:
                optimizer.clip_grad_norm(1.0)
                optimizer.step()
                optimizer.zero_grad()
        assert all(p.grad is None for p in params)
        assert not any(p.grad.any() for p in optimizer.fp32_params)
        counts.append(counter.count)
    assert counts[0] == counts[1] <= 25


def test_the_norm_of_all_gradients(monkeypatch):
    gradients = [p.detach() for p in parameters()]
    exact = torch.cat([g.double().flatten() for g in gradients]).norm()
    for devices in ((), ("cpu",)):
        monkeypatch.setattr(multi_tensor, "DEVICES", devices)
        for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 1e-2)):
            found = multi_tensor.total_norm([g.to(dtype) for g in gradients])
            assert found.dtype == torch.float32
            assert abs(found.item() - exact.item()) <= tolerance * exact.item()


def test_clipping_by_that_norm_is_fairseqs(monkeypatch):
    for name in ("multi_tensor_total_norm", "multi_tensor_l2norm_available"):
        monkeypatch.setattr(utils, name, getattr(utils, name, None), raising=False)
    monkeypatch.setattr(multi_tensor, "DEVICES", ("cpu",))
    found = []
    for there in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        params = parameters()
        for p in params:
            p.grad = p.detach().clone()
        found.append([utils.clip_grad_norm_(params, 0.5), *(p.grad for p in params)])
        assert bool(utils.multi_tensor_l2norm_available) == there
    assert utils.multi_tensor_total_norm is multi_tensor.total_norm
    for ours, theirs in zip(*found):
        torch.testing.assert_close(ours, theirs)


def test_copies_between_tensors_of_several_types_are_left_to_fairseq(monkeypatch):
    monkeypatch.setattr(multi_tensor, "DEVICES", ("cpu",))
    here = [torch.ones(2), torch.ones(3)]
    there = [torch.zeros(2, dtype=torch.bfloat16), torch.zeros(3)]
    assert not multi_tensor._copied(list(zip(there, here)))
    assert multi_tensor._copied([(there[0], here[0])]) and there[0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("kind", ["half", "amsgrad", "closure", "sparse"])
def test_what_it_does_not_do_is_left_to_fairseq(monkeypatch, kind):
    monkeypatch.setattr(multi_tensor, "DEVICES", ("cpu",))
    monkeypatch.setattr(multi_tensor, "_adam", lambda *given: pytest.fail("listed"))
    p = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16 if kind == "half" else None))
    optimizer = Adam([p], lr=0.1, amsgrad=kind == "amsgrad")
    p.grad = torch.ones_like(p)
    if kind == "sparse":
        p.grad = p.grad.to_sparse()
        with pytest.raises(RuntimeError, match="sparse"):
            optimizer.step()
        return
    optimizer.step(*([lambda: None] if kind == "closure" else []))
    assert (p < 1).all()
