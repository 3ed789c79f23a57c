"""The Triton kernels against plain torch: on a GPU, or in Triton's interpreter on the CPU."""

import importlib
import os
import sys
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from fairseq.modules.fairseq_dropout import FairseqDropout

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers import activation, fastformer, kernels, packed_pooling, residual
from fairseq_plugins.layers import dropout as dropouts
from fairseq_plugins.layers.additive_attention import WeightedSums
from fairseq_plugins.layers.chunked_products import ChunkedProducts
from fairseq_plugins.layers.compression import FeaturePooling, TimePooling
from fairseq_plugins.layers.fastformer import FastformerOptions
from fairseq_plugins.layers.feed_forwards import MSCFFN, FeedForwardSpec, MSCFFNOptions
from fairseq_plugins.layers.packed import Layout, Windows
from fairseq_plugins.layers.token_mixers import Fastformer, MixerSpec
from tests.batches import half
from tests.tape import Launches

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


def module(name):
    """A kernel's module. Where there is no GPU interpreted, as tests/conftest.py asks Triton to."""
    return importlib.import_module(f"{kernels.__name__}.{name}")


def seeds(p):
    return dropouts.new_seed(torch.empty(0, device=DEVICE), p)


def factors(seed, p, *shape):
    """What dropout in a kernel multiplies by: rows of the last dimension, which it rounds up."""
    draws = module("draws")
    *rows, width = shape
    if seed is None:
        return torch.ones(shape, device=DEVICE)
    padded = -(-width // 8) * 8 if len(rows) == 2 and width > 24 else kernels.block(width)
    kept = draws.mask(seed, p, torch.Size(rows).numel(), padded)[:, :width]
    return kept.reshape(shape) * draws.limit_and_scale(p)[1]


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


def count_calls(monkeypatch, owner, name):
    """The arguments of each call of a kernel, which is called still."""
    calls, apply = [], getattr(owner, name).apply
    counted = mock.Mock(apply=lambda *given: calls.append(given) or apply(*given))
    monkeypatch.setattr(owner, name, counted)
    return calls


def normal(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE, dtype)


@needs_triton
@EVERY_DTYPE
@pytest.mark.parametrize(
    "tokens, size, subspaces, width, p",
    [
        (1, 4, 2, 8, 0.0),
        (70, 12, 4, 36, 0.0),
        (131, 20, 2, 40, 0.3),
        # sizes at which the speed goals time the kernel
        pytest.param(4096, 64, 12, 384, 0.3, marks=on_gpu),
        pytest.param(300, 128, 2, 768, 0.0, marks=on_gpu),
    ],
)
def test_products_kernel(tokens, size, subspaces, width, p, dtype, tolerance):
    pairs, draws = subspaces // 2, module("draws")
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
    seed = seeds(p)
    mask = draws.mask(seed, p, pairs * tokens, width)
    keep = None if mask is None else mask.view(pairs, tokens, width)
    _, scale = draws.limit_and_scale(p)
    compare(
        lambda *given: module("products").KernelProducts.apply(*given, p, seed),
        lambda *given: ChunkedProducts.apply(*given, keep, scale),
        leaves,
        (),
        tolerance,
    )


@needs_triton
@EVERY_DTYPE
@pytest.mark.parametrize(
    "length, bsz, dim, heads, shared, p",
    [
        (1, 2, 8, 2, True, 0.0),
        (37, 3, 24, 3, True, 0.0),
        (21, 2, 40, 5, False, 0.3),
        (20, 2, 130, 17, True, 0.0),
        # as in the speed goals
        pytest.param(2048, 2, 1024, 16, True, 0.3, marks=on_gpu),
        pytest.param(300, 3, 512, 4, True, 0.0, marks=on_gpu),
    ],
)
def test_additive_attention_kernel(
    length, bsz, dim, heads, shared, p, dtype, tolerance, monkeypatch
):
    monkeypatch.setattr(module("additive_attention"), "LEAST", 16)
    x = normal(bsz, length, dim, dtype=dtype).transpose(0, 1)  # not contiguous
    directions = normal(*((heads, dim) if shared else (bsz, heads, dim)), dtype=dtype, seed=1)
    seed = seeds(p)
    keep = factors(seed, p, length, bsz, kernels.block(heads))[:, :, :heads] if p else None
    padding = torch.zeros(bsz, length, dtype=torch.bool, device=DEVICE)
    padding[0, -3:] = length > 3
    padding[-1] = True  # a sentence of padding alone
    kernel = module("additive_attention").KernelSums.apply
    for mask in (None, padding):
        compare(
            lambda *given: kernel(*given, 0.3, p, seed),
            lambda *given: WeightedSums.apply(*given, 0.3, keep),
            [x, directions],
            (mask,),
            tolerance,
        )


@needs_triton
@EVERY_DTYPE
@pytest.mark.parametrize("used, shifts", half([(0,), (1,), (2,), (0, 1), (0, 1, 2)], [True, False]))
@pytest.mark.parametrize(
    "tokens, dim, p", [(1, 8, 0.0), (37, 40, 0.3), pytest.param(4096, 512, 0.1, marks=on_gpu)]
)
def test_residual_kernel(monkeypatch, tokens, dim, p, used, shifts, dtype, tolerance):
    """Whichever of the sum, its LayerNorm and the same again are used."""
    monkeypatch.setattr(module("residual"), "PROGRAMS", 2)  # each has several rows
    leaves = [normal(tokens, 2, dim, dtype=dtype, seed=seed) for seed in (0, 1)]
    leaves += [normal(dim, dtype=dtype, seed=seed) for seed in (2, 3, 4)[not shifts :]]
    seed = seeds(p)
    keep = factors(seed, p, 2 * tokens, kernels.block(dim))[:, :dim].view(tokens, 2, dim)

    def run(compute):
        def chosen(x, residual, *parameters):
            shift = parameters[0] if shifts else None
            # the sum alone has no gradient for LayerNorm's parameters
            norm = [p.detach() if used == (0,) else p for p in parameters[-2:]]
            out = compute(x, shift, residual, *norm)
            unused = sum(p.sum() * 0 for p in parameters)
            return tuple(out[n] + unused for n in used)

        return chosen

    def plain(x, shift, residual, weight, bias):
        x = x if shift is None else x + shift
        summed = residual + (x * keep).to(x)
        norm = F.layer_norm(summed, (dim,), weight, bias, 1e-5)
        return summed, norm, norm

    def fast(*given):
        return module("residual").KernelResidual.apply(*given, 1e-5, p, seed)

    compare(run(fast), run(plain), leaves, (), tolerance)


@needs_triton
@EVERY_DTYPE
@pytest.mark.parametrize(
    "tokens, dim, p", [(1, 8, 0.0), (37, 42, 0.3), pytest.param(4096, 2048, 0.1, marks=on_gpu)]
)
def test_activation_kernel(monkeypatch, tokens, dim, p, dtype, tolerance):
    monkeypatch.setattr(module("activation"), "PROGRAMS", 2)  # each has several rows
    monkeypatch.setattr(module("activation"), "BLOCKS", {"ROWS": 4, "COLS": 16})
    bias, seed = normal(dim, dtype=dtype, seed=1), seeds(p)
    x = normal(tokens, 2, dim, dtype=dtype)
    x += 0.1 * (x + bias).sign()  # no sum so near zero that rounding changes ReLU
    keep = torch.ones(()).to(x)
    if p:
        keep = module("draws").mask(seed, p, 2 * tokens, dim).view(tokens, 2, dim)
        keep = keep * module("draws").limit_and_scale(p)[1]
    compare(
        lambda *given: module("activation").KernelActivation.apply(*given, p, seed),
        lambda x, bias: (torch.relu(x + bias) * keep).to(x),
        [x, bias],
        (),
        tolerance,
    )


@needs_triton
@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["relu", "gelu", "no bias", "other"])
def test_a_feed_forward_network_uses_its_kernel(monkeypatch, kind, p):
    """For ReLU after a plain projection; p = 1 / (1 - 0.3) of what stays is the plain result."""
    taken = count_calls(monkeypatch, module("activation"), "KernelActivation")
    monkeypatch.setattr(kernels, "usable", lambda *given: True)
    torch.manual_seed(1)
    project = torch.nn.Linear(8, 24, bias=kind != "no bias").half().to(DEVICE)
    if kind == "other":
        project = torch.nn.Sequential(project)
    function, dropout = F.gelu if kind == "gelu" else F.relu, FairseqDropout(p, "any")
    x, found = normal(9, 2, 8, dtype=torch.float16), []
    for on_gpu in (False, True):
        monkeypatch.setattr(kernels, "is_on_gpu", lambda x, on_gpu=on_gpu: on_gpu)
        found.append(activation.activate(x, project, function, dropout.train(p > 0)))
    assert len(taken) == (kind == "relu")
    kept = [out != 0 for out in found]
    both = kept[0] & kept[1]
    torch.testing.assert_close(*(out[both] for out in found), atol=2e-3, rtol=1e-2)
    assert both.any() and (p > 0 or torch.equal(*kept) or kind == "gelu")


