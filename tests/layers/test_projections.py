"""Projections as one product equal the single ones."""

import pytest
import torch
from torch import nn

from fairseq_plugins.layers import kernels, projections
from tests.layers import test_kernels
from tests.layers.test_kernels import DEVICE, EVERY_DTYPE, needs_triton, on_gpu

SIZES = (6, 6, 10)


def build(bias=True, dtype=torch.float64):
    torch.manual_seed(1)
    layers = [nn.Linear(5, size, bias=bias) for size in SIZES]
    return [layer.to(DEVICE, dtype) for layer in layers]


def run(project, layers, x):
    """Results, and the gradients of x and of every parameter."""
    x = x.clone().requires_grad_()
    out = project(x, layers)
    parameters = [p for layer in layers for p in layer.parameters()]
    loss = sum((part * (number + 1)).sin().sum() for number, part in enumerate(out))
    return [*out, *torch.autograd.grad(loss, [x, *parameters])]


def one_by_one(x, layers):
    return [layer(x) for layer in layers]


@pytest.mark.gpu
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("stored", ["apart", "together"])
def test_one_product_equals_single_projections(bias, stored):
    layers, x = build(bias), torch.randn(7, 3, 5, dtype=torch.float64).to(DEVICE)
    if stored == "together":
        before = [p.clone() for layer in layers for p in layer.parameters()]
        projections.store_together(layers)
        after = [p for layer in layers for p in layer.parameters()]
        assert all(torch.equal(p, q) for p, q in zip(before, after))
    for some in (layers, layers[1:], layers[::2]):
        weight, _ = projections.concatenate(some)
        copied = weight.data_ptr() != some[0].weight.data_ptr()
        assert copied == (stored == "apart" or some == layers[::2])
        assert torch.equal(weight, torch.cat([layer.weight for layer in some]))
    found, expected = run(projections._one_product, layers, x), run(one_by_one, layers, x)
    for ours, theirs in zip(found, expected):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    assert len({part.untyped_storage().data_ptr() for part in found[: len(SIZES)]}) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_one_product_is_exact_in_half_precision(dtype):
    layers, x = build(dtype=dtype), torch.randn(7, 3, 5).to(DEVICE, dtype)
    exact = run(one_by_one, [layer.double() for layer in build(dtype=dtype)], x.double())
    plain, ours = run(one_by_one, layers, x), run(projections._one_product, layers, x)
    for wanted, theirs, found in zip(exact, plain, ours):
        error = (theirs.double() - wanted).abs().max()
        assert (found.double() - wanted).abs().max() <= 2 * error + 1e-9


@needs_triton
@EVERY_DTYPE
@pytest.mark.parametrize("rows, size", [(1, 8), (37, 24), pytest.param(4096, 512, marks=on_gpu)])
def test_the_kernel_joins_the_gradients_of_queries_keys_and_values(
    monkeypatch, rows, size, dtype, tolerance
):
    monkeypatch.setattr(test_kernels.module("projections"), "PROGRAMS", 12)  # of several rows
    monkeypatch.setattr(test_kernels.module("projections"), "BLOCKS", {"ROWS": 4, "COLS": 16})
    normal = test_kernels.normal
    leaves = [normal(rows, 2, 16, dtype=dtype), normal(3 * size, 16, dtype=dtype, seed=1)]
    test_kernels.compare(
        test_kernels.module("projections").KernelProjections.apply,
        lambda *given: nn.functional.linear(*given).chunk(3, dim=-1),
        [*leaves, normal(3 * size, dtype=dtype, seed=2)],
        (),
        tolerance,
    )


@needs_triton
@pytest.mark.parametrize("kind", ["equal", "two", "no bias", "sizes", "dtype", "refused"])
def test_three_equal_projections_with_biases_use_the_kernel(monkeypatch, kind):
    own, asked = test_kernels.module("projections"), []
    taken = test_kernels.count_calls(monkeypatch, own, "KernelProjections")
    monkeypatch.setattr(
        kernels, "usable", lambda x, *given: asked.append(given) or kind != "refused"
    )
    monkeypatch.setattr(kernels, "is_on_gpu", lambda x: True)
    sizes = (6, 6, 10 if kind == "sizes" else 6)[: 2 if kind == "two" else 3]
    torch.manual_seed(1)
    layers = [nn.Linear(5, size, bias=kind != "no bias").to(DEVICE) for size in sizes]
    x = torch.randn(7, 3, 5, device=DEVICE)
    if kind == "dtype":
        with torch.autocast(DEVICE, torch.bfloat16):
            projections._one_product(x.bfloat16(), layers)
    else:
        found, expected = run(projections._one_product, layers, x), run(one_by_one, layers, x)
        for ours, theirs in zip(found, expected):
            torch.testing.assert_close(ours, theirs)
    assert len(taken) == (kind == "equal")
    assert asked == [("projections", 6)] * (kind in ("equal", "refused"))


@pytest.mark.parametrize("kind", ["cpu", "hook", "other", "gpu"])
def test_projections_that_are_more_than_a_product_are_called(monkeypatch, kind):
    together = []
    monkeypatch.setattr(projections, "_one_product", lambda *given: together.append(1))
    layers = build()
    if kind == "hook":  # as quantisation noise has
        layers[1].register_forward_pre_hook(lambda module, given: None)
    if kind == "other":
        layers[1] = nn.Sequential(layers[1])
    device = "cpu" if kind == "cpu" else "meta"
    layers = [layer.to(device) for layer in layers]
    projections.project_together(torch.ones(2, 5, device=device, dtype=torch.float64), layers)
    assert bool(together) == (kind == "gpu")
