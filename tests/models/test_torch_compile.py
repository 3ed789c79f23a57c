"""Layers compiled by torch against the same layers as they run otherwise."""

import shutil

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.models import efficient_transformer
from fairseq_plugins.modules import compilation
from fairseq_plugins.modules import rows as rows_module
from tests.batches import assert_close

FTC = "--encoder-blocks 1,1"
OPTIONS = {
    "ftc": FTC,
    "fastformer and mscffn, pre-norm": FTC
    + " --encoder-token-mixer fastformer --encoder-ffn mscffn --decoder-ffn mscffn"
    + " --encoder-normalize-before --decoder-normalize-before",
    "like fairseq's transformer": "--encoder-blocks 1 --time-window 1 --feature-window 1",
}
LENGTHS = ((5, 3, 7), (3, 9, 2, 4), (4, 4), (2, 3, 4, 5, 6, 7, 8, 9), (6, 6, 5), (11, 8))


@pytest.fixture
def compile_with(monkeypatch):
    """compile_with(backend): what is compiled from now on, and so far, is known to the result."""
    compile_function = torch.compile

    def use(backend):
        def compile_so(function, **options):
            return compile_function(function, **{**options, "backend": backend})

        monkeypatch.setattr(torch, "compile", compile_so)
        return torch._dynamo.utils.counters

    def forget():
        compilation.compiled.cache_clear()
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()

    forget()
    yield use
    forget()


@pytest.fixture
def count(compile_with):
    """Captured and run as captured: needs no compiler of C++, and takes a part of the time."""
    return compile_with("eager")


def compute(model, sample, seed=3):
    """Features at real positions, and the gradient of a weighting of them."""
    model.train().zero_grad()
    torch.manual_seed(seed)
    features = model(**sample["net_input"], features_only=True)[0]
    found = features[sample["net_input"]["prev_output_tokens"].ne(1)]
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(5)).type_as(found)
    (found * weights).sum().backward()
    return found, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_same(model, plain, sample, tolerance=1e-6):
    found, gradients = compute(model, sample)
    expected, true_gradients = compute(plain, sample)
    assert_close(found, expected, "features", tolerance)
    assert sorted(gradients) == sorted(true_gradients)
    for name, gradient in true_gradients.items():
        assert_close(gradients[name], gradient, name, 10 * tolerance)


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_same_function_whole_layers_and_few_versions(build, make_sample, count, name):
    words = [*OPTIONS[name].split(), "--training-path", "fast"]
    model, plain = build(*words, "--torch-compile"), build(*words)
    for lengths in LENGTHS[:4]:
        assert_same(model, plain, make_sample(lengths))
    assert not count["graph_break"]
    versions = count["stats"]["unique_graphs"]
    assert 0 < versions < compilation.VERSIONS
    for lengths in LENGTHS[4:]:
        assert_same(model, plain, make_sample(lengths))
    assert count["stats"]["unique_graphs"] <= versions + 3  # without padding, or of odd length


class Operations(TorchDispatchMode):
    """Notes the names of operations."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.__name__.split(".")[0])
        return function(*args, **(kwargs or {}))


def test_what_is_captured_changes_no_result_in_place(monkeypatch):
    """torch 2.11 drops the gradient of a custom function's result that was changed in place."""
    rows, index = torch.randn(5, 3), torch.arange(5) + 1
    found = []
    for captured in (True, False):
        monkeypatch.setattr(rows_module, "is_captured", lambda captured=captured: captured)
        with Operations() as called:
            found.append(rows_module.Put.apply(rows, index, 8))
        assert any(name.endswith("_") for name in called.names) != captured, called.names
    assert torch.equal(*found)


def test_only_training_compiles(build, make_sample, count):
    model = build(*FTC.split(), "--torch-compile").eval()
    model(**make_sample(LENGTHS[0])["net_input"])
    assert not count["stats"]
    compute(model, make_sample(LENGTHS[0]))
    assert count["stats"]["unique_graphs"] > 0


def test_bf16_on_a_cpu_is_not_compiled_and_said_so(build, make_sample, count, caplog):
    compilation._warn_half_precision.cache_clear()
    compute(build(*FTC.split(), "--torch-compile").bfloat16(), make_sample(LENGTHS[0]))
    assert not count["stats"]
    said = [record.getMessage() for record in caplog.records]
    (message,) = [line for line in said if "--torch-compile" in line]
    assert message.startswith("--torch-compile: layers in torch.bfloat16 on a CPU run without")


def test_dropout_follows_the_seed(build, make_sample, count):
    model = build(*FTC.split(), "--torch-compile", "--dropout", "0.3", "--attention-dropout", "0.2")
    one, same, other = (compute(model, make_sample(LENGTHS[0]), seed)[0] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert not count["graph_break"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_same_function_in_machine_code(build, make_sample, compile_with, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # a cache would compile nothing
    monkeypatch.setenv("TORCHINDUCTOR_DEBUG_COMPILE", "1")  # g++ -O0, where torch knows it
    count = compile_with("inductor")
    words = FTC.split()
    # in float32: compiled in float64, attention on a CPU fails in torch 2.11
    model, plain = (build(*words, *more).float() for more in (["--torch-compile"], []))
    assert_same(model, plain, make_sample(LENGTHS[0]), tolerance=1e-5)
    assert count["stats"]["unique_graphs"] > 0


def test_a_machine_that_cannot_compile_is_an_error(build, make_sample, compile_with):
    def fails(graph, inputs):
        raise RuntimeError("no compiler found\nand more")

    compile_with(fails)
    model = build(*FTC.split(), "--torch-compile")
    with pytest.raises(ConfigurationError, match=r"--torch-compile.*no compiler found\).*leave"):
        compute(model, make_sample(LENGTHS[0]))


@pytest.mark.parametrize(
    "words, message",
    [
        ("--training-path plain", "--torch-compile compiles the layers of --training-path fast"),
        ("--checkpoint-activations", "which --checkpoint-activations does too"),
        ("--quant-noise-scalar 0.1", "--torch-compile does not support --quant-noise-scalar"),
    ],
)
def test_options_that_cannot_be_compiled_are_refused(build, words, message, monkeypatch):
    if "scalar" in words:  # which is refused without a GPU, before anything else
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ConfigurationError, match=message):
        build(*FTC.split(), "--torch-compile", *words.split())


def test_layers_wrapped_for_sharding_are_refused(build, monkeypatch):
    monkeypatch.setattr(efficient_transformer, "has_standard_layers", lambda decoder: False)
    with pytest.raises(ConfigurationError, match="another --ddp-backend than fully_sharded"):
        build("--torch-compile")
