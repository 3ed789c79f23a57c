"""`--amp`: torch's mixed precision, here with torch's scaler for CPUs."""

import copy

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim import AMPOptimizer, MemoryEfficientFP16Optimizer, amp_optimizer
from omegaconf import OmegaConf

from fairseq_plugins import compat

compat.apply()

ADAM = {"_name": "adam", "lr": [0.1], "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-8}
OPTIMIZERS = {
    "sgd": {"_name": "sgd", "lr": [0.1], "momentum": 0.9, "weight_decay": 0.0},
    "adam": {**ADAM, "weight_decay": 0.01, "use_old_adam": True, "fp16_adam_stats": False},
}


@pytest.fixture
def make(monkeypatch):
    """make(optimizer, **options of the scale): an AMPOptimizer and its parameter.

    fairseq begins with fp16_init_scale, and with a window doubles it after amp_init_scale updates.
    """
    monkeypatch.setattr(
        amp_optimizer.torch.cuda.amp,  # compat's, see deprecated_calls.py
        "GradScaler",
        lambda **options: torch.amp.GradScaler("cpu", **options),
    )

    def make(name, **options):
        common = {"fp16_init_scale": 128, "amp_init_scale": 3, "amp_scale_window": None}
        common = {**common, "min_loss_scale": 1e-4, "tpu": False, "bf16": False, **options}
        cfg = OmegaConf.create(
            {
                "optimizer": OPTIMIZERS[name],
                "common": common,
                "distributed_training": {"zero_sharding": "none"},
            }
        )
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 6))
        return AMPOptimizer.build_optimizer(cfg, [weight]), weight

    return make


def update(optimizer, weight, number):
    """fairseq's order: backward, clip, step. The gradient of an update is infinite in the third."""
    optimizer.zero_grad()
    gradient = 1e-5 * torch.randn(6, generator=torch.Generator().manual_seed(number))
    optimizer.backward((weight * (gradient / 0 if number == 3 else gradient)).sum())
    optimizer.clip_grad_norm(0)
    optimizer.step()


@pytest.mark.parametrize("scale", [128, 65536])
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_an_update_is_that_of_float32(make, name, scale):
    optimizer, weight = make(name, fp16_init_scale=scale)
    reference, expected = make(name)
    for number in range(1, 6):
        update(optimizer, weight, number)
        if number == 3:  # its gradient is no number: it is left out
            assert optimizer.scaler.get_scale() == scale / 2
            continue
        gradient = 1e-5 * torch.randn(6, generator=torch.Generator().manual_seed(number))
        expected.grad = gradient
        reference.fp32_optimizer.step()
        torch.testing.assert_close(weight, expected, rtol=0, atol=1e-7)
    assert (weight - torch.linspace(-1, 1, 6)).abs().min() > 0


def test_resuming_keeps_the_scale(make):
    whole, expected = make("adam", amp_scale_window=1)
    for number in (1, 2, 4, 5):
        update(whole, expected, number)
    state = copy.deepcopy(whole.state_dict())
    assert state["loss_scale"] == 256

    resumed, weight = make("adam", amp_scale_window=1)
    weight.data.copy_(expected.data)
    resumed.load_state_dict(state)
    for number in (6, 7):
        for optimizer, parameter in ((whole, expected), (resumed, weight)):
            update(optimizer, parameter, number)
        assert torch.equal(weight, expected)
    assert resumed.scaler.get_scale() == whole.scaler.get_scale() == 512


def test_a_state_of_fairseqs_begins_with_the_first_scale(make):
    optimizer, weight = make("adam")
    update(optimizer, weight, 1)
    state = {k: v for k, v in optimizer.state_dict().items() if k in ("state", "param_groups")}
    other, _ = make("adam", fp16_init_scale=32)
    other.load_state_dict(state)
    assert other.scaler.get_scale() == 32


def test_every_counter_of_fp16_is_restored():
    words = "data --memory-efficient-fp16 --optimizer adam --lr 0.1 --arch transformer".split()
    parsed = options.parse_args_and_arch(options.get_training_parser(), words)
    cfg = convert_namespace_to_omegaconf(parsed)
    first, resumed = (
        MemoryEfficientFP16Optimizer.build_optimizer(
            cfg, [torch.nn.Parameter(torch.ones(2).half())]
        )
        for _ in range(2)
    )
    for number, name in enumerate(vars(first.scaler)):
        if name.startswith("_"):
            setattr(first.scaler, name, 3 + number)
    resumed.load_state_dict(first.state_dict())
    assert vars(resumed.scaler) == vars(first.scaler)
