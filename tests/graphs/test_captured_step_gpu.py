"""--cuda-graphs on a GPU: what `Tape` cannot show. In bfloat16, with flash attention."""

import contextlib
import functools
import json
import os
import re

import pytest
import torch
from fairseq.utils import move_to_cuda

from fairseq_plugins.data.packed_batches import Spec, pack
from fairseq_plugins.graphs.captured_step import CapturedStep
from fairseq_plugins.graphs.cuda_graph import CudaGraph, Pool
from fairseq_plugins.graphs.flat_optimizer import FlatOptimizer
from fairseq_plugins.layers.dropout import FastDropout
from fairseq_plugins.layers.packed import Layout, has_flash, packed_attention
from fairseq_plugins.losses import LabelSmoothedCrossEntropyFused
from fairseq_plugins.models.packed import store_projections_together
from tests.batches import PAD, TASK, assert_close
from tests.graphs.optimizers import in_half
from tests.graphs.test_captured_step import ARCHITECTURES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
SIZES = "--encoder-embed-dim 32 --decoder-embed-dim 32".split()  # heads of 16, pooled of 8
LENGTHS = ((5, 1, 7), (9, 2, 3), (40, 33, 37), (1, 1, 8), (31, 40, 12))  # two shapes


# torch reads it once, at the first product of a process
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture
def deterministic():
    """New memory is then filled with NaN, too."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def make_step(build):
    def make(name="ftc", *words, graph=CudaGraph):
        arch, options = ARCHITECTURES[name]
        own = ["--mscffn-subspaces", "4"] if arch != "transformer" else []
        model = build(*options.split(), *SIZES, *own, *words, arch=arch, plain=True)
        model = model.cuda().bfloat16().train()
        store_projections_together(model)
        new_graph = functools.partial(graph, Pool())
        flat = FlatOptimizer(in_half(list(model.parameters())), new_graph)
        window = getattr(model.encoder, "time_window", 1)
        criterion = LabelSmoothedCrossEntropyFused(TASK, False, 0.1)
        return CapturedStep(model, criterion, flat, Spec.make(PAD, 64, window, 2))

    return make


def compute(step, rows, most):
    """The loss and the gradient, by at most so many captured graphs."""
    step.most = most
    step.flat.zero_grad()
    loss = step(rows)[0].clone()
    return loss, step.flat.gradient.clone()


def test_flash_attention_reads_and_writes_every_row():
    """Also with empty sentences, and with memory that held NaN before."""
    from fairseq.modules import MultiheadAttention

    torch.manual_seed(1)
    lengths, memory_lengths = [3, 1, 16, 4, 0, 0, 0, 0], [5, 16, 2, 9, 0, 0, 0, 0]
    layouts = [
        Layout(torch.tensor([0, *n]).cumsum(0).cuda(), sum(n), 16)
        for n in (lengths, memory_lengths)
    ]
    plain = MultiheadAttention(32, 2, dropout=0.0).cuda().double()
    half = MultiheadAttention(32, 2, dropout=0.0).cuda().bfloat16()
    half.load_state_dict(plain.state_dict())
    plain.load_state_dict(half.state_dict())
    for causal, at, memory_at in ((True, layouts[0], layouts[0]), (False, *layouts)):
        x, memory = (torch.randn(n.rows, 32, device="cuda").bfloat16() for n in (at, memory_at))
        found = []
        for attention in (plain, half):
            dtype = attention.q_proj.weight.dtype
            inputs = [y.to(dtype).requires_grad_() for y in (x, memory)]
            if causal:
                inputs[1] = inputs[0]
            assert has_flash(inputs[0].view(-1, 2, 16)) == (dtype == torch.bfloat16)
            held = torch.full((2**24,), torch.nan, device="cuda")
            del held
            out, _ = packed_attention(attention, inputs[0], at, inputs[1], memory_at, causal)
            held = torch.full((2**24,), torch.nan, device="cuda")
            del held
            gradients = torch.autograd.grad(out.float().pow(2).sum(), inputs[: 2 - causal])
            found.append([out, *gradients])
        for exact, rounded in zip(*found):
            assert_close(rounded.double(), exact, tolerance=0.05)


@pytest.mark.parametrize("name", ["ftc", "ftc, max and min", "mscffn", "fastformer", "fairseq's"])
def test_replays_equal_eager_steps_to_the_bit(make_step, make_sample, deterministic, name):
    """Shapes take turns, and share one pool of memory."""
    step = make_step(name)
    batches = [pack(make_sample(n, n[::-1], seed=i), step.spec) for i, n in enumerate(LENGTHS)]
    expected = [compute(step, rows, 0) for rows in batches]
    for _ in range(2):
        for rows, (loss, gradient) in zip(batches, expected):
            found = compute(step, rows, 64)
            assert torch.isfinite(gradient).all() and torch.isfinite(loss)
            assert torch.equal(found[0], loss) and torch.equal(found[1], gradient)
    assert len(step.captures) == len({rows.shape for rows in batches}) == 2
    assert len({capture.graph.graph.pool() for capture in step.captures.values()}) == 1


def test_rows_in_bfloat16_are_close_to_float64(make_step, make_sample):
    step = make_step()
    rows = pack(make_sample((5, 1, 7)), step.spec)
    loss, gradient = compute(step, rows, 64)
    model = step.model.double()
    sample = move_to_cuda(make_sample((5, 1, 7)))
    loss64, _, _ = LabelSmoothedCrossEntropyFused(TASK, False, 0.1)(model, sample)
    exact = torch.autograd.grad(loss64, list(model.parameters()))
    exact = torch.cat([g.flatten() for g in exact])
    assert float(loss) == pytest.approx(float(loss64), rel=0.02)
    assert float((gradient - exact).norm() / exact.norm()) < 0.05


def test_dropout_of_replays_is_that_of_eager_steps(make_step, make_sample):
    step = make_step("ftc", "--dropout", "0.3", "--attention-dropout", "0.1")
    assert any(isinstance(m, FastDropout) and m.p == 0.3 for m in step.model.modules())
    rows = pack(make_sample((40, 33, 37)), step.spec)
    torch.manual_seed(1)
    eager = torch.stack([compute(step, rows, 0)[0] for _ in range(60)])
    replayed = torch.stack([compute(step, rows, 64)[0] for _ in range(60)])
    assert replayed.unique().numel() > 50
    error = ((eager.var() + replayed.var()) / 60).sqrt()
    assert abs(float(eager.mean() - replayed.mean())) < 4 * float(error)
    assert float(replayed.std() / eager.std()) == pytest.approx(1, abs=0.5)
    # capture changes no random number: a resumed training may capture later
    step.captures.clear()
    torch.manual_seed(5)
    first = compute(step, rows, 64)[0]
    torch.manual_seed(5)
    assert torch.equal(compute(step, rows, 64)[0], first)


def test_out_of_memory_while_capturing_falls_back(make_step, make_sample, caplog):
    class Starved(CudaGraph):
        @contextlib.contextmanager
        def capturing(self):
            torch.cuda.set_per_process_memory_fraction(1e-6)
            try:
                with super().capturing():
                    yield
            finally:
                torch.cuda.set_per_process_memory_fraction(1.0)

    step = make_step(graph=Starved)
    first, second = (pack(make_sample(n), step.spec) for n in LENGTHS[1:3])
    expected = [compute(step, rows, 0)[0] for rows in (first, second)]
    step.most = 64
    stream = torch.cuda.current_stream()
    for rows, loss in zip((first, second, first), (*expected, expected[0])):
        step.flat.zero_grad()
        assert float(step(rows)[0]) == pytest.approx(float(loss), rel=1e-2)
        assert torch.isfinite(step.flat.gradient).all() and step.flat.gradient.any()
    assert not step.captures and step.most == 0 and torch.cuda.current_stream() == stream
    assert "capture stopped after 0 shapes of batches" in caplog.text
    # the device still captures
    step.new_graph, step.most = functools.partial(CudaGraph, Pool()), 64
    assert float(compute(step, first, 64)[0]) == pytest.approx(float(expected[0]), rel=1e-2)
    assert len(step.captures) == 1


# --- whole trainings ---

UPDATES = 8
HALF = {"bf16": "--bf16", "fp16": "--fp16 --fp16-init-scale 4"}
TRAINED = {"ftc": "--arch transformer_ftc --encoder-blocks 1,1", "fairseq's": "--arch transformer"}


@pytest.fixture
def train(toy_data, run_train, train_args, tmp_path):
    """train(words, updates, folder) -> what the log says of each update."""

    def run(words, updates=UPDATES, folder="run"):
        options = "--log-format json --distributed-world-size 1 --clip-norm 1"
        options += " --criterion label_smoothed_cross_entropy_fused"
        output = run_train(
            *(toy_data.bin, *train_args, *SIZES, *options.split(), *words.split()),
            *("--max-update", updates, "--save-dir", tmp_path / folder),
        ).output
        assert "has no effect" not in output
        lines = re.findall(r"train_inner \| (\{.*\})", output)
        return [json.loads(line) for line in lines]

    return run


def losses(log):
    return [float(line["loss"]) for line in log]


@pytest.mark.parametrize("half", HALF)
@pytest.mark.parametrize("model", TRAINED)
def test_a_training_has_the_losses_of_an_eager_one(train, model, half):
    words = f"{TRAINED[model]} {HALF[half]} --dropout 0 --update-freq 2"
    expected = train(words, folder="eager")
    found = train(words + " --cuda-graphs")
    assert all(float(line["replayed"]) == 100 for line in found)
    assert losses(found) == pytest.approx(losses(expected), rel=0.02)
    for name in ("wpb", "bsz", "lr"):
        assert [line[name] for line in found] == [line[name] for line in expected]
    norms = [[float(line["gnorm"]) for line in log] for log in (found, expected)]
    assert norms[0] == pytest.approx(norms[1], rel=0.1)


@pytest.mark.parametrize("half", HALF)
def test_a_resumed_training_goes_on(train, half, deterministic):
    words = f"{TRAINED['ftc']} {HALF[half]} --dropout 0.1 --cuda-graphs"
    whole = losses(train(words))
    first = losses(train(words, UPDATES // 2, "resumed"))
    rest = losses(train(words, UPDATES, "resumed"))
    assert first + rest == whole
