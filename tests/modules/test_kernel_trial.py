"""The choice between a kernel and plain torch, with functions that stand for them."""

import pytest
import torch

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.modules import kernels
from fairseq_plugins.modules.kernels import trial

SIZES = ("a test",)


@pytest.fixture
def try_(monkeypatch):
    """Runs a trial of sin against itself, timed as told, without results of earlier ones."""
    monkeypatch.delenv(trial.VARIABLE, raising=False)
    monkeypatch.setattr(trial, "_chosen", {})

    def run(kernel=torch.sin, kernel_time=1.0, calls=None, training=False):
        def make():
            if calls is not None:
                calls.append(kernel)
            return kernels.Trial("a test", kernel, torch.sin, [x])

        def milliseconds(function, given):
            return kernel_time if function is kernel else 2.0

        x = torch.linspace(-3, 3, 100).bfloat16()
        with monkeypatch.context() as patch:
            patch.setattr(trial, "_milliseconds", milliseconds)
            return kernels.chosen(x, SIZES, training, make)

    return run


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.sin(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


def fails(x):
    raise RuntimeError("PTX\nand much more")


def test_the_faster_way_is_chosen(try_, caplog):
    caplog.set_level("INFO", trial.logger.name)
    assert try_(lambda x: torch.sin(x), 1.0)
    assert "a test: Triton kernel 1.000 ms, plain torch 2.000 ms" in caplog.text
    trial._chosen.clear()
    assert not try_(lambda x: torch.sin(x), 3.0)


def test_one_trial_for_each_size_and_kind_of_pass(try_, monkeypatch):
    calls = []
    for _ in range(2):
        assert try_(lambda x: torch.sin(x), calls=calls)
    assert len(calls) == 1
    with torch.no_grad():
        assert try_(lambda x: torch.sin(x), calls=calls)
    assert len(calls) == 2
    monkeypatch.setitem(globals(), "SIZES", ("others",))
    assert try_(lambda x: torch.sin(x), calls=calls)
    assert len(calls) == 3


@pytest.mark.parametrize(
    "kernel, reason",
    [
        (fails, "(PTX)"),
        (torch.cos, "(number 0 of its results is wrong)"),
        (WrongGradient.apply, "(number 1 of its results is wrong)"),
        (lambda x: torch.sin(x) + 0.02, "(number 0 of its results is wrong)"),
        (lambda x: torch.sin(x) * float("nan"), "(number 0 of its results is wrong)"),
    ],
)
def test_a_kernel_that_fails_is_not_chosen(try_, caplog, kernel, reason):
    assert not try_(kernel)
    assert reason in caplog.text and "FAIRSEQ_PLUGINS_TRITON=0" in caplog.text
    caplog.clear()
    assert not try_(kernel) and not caplog.text  # said once


def test_a_gradient_counts_only_where_there_may_be_gradients(try_):
    with torch.no_grad():
        assert try_(WrongGradient.apply)
        assert not try_(WrongGradient.apply, training=True)


def test_checkpointed_activations_go_the_same_way_twice(try_):
    calls = []
    with torch.no_grad():
        assert try_(lambda x: torch.sin(x), calls=calls, training=True)
    assert try_(lambda x: torch.sin(x), calls=calls, training=True)
    assert len(calls) == 1


def test_the_variable_decides_without_a_trial(try_, monkeypatch):
    monkeypatch.setenv(trial.VARIABLE, "1")
    assert try_(fails)
    monkeypatch.setenv(trial.VARIABLE, "0")
    assert not try_(lambda x: torch.sin(x))
    monkeypatch.setenv(trial.VARIABLE, "yes")
    with pytest.raises(ConfigurationError, match="FAIRSEQ_PLUGINS_TRITON=yes: set it to 1"):
        try_()


def test_a_trial_leaves_what_it_was_given(try_):
    """Gradients and the random stream; autocast is off, so that float64 stays what it is."""
    weight = torch.ones(3, 3, requires_grad=True)
    seen = []

    def product(x, y):
        seen.append((x @ y).dtype)
        return x @ y

    given = torch.rand(3, 3)
    state = torch.get_rng_state()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        trial_of = kernels.Trial("a test", product, product, [given, weight])
        kernels.chosen(weight, SIZES, True, lambda: trial_of)
        assert (given @ weight).dtype == torch.bfloat16  # on again
    assert set(seen) == {torch.float32, torch.float64}
    assert weight.grad is None and not given.requires_grad
    assert torch.equal(state, torch.get_rng_state())
