"""Batches made of sentences and taken apart again, and the comparison with the ground truth."""

import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

SIDES = ("left", "right")
PAD, END = 1, 2  # as in fairseq's dictionaries
TASK = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: PAD, eos=lambda: END))


def half(*choices: Sequence) -> list[tuple]:
    """Half of all combinations, which have every combination of all choices but any one."""
    places = itertools.product(*(range(len(choice)) for choice in choices))
    return [found for at, found in zip(places, itertools.product(*choices)) if sum(at) % 2 == 0]


def make_sentences(lengths: Sequence[int], channels: int, seed: int = 0) -> list[Tensor]:
    """Random `T x C` sentences in float64 that collect gradients."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(length, channels, generator=generator, dtype=torch.float64).requires_grad_()
        for length in lengths
    ]


def padding_mask(lengths: Sequence[int], side: str = "right", width: int | None = None) -> Tensor:
    """`B x T`, True at padding; T is the longest length unless given."""
    width = max(lengths) if width is None else width
    mask = torch.zeros(len(lengths), width, dtype=torch.bool)
    for row, length in zip(mask, lengths):
        padding = width - length
        if side == "left":
            row[:padding] = True
        else:
            row[length:] = True
    return mask


def pad(sentences: Sequence[Tensor], mask: Tensor, fill: float = 0.0) -> Tensor:
    """`T x B x C` with the sentences at the real positions of mask and `fill` at the others."""
    columns = []
    for sentence, row in zip(sentences, mask):
        rows = iter(sentence)
        garbage = sentence.new_full(sentence.shape[1:], fill)
        columns.append(torch.stack([garbage if padded else next(rows) for padded in row]))
    return torch.stack(columns, dim=1)


def unpad(x: Tensor, mask: Tensor) -> list[Tensor]:
    """The real rows of each sentence of `T x B x C`."""
    return [x[~row, b] for b, row in enumerate(mask)]


def assert_close(
    actual: Tensor, expected: Tensor, what: str = "", tolerance: float = 1e-10
) -> None:
    """Equal up to rounding, relative to the largest entry; NaN and inf are never equal."""
    assert actual.shape == expected.shape, (
        f"{what}: {tuple(actual.shape)} is not {tuple(expected.shape)}"
    )
    assert torch.isfinite(expected).all(), f"{what}: the expected value is not finite"
    scale = max(1.0, expected.abs().max().item()) if expected.numel() else 1.0
    worst = (actual - expected).abs().max().item() if expected.numel() else 0.0
    assert worst <= tolerance * scale, f"{what}: off by {worst:.3g} of {scale:.3g}"


def value_and_gradients(
    compute: Callable[[], list[Tensor]], leaves: dict[str, Tensor], seed: int = 9
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Outputs, and the gradient of a random weighting of them with respect to every leaf."""
    outputs = compute()
    generator = torch.Generator().manual_seed(seed)
    loss = sum(
        (output * torch.randn(output.shape, generator=generator, dtype=torch.float64)).sum()
        for output in outputs
    )
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    gradients = {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), found)
    }
    return outputs, gradients


Computed = tuple[list[Tensor], dict[str, Tensor]]


def assert_same(found: Computed, expected: Computed, tolerance: float = 1e-10) -> None:
    """Same outputs, and the same gradient for every leaf, of two `value_and_gradients`."""
    for number, (output, true) in enumerate(zip(found[0], expected[0], strict=True)):
        assert_close(output, true, f"output {number}", tolerance)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in found[1].items():
        assert_close(gradient, expected[1][name], "gradient of " + name, tolerance)


def assert_same_function(
    actual: Callable[[], list[Tensor]],
    expected: Callable[[], list[Tensor]],
    leaves: dict[str, Tensor],
    tolerance: float = 1e-10,
) -> None:
    """Same outputs, and the same gradient for every leaf."""
    computed = (value_and_gradients(compute, leaves) for compute in (actual, expected))
    assert_same(*computed, tolerance)


def leaves_of(module: torch.nn.Module, **sentences: list[Tensor]) -> dict[str, Tensor]:
    """All leaves with a gradient: the parameters of a module and its input sentences."""
    leaves = dict(module.named_parameters())
    for name, group in sentences.items():
        leaves.update({f"{name}[{i}]": tensor for i, tensor in enumerate(group)})
    return leaves


def randomize(module: torch.nn.Module, seed: int = 5) -> torch.nn.Module:
    """Float64, in evaluation mode; no parameter is 0 or 1, which would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.3 * noise)
    return module


def run_or_skip(compute: Callable):
    """Run; skip where this release of torch has no such product in half precision on the CPU."""
    try:
        return compute()
    except RuntimeError as error:
        if "not implemented for" in str(error):
            pytest.skip(str(error))
        raise


def make_criterion(kind: Callable, **options: Any) -> Any:
    return kind(TASK, **{"sentence_avg": False, "label_smoothing": 0.1, **options})


Trained = tuple[Tensor, int, dict[str, Any], dict[str, Tensor]]


def run_criterion(
    criterion: Callable, model: Any, sample: dict[str, Any], seed: int = 1
) -> Trained:
    """Loss, sample size and logs of a batch, and the gradient of each parameter that has one."""
    model.zero_grad()
    torch.manual_seed(seed)
    loss, size, log = criterion(model, sample)
    if loss.requires_grad:
        loss.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    return loss.detach(), size, log, gradients


def assert_same_training(found: Trained, expected: Trained, tolerance: float) -> None:
    """Loss, sample size, logs and, ten times less exactly, the gradients of two `run_criterion`."""
    assert_close(found[0].double(), expected[0].double(), "loss", tolerance)
    assert found[1] == expected[1]
    logs = [{name: float(value) for name, value in each[2].items()} for each in (found, expected)]
    assert logs[0] == pytest.approx(logs[1], rel=tolerance, abs=1e-9)
    assert found[3].keys() == expected[3].keys()
    for name, gradient in expected[3].items():
        assert_close(found[3][name].double(), gradient.double(), name, 10 * tolerance)