SENTENCES = (1, 9, 0, 4)


def windows_of(window, lengths=SENTENCES, more=2):
    """Windows over sentences, one of them empty, with rows of the last one beyond its windows."""
    at, pooled = (
        Layout(torch.tensor(starts, device=DEVICE).cumsum(0), sum(starts), 16)
        for starts in (
            (0, *lengths),
            (0, *(-(-n // window) for n in lengths[:-1]), -(-lengths[-1] // window) + more),
        )
    )
    return Windows(at, pooled, window)


@needs_triton
@EVERY_DTYPE
@pytest.mark.parametrize("window, features", [(1, 2), (2, 1), (3, 2), (2, 3)])
@pytest.mark.parametrize(
    "dim, lengths", [(12, SENTENCES), pytest.param(768, (300, 1, 0, 700), marks=on_gpu)]
)
def test_pooling_kernels(window, features, dim, lengths, dtype, tolerance, monkeypatch):
    monkeypatch.setitem(module("pooling").BLOCKS, "tile", 64)
    windows = windows_of(window, lengths, 2 if window > 1 else 0)
    time, average = TimePooling(window), FeaturePooling(dim, features)
    x = normal(sum(lengths), dim, dtype=dtype)
    compare(
        lambda x: module("pooling").KernelPooling.apply(x, windows, features),
        lambda x: average(windows.pool(x, time).unsqueeze(1)).squeeze(1),
        [x],
        (),
        tolerance,
    )
    compare(
        lambda *given: module("pooling").KernelUpsampling.apply(*given, windows, features),
        windows.upsample,
        [x, normal(windows.pooled.rows, dim // features, dtype=dtype, seed=1)],
        (),
        tolerance,
    )


@needs_triton
@pytest.mark.parametrize("kind", ["mean", "linear", "max"])
@pytest.mark.parametrize("usable", [True, False])
def test_pooling_of_packed_sequences_uses_its_kernels(monkeypatch, usable, kind):
    asked, taken = [], count_calls(monkeypatch, module("pooling"), "KernelPooling")
    upsampled = count_calls(monkeypatch, module("pooling"), "KernelUpsampling")
    monkeypatch.setattr(kernels, "usable", lambda x, *given: asked.append(given) or usable)
    windows, x = windows_of(2), normal(sum(SENTENCES), 12)
    pooling = FeaturePooling(12, 3, kind).to(DEVICE)
    found = []
    for on_gpu in (False, True):
        monkeypatch.setattr(kernels, "is_on_gpu", lambda x, on_gpu=on_gpu: on_gpu)
        pooled = packed_pooling.pool(x, windows, TimePooling(2), pooling)
        found.append((pooled, packed_pooling.upsample(x, pooled, windows)))
    together = 3 if kind == "mean" else 1
    assert asked == [("pooling", 12, 2, together), ("pooling", 12, 2, 3)]
    assert len(taken) == len(upsampled) == usable
    for plain, ours in zip(*found):
        torch.testing.assert_close(ours, plain)
    packed_pooling.pool(x, windows, TimePooling(2, "max"), pooling)
    assert len(asked) == 2, "no kernel has maxima"


def test_seeds_of_a_step_are_drawn_at_once():
    x = torch.empty(0)
    torch.manual_seed(1)
    with dropouts.seeds_at_once():
        first = [dropouts.new_seed(x, 0.1) for _ in range(dropouts.SEEDS)]
        state = torch.random.get_rng_state()
        assert dropouts.new_seed(x, 0.0) is None
        assert torch.equal(torch.random.get_rng_state(), state)
        first += [dropouts.new_seed(x, 0.1)]
        assert not torch.equal(torch.random.get_rng_state(), state)
    assert len({int(seed) for seed in first}) == dropouts.SEEDS + 1
    assert all(seed.shape == (1,) and seed.data_ptr() % 16 == 0 for seed in first)
    torch.manual_seed(1)
    with dropouts.seeds_at_once():
        assert torch.equal(dropouts.new_seed(x, 0.1), first[0])
    assert len({int(dropouts.new_seed(x, 0.1)) for _ in range(3)}) == 3


@needs_triton
@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_dropout_in_kernels_has_its_probability(p):
    """Independent of row, column and seed, and the factor belongs to what is drawn."""
    draws = module("draws")
    torch.manual_seed(3)
    one, other = (draws.mask(seeds(p), p, 128, 96).double() for _ in range(2))
    deviation = (p * (1 - p)) ** 0.5
    for mask in (one, other):
        assert abs(mask.mean() - (1 - p)) <= 4 * deviation / mask.numel() ** 0.5
        for axis in (0, 1):
            means = mask.mean(axis)
            assert (means - (1 - p)).abs().max() <= 5 * deviation / mask.size(axis) ** 0.5
    apart = ((one - one.mean()) * (other - other.mean())).mean()
    neighbours = ((one[:, 1:] - one.mean()) * (one[:, :-1] - one.mean())).mean()
    bound = 4 * deviation**2 / one.numel() ** 0.5
    assert abs(apart) <= bound and abs(neighbours) <= bound
    limit, scale = draws.limit_and_scale(p)
    assert scale * limit == (draws.STEPS if p < 1 else 0)
    torch.manual_seed(3)
    assert torch.equal(draws.mask(seeds(p), p, 128, 96).double(), one)


TRIALS = {
    "products": [(24, 6, 18, 0), (24, 6, 18, 1)],
    "residual": [(24, 0), (24, 1)],
    "additive_attention": [(24, 3, 0), (24, 3, 1)],
    "activation": [(24, 0), (24, 1)],
    "pooling": [(24, 1, 2), (24, 2, 3), (24, 4, 1)],
}
LARGE_TRIALS = {
    "products": [(768, 64, 384, 0), (768, 64, 384, 1), (512, 64, 384, 0), (1536, 128, 768, 0)],
    "residual": [(512, 1), (768, 0), (1024, 1)],
    "additive_attention": [(512, 8, 1), (512, 32, 0), (1024, 16, 1), (256, 16, 0)],
    "activation": [(1024, 0), (2048, 1)],
    "pooling": [(512, 2, 2), (512, 3, 1), (768, 4, 3)],
}


def trials(sizes):
    return [(name, each) for name, many in sizes.items() for each in many]


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=on_gpu)])
@pytest.mark.parametrize(
    "name, sizes",
    [*trials(TRIALS), *(pytest.param(*each, marks=on_gpu) for each in trials(LARGE_TRIALS))],
)
def test_kernels_are_exact_and_pass_their_check(name, sizes, dtype, monkeypatch):
    """At most twice the error of the plain form; the random numbers of a training stay."""
    monkeypatch.setattr(kernels, "TOLERANCE", 1e-6)
    monkeypatch.setattr(module("additive_attention"), "LEAST", 8)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    with torch.no_grad():
        assert kernels._check(name, torch.device(DEVICE), dtype, *sizes) == ""
    assert torch.equal(torch.random.get_rng_state(), before)


@needs_triton
@pytest.mark.parametrize(
    "name, fault",
    [
        *((name, "gradient") for name in TRIALS),
        *(("residual", each) for each in ("value", "nan", "exception")),
    ],
)
def test_a_broken_kernel_is_found(monkeypatch, name, fault):
    """In one line, and whatever it does wrong."""
    real = module(name).trials

    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * {"value": 1.1, "nan": float("nan")}.get(fault, 1.0)

        @staticmethod
        def backward(ctx, grad):
            return grad * (0.9 if fault == "gradient" else 1.0)

    def fast(trial, given):
        if fault == "exception":
            raise RuntimeError("first line\nout of resources")
        out = trial.fast(*given)
        return tuple(map(Broken.apply, out)) if isinstance(out, tuple) else Broken.apply(out)

    def broken(draw, *sizes):
        for trial in real(draw, *sizes):
            yield trial._replace(fast=lambda *given, trial=trial: fast(trial, given))

    monkeypatch.setattr(module(name), "trials", broken)
    monkeypatch.setattr(module("additive_attention"), "LEAST", 8)
    told = kernels._check(name, torch.device(DEVICE), torch.float16, *TRIALS[name][0])
    assert told.startswith(name) and "\n" not in told
    assert ("RuntimeError: out of resources" if fault == "exception" else "differs") in told


@needs_triton
def test_gradients_of_additive_attention_stay_exact_beside_a_large_common_vector():
    """What x has in common at all positions cancels in the gradient of the directions."""
    common = 3 * normal(32, seed=2)
    x = (normal(40, 2, 32) + common).half()
    directions = (0.3 * normal(4, 32, seed=1)).half()
    weights = normal(2, 4, 32, seed=3)

    def gradient(function, dtype, *given):
        leaf = directions.to(dtype, copy=True).requires_grad_()
        summary, _ = function(x.to(dtype), leaf, None, 0.3, *given)
        summary.backward(weights.to(dtype))
        return leaf.grad.double()

    exact = gradient(WeightedSums.apply, torch.float64, None)
    kernel = module("additive_attention").KernelSums.apply
    plain, ours = (
        (gradient(function, torch.float16, *given) - exact).norm() / exact.norm()
        for function, *given in ((WeightedSums.apply, None), (kernel, 0.0, None))
    )
    assert ours <= 3 * plain and plain < 1e-2


def build_residual(x):
    norm, dropout = torch.nn.LayerNorm(x.size(-1)).to(x), FairseqDropout(0.5, "any")
    return lambda x: residual.add_and_normalise_by_kernel(x, x, dropout, norm)[1]


def build_products(x):
    ffn = MSCFFN(FeedForwardSpec(64, 256, dropout=0.5), MSCFFNOptions(subspaces=4)).to(x)
    return ffn._products_by_kernel


def build_additive_attention(x):
    directions = torch.ones(4, x.size(1)).to(x)
    return lambda x: fastformer.attend_by_kernel(x.unsqueeze(1), directions, None, 0.1, 0.5)[0]


@needs_triton
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("build", [build_residual, build_products, build_additive_attention])
def test_a_graph_captures_kernels_and_draws_anew(build):
    """Nothing waits for the host, and each replay drops others."""
    x = normal(512, 64, dtype=torch.bfloat16).requires_grad_()
    run = build(x)

    def step():
        out = run(x)
        return out, torch.autograd.grad(out.float().pow(3).sum(), x)[0]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    found = []
    for number in (1, 2, 1):
        torch.cuda.manual_seed(number)
        graph.replay()
        found.append([part.clone() for part in captured])
    for first, second, again in zip(*found):
        assert torch.isfinite(first).all()
        assert torch.equal(first, again) and not torch.equal(first, second)


OBSTACLE = kernels.obstacle.__wrapped__


class OnGpu(torch.Tensor):
    is_cuda = True


@pytest.fixture
def fresh(monkeypatch):
    """A process that has checked nothing yet, on a machine and a GPU that can run all kernels."""
    monkeypatch.setattr(kernels, "_off", set())
    monkeypatch.setattr(kernels, "_problems", {})
    monkeypatch.setattr(kernels, "obstacle", lambda: "")
    monkeypatch.setattr(kernels, "gpu_obstacle", lambda device: "")
    monkeypatch.setattr(kernels, "_check", lambda *given: "")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.delenv(kernels.VARIABLE, raising=False)
    kernels._log_unused.cache_clear()


HALF = torch.zeros(2, dtype=torch.bfloat16).as_subclass(OnGpu)


def test_kernels_are_on_where_they_work(fresh, monkeypatch):
    """Only half precision on a GPU uses them, and 0 turns them off."""
    for value, expected in ((None, True), ("0", False), ("1", True)):
        monkeypatch.delenv(kernels.VARIABLE, raising=False)
        if value:
            monkeypatch.setenv(kernels.VARIABLE, value)
        assert kernels.usable(HALF, "products", 1) == expected
        assert kernels.in_use() == (["products"] if expected else [])
        assert not kernels.usable(HALF.float(), "products", 1)
        assert not kernels.usable(torch.zeros(2, dtype=torch.bfloat16), "products", 1)
    monkeypatch.setenv(kernels.VARIABLE, "yes")
    with pytest.raises(ConfigurationError, match="FAIRSEQ_PLUGINS_TRITON=yes: set it to 0 .* or 1"):
        kernels.usable(HALF, "products", 1)


def test_a_kernel_is_checked_once_for_each_number_type(fresh, monkeypatch):
    checked = []
    monkeypatch.setattr(kernels, "_check", lambda *given: checked.append(given) or "")
    for x in (HALF, HALF, HALF.half(), HALF):
        assert kernels.usable(x, "products", 1)
    assert [given[2] for given in checked] == [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("failing", ["products", "without dropout"])
def test_a_kernel_that_fails_its_check_is_told_once_and_not_used(
    fresh, monkeypatch, caplog, failing
):
    """One process alone may find that without dropout, in validation: training stays as it is."""

    def check(name, *given):
        return "it fails" * (name == failing or failing == "without dropout" and given[-1] == 0)

    monkeypatch.setattr(kernels, "_check", check)
    for _ in range(2):
        assert kernels.usable(HALF, "products", 8, 1) == (failing == "without dropout")
        assert not kernels.usable(HALF, "products", 8, 0)
        assert kernels.usable(HALF, "additive_attention", 8, 1)
    on = ["additive_attention"] if failing == "products" else ["additive_attention", "products"]
    assert sorted(kernels.in_use()) == on
    assert [record.message for record in caplog.records] == [
        "Triton kernels are not used, plain torch is: it fails"
    ]


def test_nothing_is_checked_while_a_graph_is_captured(fresh, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert not kernels.usable(HALF, "products", 1)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert kernels.usable(HALF, "products", 1)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert kernels.usable(HALF, "products", 1)


def test_a_machine_that_cannot_compile_uses_plain_torch(fresh, monkeypatch, tmp_path, caplog):
    obstacle = OBSTACLE
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert obstacle() == "Triton is not installed"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(kernels, "triton_version", lambda: (3, 3))
    assert obstacle() == "they need Triton 3.4 or newer"
    monkeypatch.setattr(kernels, "triton_version", lambda: kernels.TRITON)
    monkeypatch.setattr(kernels.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    monkeypatch.setattr(kernels.shutil, "which", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(kernels, "obstacle", obstacle)
    kernels._problems.clear()
    assert not kernels.usable(HALF, "products", 1)
    (record,) = caplog.records
    assert record.message.endswith("plain torch is: Triton needs a C compiler: install gcc")
    monkeypatch.setenv("CC", "cc")
    assert "needs Python.h: install the headers" in obstacle()
    (tmp_path / "Python.h").touch()
    assert obstacle() == ""


@needs_triton
@pytest.mark.parametrize("usable", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_mscffn_uses_its_kernel(monkeypatch, dropout, usable):
    asked, taken = [], count_calls(monkeypatch, module("products"), "KernelProducts")
    monkeypatch.setattr(kernels, "usable", lambda x, *given: asked.append(given) or usable)
    torch.manual_seed(1)
    options = MSCFFNOptions(subspaces=4, expansion=3)
    ffn = MSCFFN(FeedForwardSpec(24, 96, dropout=dropout), options).half().to(DEVICE)
    x = normal(9, 2, 24, dtype=torch.float16)
    out = ffn(x)
    out.float().pow(2).sum().backward()
    assert asked == ffn.kernels() == [("products", 24, 6, 18, int(dropout > 0))]
    assert len(taken) == usable
    assert torch.isfinite(out).all() and torch.isfinite(ffn.expand_weight.grad).all()
    if not dropout:
        ffn.chunked = False
        torch.testing.assert_close(out, ffn(x), atol=1e-3, rtol=1e-2)


@needs_triton
@pytest.mark.parametrize("usable", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_fastformer_uses_its_kernel(monkeypatch, dropout, usable):
    asked, taken = [], count_calls(monkeypatch, module("additive_attention"), "KernelSums")
    monkeypatch.setattr(kernels, "usable", lambda x, *given: asked.append(given) or usable)
    torch.manual_seed(1)
    mixer = Fastformer(MixerSpec(16, 16, 2, dropout=dropout)).half().to(DEVICE)
    mixer.reassociate = mixer.fold = True
    x = normal(7, 3, 16, dtype=torch.float16)
    padding = torch.zeros(3, 7, dtype=torch.bool, device=DEVICE)
    padding[1, 5:] = True
    monkeypatch.setattr(kernels, "is_on_gpu", lambda x: True)
    out = mixer(x, x, padding, padding)
    assert set(asked) == set(mixer.kernels()) == {("additive_attention", 16, 2, int(dropout > 0))}
    assert len(taken) == 2 * usable
    assert torch.isfinite(out).all()
    if not dropout:
        monkeypatch.setattr(kernels, "is_on_gpu", lambda x: False)
        torch.testing.assert_close(out, mixer(x, x, padding, padding), atol=2e-3, rtol=2e-2)


@needs_triton
@pytest.mark.parametrize("sharing", ["query-value", "none"])
def test_fastformer_uses_its_kernel_on_rows(monkeypatch, sharing):
    """Results and gradients are those of the plain form, beside an empty sentence, too."""
    torch.manual_seed(1)
    mixer = Fastformer(MixerSpec(8, 16, 2), FastformerOptions(sharing=sharing)).to(DEVICE)
    x, memory = normal(13, 8).requires_grad_(), normal(20, 16, seed=1).requires_grad_()
    layouts = [
        Layout(torch.tensor(starts, device=DEVICE), starts[-1], 13)
        for starts in ([0, 1, 1, 8, 13], [0, 5, 5, 7, 20])
    ]
    leaves = [x, memory, *mixer.parameters()]
    taken = count_calls(monkeypatch, module("additive_attention"), "KernelSums")
    monkeypatch.setattr(kernels, "usable", lambda *given: True)
    found = []
    for on_gpu in (False, True):
        monkeypatch.setattr(kernels, "is_on_gpu", lambda x, on_gpu=on_gpu: on_gpu)
        out = mixer.forward_packed(x, layouts[0], memory, layouts[1])
        assert len(taken) == 2 * on_gpu
        found.append([out, *torch.autograd.grad(out.sin().sum(), leaves)])
    for plain, ours in zip(*found):
        torch.testing.assert_close(ours, plain, atol=1e-4, rtol=1e-3)


@needs_triton
@pytest.mark.parametrize("p, training", [(0.0, True), (0.3, True), (0.3, False)])
@pytest.mark.parametrize("last", ["none", "linear", "no bias", "other"])
def test_the_end_of_a_sublayer_uses_its_kernel(monkeypatch, p, training, last):
    torch.manual_seed(1)
    dropout = FairseqDropout(p, "any").train(training)
    norm, project = torch.nn.LayerNorm(24).half().to(DEVICE), None
    if last != "none":
        project = torch.nn.Linear(16, 24, bias=last != "no bias").half().to(DEVICE)
    if last == "other":
        project = torch.nn.Sequential(project)
    before = normal(9, 2, 24, dtype=torch.float16, seed=1)
    x = inner = normal(9, 2, 16 if project else 24, dtype=torch.float16)
    x = x if project is None else project(x)
    asked, taken = [], count_calls(monkeypatch, module("residual"), "KernelResidual")
    monkeypatch.setattr(kernels, "usable", lambda x, *given: asked.append(given) or True)
    monkeypatch.setattr(kernels, "is_on_gpu", lambda x: True)
    torch.manual_seed(3)
    summed, out = residual.add_and_normalise(inner, before, dropout, norm, project)
    drops = p > 0 and training
    assert asked == [residual.kernel_of(24, dropout)] == [("residual", 24, int(drops))]
    assert len(taken) == 1 and (taken[0][-1] is not None) == drops
    assert (taken[0][1] is not None) == (last == "linear"), "the kernel adds the bias"
    torch.testing.assert_close(out, norm(summed), atol=2e-3, rtol=1e-2)
    if drops:
        kept = summed != before
        expected = before + x / 0.7
        torch.testing.assert_close(summed[kept], expected[kept], atol=1e-2, rtol=1e-2)
        other, _ = residual.add_and_normalise(inner, before, dropout, norm, project)
        torch.manual_seed(3)
        again, _ = residual.add_and_normalise(inner, before, dropout, norm, project)
        assert torch.equal(again, summed) and not torch.equal(other, summed)
    else:
        torch.testing.assert_close(summed, before + x, atol=1e-3, rtol=1e-3)


@needs_triton
def test_both_uses_of_a_norm_have_gradients(monkeypatch):
    """That of the next sublayer and that of the next residual meet in the kernel."""
    monkeypatch.setattr(kernels, "usable", lambda *given: True)
    torch.manual_seed(1)
    dropout, layers = FairseqDropout(0.0, "any"), torch.nn.ModuleList()
    for _ in range(3):
        layers.append(torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)]))
    layers.to(DEVICE)
    leaves, found = [normal(5, 8).requires_grad_(), *layers.parameters()], []
    for on_gpu in (False, True):
        monkeypatch.setattr(kernels, "is_on_gpu", lambda x, on_gpu=on_gpu: on_gpu)
        x = leaves[0]
        for project, norm in layers:
            x = residual.add_and_normalise(x.sin(), x, dropout, norm, project)[1]
        with Launches() as launches:
            found.append([x, *torch.autograd.grad(x.cos().sum(), leaves)])
        assert launches.names.count("add") == (1 if on_gpu else 3), "that of the first input"
    for plain, ours in zip(*found):
        torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["cpu", "no bias", "other norm", "other dtype", "pooled"])
def test_the_end_of_a_sublayer_is_plain_elsewhere(monkeypatch, kind):
    monkeypatch.setattr(kernels, "usable", lambda *given: True)
    monkeypatch.setattr(kernels, "is_on_gpu", lambda x: kind != "cpu")
    dropout, x = FairseqDropout(0.0, "any"), torch.randn(3, 8)
    before = x.double() if kind == "other dtype" else x
    norm = torch.nn.LayerNorm(8).to(before)
    if kind == "no bias":
        norm = torch.nn.LayerNorm(8, bias=False)
    if kind == "other norm":
        norm = torch.nn.Identity()
    if kind == "pooled":
        before = x[:1]
    project = torch.nn.Linear(8, 8).to(x)
    summed, out = residual.add_and_normalise(x, before, dropout, norm, project)
    assert torch.equal(summed, before + project(x)) and torch.equal(out, norm(summed))


@pytest.mark.slow
@needs_triton
def test_kernels_compile_for_gpus(run_process):
    """Compiles for a GeForce of 2020 and an H100 without a GPU, within their shared memory."""
    environment = dict(os.environ, TRITON_INTERPRET="0")
    result = run_process([sys.executable, "-m", "tests.layers.compile_kernels"], env=environment)
    assert result.returncode == 0, result.stdout
    lines = [line.split() for line in result.stdout.splitlines() if line.startswith("sm_")]
    assert len(lines) == 50
    assert all(int(line[-1]) <= int(line[-2]) for line in lines), lines
