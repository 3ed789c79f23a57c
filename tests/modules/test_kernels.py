"""The Triton kernels against plain torch: on a GPU, or in Triton's interpreter on the CPU."""

import importlib
import multiprocessing
import os
import sys

import pytest
import torch
import torch.distributed as dist

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.modules import kernels
from fairseq_plugins.modules.feed_forward import MSCFFN, FeedForwardSpec, MSCFFNOptions, mscffn
from fairseq_plugins.modules.feed_forward.chunked_products import ChunkedProducts
from fairseq_plugins.modules.token_mixers import summaries
from fairseq_plugins.modules.token_mixers.summaries import Summaries

pytestmark = pytest.mark.gpu
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def why_not():
    """Why the kernels cannot run here; empty if they can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    # older interpreters do not go with today's NumPy
    needed = kernels.TRITON if DEVICE == "cuda" else (3, 7)
    if kernels.triton_version() < needed:
        return "Triton {}.{} or newer is needed here".format(*needed)
    return ""


needs_triton = pytest.mark.skipif(bool(why_not()), reason=why_not())


no_interpreter = pytest.mark.skipif(
    DEVICE == "cpu", reason="Triton's interpreter multiplies no bfloat16"
)
interpreted = pytest.mark.skipif(
    DEVICE == "cuda", reason="models run no kernel in float32, which may not fit a GPU"
)
on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="too large for Triton's interpreter")
EVERY_DTYPE = pytest.mark.parametrize(
    "dtype, tolerance",
    [
        pytest.param(torch.float32, 1e-5, marks=interpreted),
        (torch.float16, 1e-2),
        pytest.param(torch.bfloat16, 5e-2, marks=no_interpreter),
    ],
)


@pytest.fixture(scope="module")
def kernel_modules():
    """Where there is no GPU interpreted, as tests/conftest.py asks Triton to do."""
    names = ("products", "summaries")
    return {name: importlib.import_module(kernels.__name__ + "." + name) for name in names}


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
@EVERY_DTYPE
@pytest.mark.parametrize(
    "tokens, size, subspaces, width, dropout",
    [
        (1, 4, 2, 8, 0.0),
        (70, 12, 4, 36, 0.0),
        (131, 20, 2, 40, 0.3),
        # sizes at which the speed goals time the kernel
        pytest.param(4096, 64, 12, 384, 0.3, marks=on_gpu),
        pytest.param(300, 128, 2, 768, 0.0, marks=on_gpu),
    ],
)
def test_products_kernel(kernel_modules, tokens, size, subspaces, width, dropout, dtype, tolerance):
    pairs = subspaces // 2
    shapes = [
        (tokens, subspaces * size),
        (subspaces, size, width),
        (subspaces, 1, width),
        (pairs, width, size),
        (pairs, 1, size),
    ]
    leaves = [normal(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]
    # no gate so near zero that rounding opens or closes it: products have a deviation of 0.4
    leaves[1] *= 0.4 * size**-0.5
    leaves[2] += 3 * leaves[2].sign()
    keep = normal(pairs, tokens, width) > -0.5 if dropout else None
    compare(
        kernel_modules["products"].KernelProducts.apply,
        ChunkedProducts.apply,
        leaves,
        (keep, 1 / (1 - dropout)),
        tolerance,
    )


@needs_triton
@EVERY_DTYPE
@pytest.mark.parametrize(
    "length, bsz, dim, heads, shared, dropout",
    [
        (1, 2, 8, 2, True, False),
        (70, 3, 24, 3, True, False),
        (41, 2, 40, 5, False, True),
        # as in the speed goals
        pytest.param(2048, 2, 1024, 16, True, True, marks=on_gpu),
        pytest.param(300, 3, 512, 4, True, False, marks=on_gpu),
    ],
)
def test_summaries_kernel(
    kernel_modules, length, bsz, dim, heads, shared, dropout, dtype, tolerance, monkeypatch
):
    module = kernel_modules["summaries"]
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
        compare(module.KernelSummaries.apply, Summaries.apply, [x, directions], given, tolerance)


@needs_triton
def test_gradients_of_summaries_stay_exact_beside_a_large_common_vector(kernel_modules):
    """What x has in common at all positions cancels in the gradient of the directions."""
    common = 3 * normal(32, seed=2)
    x = (normal(40, 2, 32) + common).half()
    directions = (0.3 * normal(4, 32, seed=1)).half()
    keep = torch.ones(40, 2, 4, device=DEVICE)
    weights = normal(2, 4, 32, seed=3)

    def gradient(function, dtype):
        given = directions.to(dtype, copy=True).requires_grad_()
        summary, _ = function(x.to(dtype), given, None, 0.3, keep)
        summary.backward(weights.to(dtype))
        return given.grad.double()

    exact = gradient(Summaries.apply, torch.float64)
    plain, ours = (
        (gradient(function, torch.float16) - exact).norm() / exact.norm()
        for function in (Summaries.apply, kernel_modules["summaries"].KernelSummaries.apply)
    )
    assert ours <= 3 * plain and plain < 1e-2


class OnGpu(torch.Tensor):
    is_cuda = True


def test_kernels_are_off_by_default(monkeypatch):
    """When switched on, only half precision on a GPU uses them."""
    half = torch.zeros(2, dtype=torch.bfloat16).as_subclass(OnGpu)
    monkeypatch.setattr(kernels, "check_triton", lambda: None)
    monkeypatch.setattr(kernels, "check_gpu", lambda device: None)
    for value, expected in ((None, False), ("0", False), ("1", True)):
        monkeypatch.delenv(kernels.VARIABLE, raising=False)
        if value:
            monkeypatch.setenv(kernels.VARIABLE, value)
        assert kernels.usable(half) == expected
        assert not kernels.usable(half.float())
        assert not kernels.usable(torch.zeros(2, dtype=torch.bfloat16))
    monkeypatch.setenv(kernels.VARIABLE, "yes")
    with pytest.raises(ConfigurationError, match="FAIRSEQ_PLUGINS_TRITON=yes: set it to 1 .* or 0"):
        kernels.usable(half)


def agree(rank, folder, values):
    """One of two processes: what it is told about the choices of both."""
    os.environ[kernels.VARIABLE] = values[rank]
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    try:
        kernels.check_processes_agree()
        told = ""
    except ConfigurationError as error:
        told = str(error)
    (folder / str(rank)).write_text(told)
    dist.barrier()


@pytest.mark.skipif(torch.cuda.is_available(), reason="processes are forked")
@pytest.mark.parametrize("values", ["11", "00", "10", "1x"])
def test_processes_that_choose_differently_are_refused(tmp_path, values):
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=agree, args=(rank, tmp_path, values)) for rank in (0, 1)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    told = {(tmp_path / str(rank)).read_text() for rank in (0, 1)}
    expected = {
        "10": f"{kernels.VARIABLE}=1 is not set in every process (not in rank 1)",
        "1x": f"rank 1: {kernels.VARIABLE}=x: set it to 1",
    }.get(values, "")
    (message,) = told
    assert message.startswith(expected) and bool(message) == bool(expected)


@pytest.mark.parametrize("version, reason", [(None, "not installed"), ((3, 3), "3.4 or newer")])
def test_a_machine_without_a_suitable_triton_is_refused(monkeypatch, version, reason):
    """An error, not a fallback: another process of the training may have Triton."""
    monkeypatch.setenv(kernels.VARIABLE, "1")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: version)
    monkeypatch.setattr(kernels, "triton_version", lambda: version)
    monkeypatch.setattr(kernels, "check_triton", kernels.check_triton.__wrapped__)
    with pytest.raises(ConfigurationError, match=reason):
        kernels.usable(torch.zeros(2, dtype=torch.float16).as_subclass(OnGpu))


def test_a_machine_that_cannot_compile_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(kernels, "triton_version", lambda: kernels.TRITON)
    monkeypatch.setattr(kernels.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    monkeypatch.setattr(kernels.shutil, "which", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(ConfigurationError, match="needs a C compiler: install gcc; set it to 0"):
        kernels.check_triton.__wrapped__()
    monkeypatch.setenv("CC", "cc")
    with pytest.raises(ConfigurationError, match="needs Python.h: install the headers"):
        kernels.check_triton.__wrapped__()
    (tmp_path / "Python.h").touch()
    kernels.check_triton.__wrapped__()


def test_a_gpu_that_is_too_old_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    with pytest.raises(ConfigurationError, match="capability 8.0, and Tesla T4 has 7.5; set it to"):
        kernels.check_gpu.__wrapped__(torch.device("cuda", 0))


@pytest.mark.parametrize(
    "dim, heads, room",
    [(1024, 16, True), (1000, 9, True), (512, 32, True), (1024, 17, False), (2048, 1, False)],
)
def test_summaries_that_have_no_room_do_without_the_kernel(monkeypatch, dim, heads, room):
    asked = []
    monkeypatch.setattr(kernels, "usable", lambda x: asked.append(1) and False)
    x, directions = torch.ones(2, 1, dim), torch.ones(heads, dim)
    summaries.summarize(x, directions, None, 1.0, torch.ones(2, 1, heads))
    assert bool(asked) == room


def build_mscffn(dropout):
    torch.manual_seed(1)
    spec = FeedForwardSpec(24, 96, dropout=dropout)
    return MSCFFN(spec, MSCFFNOptions(subspaces=4, expansion=3)).half()


@needs_triton
@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_mscffn_uses_the_kernel_when_switched_on(kernel_modules, monkeypatch, dropout, asked):
    monkeypatch.setattr(kernels, "usable", lambda x: asked)
    kernel = kernel_modules["products"].KernelProducts.apply
    taken = []
    monkeypatch.setattr(mscffn, "_kernel", lambda *given: taken.append(1) or kernel(*given))
    ffn, x = build_mscffn(dropout).to(DEVICE), normal(9, 2, 24, dtype=torch.float16)
    out = ffn(x)
    out.float().pow(2).sum().backward()
    assert len(taken) == asked
    assert torch.isfinite(out).all() and torch.isfinite(ffn.expand_weight.grad).all()
    if not dropout:
        ffn.chunked = False
        torch.testing.assert_close(out, ffn(x), atol=1e-3, rtol=1e-2)


@needs_triton
@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_summaries_uses_the_kernel_when_switched_on(kernel_modules, monkeypatch, shared, asked):
    monkeypatch.setattr(kernels, "usable", lambda x: asked)
    kernel = kernel_modules["summaries"].KernelSummaries.apply
    taken = []
    monkeypatch.setattr(summaries, "_kernel", lambda *given: taken.append(1) or kernel(*given))
    x = normal(7, 3, 8, dtype=torch.float16)
    directions = normal(*((2, 8) if shared else (3, 2, 8)), dtype=torch.float16, seed=1)
    padding = torch.zeros(3, 7, dtype=torch.bool, device=DEVICE)
    padding[1, 5:] = True
    given = (x, directions, padding, 0.3, torch.ones(7, 3, 2, device=DEVICE))
    found = summaries.summarize(*given)
    assert len(taken) == asked
    for ours, theirs in zip(found, Summaries.apply(*given)):
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-2)


@pytest.mark.slow
@needs_triton
def test_kernels_compile_for_gpus(run_process):
    """Compiles for a GeForce of 2020 and an H100 without a GPU, within their shared memory."""
    environment = dict(os.environ, TRITON_INTERPRET="0")
    result = run_process([sys.executable, "-m", "tests.modules.compile_kernels"], env=environment)
    assert result.returncode == 0, result.stdout
    lines = [line.split() for line in result.stdout.splitlines() if line.startswith("sm_")]
    assert len(lines) == 30
    assert all(int(line[-1]) <= int(line[-2]) for line in lines), lines
