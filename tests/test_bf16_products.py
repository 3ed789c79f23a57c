"""Products in float32 stand for those of hardware with bf16: rounded once, forward and backward."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_plugins.compat import bf16
from tests.batches import TORCH_2

pytestmark = pytest.mark.skipif(not TORCH_2, reason="needs torch 2 or newer")


class OnlyFloat32(TorchDispatchMode):
    """Counts the products that reach torch, none of which may be in bf16."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if re.search("mm|mv|dot_product", func._schema.name):
            self.count += 1
            tensors = [x for x in (*args, *(kwargs or {}).values()) if isinstance(x, torch.Tensor)]
            assert all(x.dtype != torch.bfloat16 for x in tensors), func
        return func(*args, **(kwargs or {}))


@pytest.fixture
def in_float32():
    """The mode, inside one that looks at what it does."""
    with OnlyFloat32() as seen:
        yield bf16.InFloat32()
    assert seen.count > 0


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def rounded_once(exact):
    return exact.bfloat16()


@pytest.mark.parametrize(
    "product, shapes",
    [
        (torch.mm, [(6, 5), (5, 4)]),
        (torch.addmm, [(4,), (6, 5), (5, 4)]),
        (torch.bmm, [(3, 6, 5), (3, 5, 4)]),
        (torch.baddbmm, [(3, 6, 4), (3, 6, 5), (3, 5, 4)]),
        (torch.mv, [(6, 5), (5,)]),
        (torch.matmul, [(2, 3, 6, 5), (2, 3, 5, 4)]),
        (F.linear, [(7, 6, 5), (4, 5), (4,)]),
    ],
)
def test_each_product_is_rounded_once(product, shapes, in_float32):
    operands = [draw(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    with in_float32:
        result = product(*operands)
    exact = product(*(operand.float() for operand in operands))
    assert result.dtype == torch.bfloat16
    assert torch.equal(result, rounded_once(exact))


def test_results_in_a_place_that_is_given(in_float32):
    left, right, total = draw(6, 5), draw(5, 4, seed=1), draw(6, 4, seed=2)
    exact = 0.25 * total.float() + 0.5 * left.float().mm(right.float())
    place = torch.empty_like(total)
    with in_float32:
        returned = torch.addmm(total, left, right, beta=0.25, alpha=0.5, out=place)
        total.addmm_(left, right, beta=0.25, alpha=0.5)
    assert returned is place
    assert torch.equal(place, rounded_once(exact))
    assert torch.equal(total, place)


def test_gradients_are_products_too(in_float32):
    x, weight, seed = draw(6, 5).requires_grad_(), draw(4, 5, seed=1).requires_grad_(), draw(6, 4)
    with in_float32:
        F.linear(x, weight).backward(seed)
    assert torch.equal(x.grad, rounded_once(seed.float().mm(weight.detach().float())))
    assert torch.equal(weight.grad, rounded_once(seed.float().t().mm(x.detach().float())))


def test_fused_attention_and_its_gradients(in_float32):
    exact_in = [draw(2, 3, 7, 8, seed=seed).float().requires_grad_() for seed in range(3)]
    half_in = [x.detach().bfloat16().requires_grad_() for x in exact_in]
    mask = torch.rand(2, 1, 1, 7, generator=torch.Generator().manual_seed(5)) > 0.3
    seed = draw(2, 3, 7, 8, seed=4)
    with in_float32:
        result = F.scaled_dot_product_attention(*half_in, attn_mask=mask)
        result.backward(seed)
    exact = F.scaled_dot_product_attention(*exact_in, attn_mask=mask)
    exact.backward(seed.float())
    assert result.dtype == torch.bfloat16
    assert torch.equal(result, rounded_once(exact))
    for half, full in zip(half_in, exact_in):
        assert half.grad.dtype == torch.bfloat16
        # attention's backward reads the rounded result
        torch.testing.assert_close(half.grad.float(), full.grad, rtol=2e-2, atol=2e-2)


def test_other_types_are_left_alone():
    left, right = torch.randn(3, 4, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    with bf16.InFloat32():
        assert torch.equal(left @ right, torch.mm(left, right))
        assert (left @ right).dtype == torch.float64
        assert torch.equal(draw(3) + draw(3, seed=1), draw(3) + draw(3, seed=1))


def test_training_uses_it_where_bf16_is_slow(
    toy_data, tmp_path, run_train, train_args, monkeypatch
):
    """The loss is that of the machine's own bf16 products, and one line says what happens."""
    words = [toy_data.bin, *train_args, "--cpu", "--bf16", "--max-update", 3, "--no-save"]
    entered = []

    class Noted(bf16.InFloat32):
        def __enter__(self):
            entered.append(True)
            return super().__enter__()

    monkeypatch.setattr(bf16, "InFloat32", Noted)
    losses = []
    for slow in (False, True):
        monkeypatch.setattr(bf16, "are_slow", lambda slow=slow: slow)
        output = run_train(*words, "--save-dir", tmp_path).output
        assert ("products are computed in float32" in output) == slow
        assert bool(entered) == slow
        losses.append([float(x) for x in re.findall(r"train_inner .*? loss=([\d.]+)", output)])
    assert len(losses[0]) == 3
    assert losses[0] == pytest.approx(losses[1], abs=0.02)
