"""The Triton kernels against plain torch: on a GPU, or in Triton's interpreter on the CPU."""

import importlib
import os

import pytest
import torch

from fairseq_plugins.modules import kernels
from fairseq_plugins.modules.feed_forward.chunked_cross import ChunkedCross
from fairseq_plugins.modules.token_mixers.pooling import Pool

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def why_not():
    """Why the kernels cannot be run here, or nothing."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    version = importlib.import_module("triton").__version__
    if DEVICE == "cpu" and tuple(map(int, version.split(".")[:2])) < (3, 1):
        return f"the interpreter of Triton {version} lacks what the kernels need: 3.1 or newer"
    return ""


needs_triton = pytest.mark.skipif(bool(why_not()), reason=why_not())


@pytest.fixture(scope="module")
def interpreted():
    """Kernels that the interpreter runs where there is no GPU: it is chosen at their import."""
    before = os.environ.get("TRITON_INTERPRET")
    if DEVICE == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    try:
        names = ("cross", "pooling")
        yield {name: importlib.import_module(kernels.__name__ + "." + name) for name in names}
    finally:
        if before is None:
            os.environ.pop("TRITON_INTERPRET", None)
        else:
            os.environ["TRITON_INTERPRET"] = before


def compare(fast, plain, leaves, others, tolerance):
    """Values and the gradient of every leaf, relative to the largest entry above one."""
    outputs = []
    for function in (fast, plain):
        given = [leaf.clone().requires_grad_() for leaf in leaves]
        out = function(*given, *others)
        out = out if isinstance(out, tuple) else (out,)
        generator = torch.Generator().manual_seed(4)
        weights = [torch.randn(o.shape, generator=generator).to(o) for o in out]
        outputs.append(list(out) + list(torch.autograd.grad(out, given, weights)))
    for number, (found, expected) in enumerate(zip(*outputs)):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        worst = (found.double() - expected.double()).abs().max()
        assert worst <= tolerance * max(1.0, expected.abs().max().item()), (number, worst)


def normal(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE, dtype)


@needs_triton
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.float16, 1e-2)])
@pytest.mark.parametrize(
    "tokens, size, subspaces, width, dropout",
    [(1, 4, 2, 8, 0.0), (70, 12, 4, 36, 0.0), (131, 20, 2, 40, 0.3)],
)
def test_cross_kernel(interpreted, tokens, size, subspaces, width, dropout, dtype, tolerance):
    pairs = subspaces // 2
    shapes = [
        (tokens, subspaces * size),
        (subspaces, size, width),
        (subspaces, 1, width),
        (pairs, width, size),
        (pairs, 1, size),
    ]
    leaves = [normal(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]
    # no gate so near zero that rounding opens or closes it
    leaves[1] *= 0.1
    leaves[2] += 3 * leaves[2].sign()
    keep = normal(pairs, tokens, width) > -0.5 if dropout else None
    compare(
        interpreted["cross"].KernelCross.apply,
        ChunkedCross.apply,
        leaves,
        (keep, 1 / (1 - dropout)),
        tolerance,
    )


@needs_triton
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.float16, 1e-2)])
@pytest.mark.parametrize(
    "length, bsz, dim, heads, shared, dropout",
    [(1, 2, 8, 2, True, False), (70, 3, 24, 3, True, False), (41, 2, 40, 5, False, True)],
)
def test_pooling_kernel(
    interpreted, length, bsz, dim, heads, shared, dropout, dtype, tolerance, monkeypatch
):
    module = interpreted["pooling"]
    monkeypatch.setattr(module, "PART", 32)
    x = normal(bsz, length, dim, dtype=dtype).transpose(0, 1)  # not contiguous
    directions = normal(*((heads, dim) if shared else (bsz, heads, dim)), dtype=dtype, seed=1)
    keep = torch.ones(length, bsz, heads, device=DEVICE)
    if dropout:
        keep = (normal(length, bsz, heads, seed=2) > -0.5) / 0.7
    padding = torch.zeros(bsz, length, dtype=torch.bool, device=DEVICE)
    padding[0, -3:] = length > 3
    padding[-1] = True  # a sentence of padding alone
    for mask in (None, padding):
        given = (mask, 0.3, keep)
        compare(module.KernelPool.apply, Pool.apply, [x, directions], given, tolerance)


def test_kernels_run_where_they_are_asked_for(monkeypatch):
    """In half precision on a GPU, and not by themselves as long as they are not measured there."""
    monkeypatch.setenv("FAIRSEQ_PLUGINS_TRITON", "1")
    assert not kernels.usable(torch.zeros(2, dtype=torch.bfloat16))
    if DEVICE == "cuda" and not why_not():
        half = torch.zeros(2, dtype=torch.bfloat16, device="cuda")
        assert kernels.usable(half) and not kernels.usable(half.float())
        monkeypatch.delenv("FAIRSEQ_PLUGINS_TRITON")
        assert not kernels.usable(half)
