"""--cuda-graphs without a GPU: `Tape` stands for the graph. Whole trainings, and their parts."""

import contextlib
import functools
import json
import re
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary, LanguagePairDataset, ListDataset
from fairseq.modules import MultiheadAttention
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from torch.nn import functional

from fairseq_plugins.data.packed_batches import Collate, PackedBatch, Spec, pack, plan
from fairseq_plugins.graphs import captured_step
from fairseq_plugins.graphs.captured_step import CapturedStep
from fairseq_plugins.graphs.flat_optimizer import FlatOptimizer
from fairseq_plugins.layers.dropout import FastDropout
from fairseq_plugins.layers.packed import Layout, largest_flash_head, packed_attention
from fairseq_plugins.layers.token_mixers import TOKEN_MIXERS
from fairseq_plugins.losses import (
    LabelSmoothedCrossEntropyFused,
    LabelSmoothedCrossEntropyRDrop,
    LabelSmoothedCrossEntropySimCut,
)
from tests.batches import PAD, TASK, assert_close
from tests.graphs.optimizers import Inner, in_half
from tests.tape import Launches, Tape

ARCHITECTURES = {
    "ftc": ("transformer_ftc", "--encoder-blocks 1,1"),
    "ftc, max and min": (
        "transformer_ftc",
        "--encoder-blocks 1,1 --time-pooling max --feature-pooling min",
    ),
    "mscffn": ("transformer_ftc", "--encoder-blocks 1,1 --encoder-ffn mscffn --decoder-ffn mscffn"),
    "fairseq's": ("transformer", ""),
    "fairseq's, its criterion": ("transformer", ""),
    "ftc, R-Drop": ("transformer_ftc", "--encoder-blocks 1,1"),
    "ftc, SimCut": ("transformer_ftc", "--encoder-blocks 1,1"),
    **{
        mixer: ("transformer_ftc", f"--encoder-blocks 1,1 --encoder-token-mixer {mixer}")
        for mixer in TOKEN_MIXERS
        if mixer not in ("softmax", "linformer")  # the last one takes no packed sequences
    },
}
COPIES = "--encoder-blocks 1,1 --share-all-embeddings --copy-attention --copy-next"
CRITERIONS = {  # of these; of the others the fused one
    "fairseq's, its criterion": LabelSmoothedCrossEntropyCriterion,
    "ftc, R-Drop": LabelSmoothedCrossEntropyRDrop,
    "ftc, SimCut": functools.partial(LabelSmoothedCrossEntropySimCut, simcut_p=0.0),
}


def make_step(model, criterion, spec):
    parameters = list(model.train().parameters())
    return CapturedStep(model, criterion, FlatOptimizer(Inner(parameters), Tape), spec)


def eager(model, criterion, sample):
    parameters = list(model.parameters())
    loss, size, log = criterion(model, sample)
    gradients = torch.autograd.grad(loss, parameters)
    return loss.detach(), size, log, torch.cat([g.flatten() for g in gradients])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_replays_of_other_batches_equal_eager_steps(build, make_sample, name):
    """Nothing in forward and backward waits or has a size that depends on data."""
    arch, words = ARCHITECTURES[name]
    assert_replays_are_eager(name, build(*words.split(), arch=arch), make_sample)


def test_replays_of_a_model_that_copies(build_joined, make_sample, monkeypatch):
    monkeypatch.setattr("fairseq_plugins.data.packed_batches.LARGE", 0)
    assert_replays_are_eager("copying", build_joined(*COPIES.split()), make_sample, padded=True)


def assert_replays_are_eager(name, model, make_sample, padded=False):
    criterion = CRITERIONS.get(name, LabelSmoothedCrossEntropyFused)(TASK, False, 0.1)
    # fairseq's cross-attention normalises in float32
    tolerance = 1e-6 if "fairseq" in name else 1e-10
    samples = [
        make_sample(lengths, targets, seed=seed)
        for seed, (lengths, targets) in enumerate(
            [((5, 1, 7), (7, 1, 5)), ((9, 2, 3), (3, 2, 9)), ((1, 1, 8), (2, 8, 1))]
        )
    ]
    model.train()
    expected = [eager(model, criterion, sample) for sample in samples]
    window = getattr(model.encoder, "time_window", 1)
    step = make_step(model, criterion, Spec.make(PAD, 32, window, 2, padded))
    for sample, (loss, size, _, gradient) in zip(samples, expected):
        step.flat.zero_grad()
        found = step(pack(sample, step.spec))
        assert_close(found[0], loss, "loss", tolerance)
        assert found[1] == size and found[2]["nsentences"] == 3
        assert_close(step.flat.gradient, gradient, "gradient", 100 * tolerance)
    assert len(step.captures) == 1
    logs = [step(pack(sample, step.spec))[2] for sample in samples]  # of one update
    step.flat.clip_grad_norm(0.0)
    for log, (_, _, eager_log, _) in zip(logs, expected):
        assert log["nll_loss"] == pytest.approx(float(eager_log["nll_loss"]), rel=1e-6)


def test_each_replay_draws_its_own_dropout(build, make_sample, monkeypatch):
    monkeypatch.setattr(  # the CPU's own reads numbers back; on a GPU it is torch's
        FastDropout,
        "forward",
        lambda self, x, inplace=False: functional.dropout(x, self.p, self.training),
    )
    model = build("--encoder-blocks", "1,1", "--dropout", "0.3")
    step = make_step(model, LabelSmoothedCrossEntropyFused(TASK, False, 0.1), Spec(PAD, 32, 2, 2))
    rows = pack(make_sample((5, 1, 7)), step.spec)
    torch.manual_seed(4)
    losses = [float(step(rows)[0]) for _ in range(3)]
    assert len(set(losses)) == 3
    torch.manual_seed(4)  # as fairseq does before each update: capture changes no number
    assert [float(step(rows)[0]) for _ in range(3)] == losses


def test_a_failed_capture_falls_back_and_is_told(build, make_sample, caplog):
    model = build("--encoder-blocks", "1,1")
    step = make_step(model, LabelSmoothedCrossEntropyFused(TASK, False, 0.1), Spec(PAD, 32, 2, 2))
    rows = pack(make_sample((5, 1, 7)), step.spec)
    expected = step(rows)[0]
    gradient = step.flat.gradient.clone()
    done = []

    class Failing(Tape):
        @contextlib.contextmanager
        def capturing(self):
            done.append("captured")
            yield
            try:
                raise RuntimeError("CUDA out of memory. Tried to allocate\nmore")
            except RuntimeError:  # as torch's context ends
                raise RuntimeError("capture failed due to a previous error") from None

        @classmethod
        def recover(cls):
            done.append("recovered")

    step.new_graph = Failing
    step.captures.clear()
    for _ in range(2):
        step.flat.zero_grad()
        assert torch.equal(step(rows)[0], expected)
        assert_close(step.flat.gradient, gradient, "gradient", 1e-12)
    assert done == ["captured", "recovered"]  # it is not tried again
    assert "capture stopped after 0 shapes of batches: CUDA out of memory" in caplog.text


def test_captured_graphs_are_dropped_when_memory_is_short(build, make_sample, monkeypatch, caplog):
    model = build("--encoder-blocks", "1,1")
    step = make_step(model, LabelSmoothedCrossEntropyFused(TASK, False, 0.1), Spec(PAD, 32, 2, 2))
    rows = pack(make_sample((5, 1, 7)), step.spec)
    expected = float(step(rows)[0])
    step.most = 2
    with monkeypatch.context() as patch:
        short = mock.Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory"))
        patch.setattr(CapturedStep, "once", short)
        step.capture(pack(make_sample((33,)), step.spec))
    assert len(step.captures) == step.most == 1
    other = pack(make_sample((40, 30)), step.spec)
    once, kept = CapturedStep.once, []

    def short(self, *given):
        kept.append(len(self.captures))
        if self.captures:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return once(self, *given)

    monkeypatch.setattr(CapturedStep, "once", short)
    step(other)
    assert kept == [1, 0] and "train without captured graphs (--eager)" in caplog.text
    assert float(step(rows)[0]) == pytest.approx(expected) and not step.captures
    monkeypatch.setattr(CapturedStep, "once", mock.Mock(side_effect=torch.OutOfMemoryError))
    with pytest.raises(torch.OutOfMemoryError):  # fairseq skips the batch
        step(rows)


@pytest.mark.parametrize("batches", [1, 2])
def test_launches_of_an_update(build, make_sample, batches):
    """Two graphs, copies of their input, and what the log reads later; a sum of two batches."""
    model = build("--encoder-blocks", "1,1")
    step = make_step(model, LabelSmoothedCrossEntropyFused(TASK, False, 0.1), Spec(PAD, 32, 2, 2))
    rows, flat = pack(make_sample((5, 1, 7)), step.spec), step.flat

    def update():
        flat.zero_grad()
        for _ in range(batches):
            step(rows)
        flat.multiply_grads(1 / 13)
        flat.clip_grad_norm(1.0)
        flat.step()

    update()  # captures
    flat.deferred = True
    with Launches() as launches:
        update()
    first, more = ["copy_", "replay", "clone"], ["clone", "copy_", "replay", "clone", "add_"]
    assert launches.names == first + more * (batches - 1) + ["copy_", "replay", "clone"]
    assert len(flat.pending) == batches + 1


def test_float16_overflows_and_goes_on(build, make_sample):
    """The scale of the loss is no part of the captured graph."""
    model = build("--encoder-blocks", "1,1", plain=True).train()
    optimizer = in_half(list(model.parameters()), scale=2.0**72, lr=0.1)
    flat = FlatOptimizer(optimizer, Tape)
    criterion = LabelSmoothedCrossEntropyFused(TASK, False, 0.1)
    step = CapturedStep(model, criterion, flat, Spec(PAD, 32, 2, 2))
    expected = float(eager(model, criterion, make_sample((5, 1, 7)))[-1].norm())
    rows, before = pack(make_sample((5, 1, 7)), step.spec), flat.values.clone()
    overflows, norm = 0, None
    while norm is None:
        flat.zero_grad()
        step(rows)
        flat.multiply_grads(1 / 13)
        try:
            norm = flat.clip_grad_norm(1.0)
        except OverflowError:
            overflows += 1
            assert torch.equal(flat.values, before)
    flat.step()
    assert float(norm) == pytest.approx(expected / 13, rel=1e-4)
    assert overflows > 0 and optimizer.scaler.loss_scale == 2.0 ** (72 - overflows)
    assert len(step.captures) == 1 and not torch.equal(flat.values, before)
    assert torch.equal(torch.cat([p.detach().flatten() for p in model.parameters()]), flat.values)


def test_hooks_on_modules_are_called_once_more(build, make_sample):
    """fairseq looks for NaN with hooks, which a replay would not call."""
    model = build("--encoder-blocks", "1,1")
    step = make_step(model, LabelSmoothedCrossEntropyFused(TASK, False, 0.1), Spec(PAD, 32, 2, 2))
    rows, called = pack(make_sample((5, 1, 7)), step.spec), []
    step(rows)
    hooks = [
        module.register_forward_hook(lambda *given: called.append(1))
        for module in (model, model.decoder.layers[0].fc1)
    ]
    step(rows)
    assert called
    for hook in hooks:
        hook.remove()
    called.clear()
    step(rows)
    assert not called


def test_a_batch_that_does_not_count_has_no_gradient(build, make_sample):
    model = build("--encoder-blocks", "1,1")
    step = make_step(model, LabelSmoothedCrossEntropyFused(TASK, True, 0.1), Spec(PAD, 32, 2, 2))
    rows = pack(make_sample((5, 1, 7)), step.spec)
    assert step(rows, count=False)[1] == 3  # --sentence-avg
    step.flat.fill()
    assert not step.flat.gradient.any()
    step.flat.zero_grad()
    assert not step.captures  # those of the validation set have other shapes, and need more memory
    step(rows)
    once = step.flat.gradient.clone()
    step(pack(make_sample((4, 2)), step.spec), count=False)
    assert torch.equal(step.flat.gradient, once)
    step(rows)
    assert_close(step.flat.gradient, 2 * once, "gradients add up", 1e-12)


def test_a_parameter_that_a_shape_does_not_use_has_no_gradient(build, make_sample):
    class Sometimes(LabelSmoothedCrossEntropyFused):
        def forward(self, model, sample, reduce=True):
            loss, *rest = super().forward(model, sample, reduce)
            return loss + (model.extra if sample["target"].numel() > 32 else 0), *rest

    model = build("--encoder-blocks", "1,1")
    model.extra = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
    step = make_step(model, Sometimes(TASK, False, 0.1), Spec(PAD, 32, 2, 2))
    for lengths, expected in (((40,), 1), ((5, 1, 7), 0), ((5, 1, 7), 0)):
        step.flat.zero_grad()
        step(pack(make_sample(lengths), step.spec))
        assert model.extra.grad == expected
    assert len(step.captures) == 2


@pytest.fixture
def make_trainer(monkeypatch):
    """What `find_obstacle` reads of a trainer, on a device that captures."""
    monkeypatch.setattr(captured_step, "graph_class", lambda device: Tape)
    plain = dict.fromkeys(("amp", "memory_efficient_fp16", "memory_efficient_bf16"), False)
    plain |= {"pipeline_model_parallel": False, "use_bmuf": False}
    plain |= {"model_parallel_size": 1, "ddp_backend": "pytorch_ddp", "zero_sharding": "none"}
    sections = ("common", "distributed_training", "optimization", "task")

    def make(model, kind=LabelSmoothedCrossEntropyFused, device="cpu", **options):
        criterion = kind(TASK, False, 0.1)
        return SimpleNamespace(
            cfg=SimpleNamespace(**dict.fromkeys(sections, SimpleNamespace(**plain | options))),
            device=torch.device(device),
            quantizer=None,
            task=object.__new__(FairseqTask),
            get_criterion=lambda: criterion,
            get_model=lambda: model,
        )

    return make


def test_two_passes_of_a_model_that_copies_are_not_captured(build_joined, make_trainer):
    model = build_joined(*COPIES.split())
    found = captured_step.find_obstacle(make_trainer(model, LabelSmoothedCrossEntropyRDrop))
    assert "the divergence of two mixtures needs" in found
    found = captured_step.find_obstacle(make_trainer(model, LabelSmoothedCrossEntropyCriterion))
    assert found == "--copy-attention without --criterion label_smoothed_cross_entropy_fused"
    assert captured_step.find_obstacle(make_trainer(model)) == ""


@pytest.mark.parametrize(
    "option, value, told",
    [
        ("amp", True, "--amp"),
        ("memory_efficient_fp16", True, "--memory-efficient-fp16"),
        ("memory_efficient_bf16", True, "--memory-efficient-bf16"),
        ("model_parallel_size", 2, "--model-parallel-size"),
        ("pipeline_model_parallel", True, "--pipeline-model-parallel"),
        ("ddp_backend", "fully_sharded", "--ddp-backend fully_sharded"),
        ("ddp_backend", "slowmo", "--ddp-backend slowmo"),
        ("zero_sharding", "os", "--zero-sharding"),
        ("use_bmuf", True, "--use-bmuf"),
    ],
)
def test_options_that_prevent_capturing_are_named(build, make_trainer, option, value, told):
    model = build("--encoder-blocks", "1,1")
    assert captured_step.find_obstacle(make_trainer(model)) == ""
    assert captured_step.find_obstacle(make_trainer(model, **{option: value})) == told


def test_tasks_and_criterions_that_prevent_capturing_are_named(build, make_trainer):
    class Custom(FairseqTask):
        def train_step(self, *args, **kwargs):
            raise NotImplementedError

    class Other(LabelSmoothedCrossEntropyCriterion):
        pass

    model = build("--encoder-blocks", "1,1")
    trainer = make_trainer(model)
    trainer.get_criterion().extra = torch.nn.Parameter(torch.zeros(1))
    assert captured_step.find_obstacle(trainer) == "a criterion with parameters"
    trainer = make_trainer(model, Other)
    assert captured_step.find_obstacle(trainer) == "--criterion with Other"
    trainer.task = object.__new__(Custom)
    assert captured_step.find_obstacle(trainer) == "Custom has a custom train_step"
    trainer.task.uses_ema = True
    told = "a task that trains with averaged weights"
    assert captured_step.find_obstacle(trainer) == told
    trainer.quantizer = object()
    assert captured_step.find_obstacle(trainer) == "--quantization-config-path"


@pytest.mark.parametrize(
    "capability, half, words, told",
    [
        ((9, 0), False, "", "float32, where attention would compute padding: use --bf16 or --fp16"),
        ((7, 5), True, "", "it needs flash attention, and a GPU of compute capability 8.0"),
        ((9, 0), True, "", "attention heads of 12 features: 8, 16, 24, ... 256 work"),
        ((9, 0), True, "--decoder-embed-dim 512 --encoder-embed-dim 32", ""),
        (
            (8, 6),
            True,
            "--decoder-embed-dim 512 --encoder-embed-dim 32",
            "attention heads of 256 features: 8, 16, 24, ... 192 work",
        ),
    ],
)
def test_what_a_gpu_lacks_is_named(build, make_trainer, monkeypatch, capability, half, words, told):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    monkeypatch.setattr(captured_step, "largest_flash_head", largest_flash_head.__wrapped__)
    model = build(*words.split(), arch="transformer", plain=True)
    model = model.bfloat16() if half else model
    assert captured_step.find_obstacle(make_trainer(model, device="cuda")) == told


def test_this_torch_has_the_flash_attention_that_is_called(monkeypatch):
    """Its operator is not public, and another version may take other arguments."""
    monkeypatch.setattr("fairseq_plugins.layers.packed.has_flash", lambda query: True)
    monkeypatch.delattr(Layout, "to_padded")
    attention = MultiheadAttention(32, 2, dropout=0.1).to("meta").bfloat16()
    layouts = [Layout(torch.empty(4, dtype=torch.int64, device="meta"), n, 16) for n in (40, 24)]
    x, memory = (
        torch.empty(at.rows, 32, dtype=torch.bfloat16, device="meta", requires_grad=True)
        for at in layouts
    )
    for causal, read, at in ((True, x, layouts[0]), (False, memory, layouts[1])):
        out, _ = packed_attention(attention, x, layouts[0], read, at, causal)
        gradients = torch.autograd.grad(out.sum(), [x, read])
        assert [g.shape for g in gradients] == [x.shape, read.shape]
        assert out.shape == x.shape and out.dtype == torch.bfloat16


# --- layout ---


@pytest.mark.parametrize("window, blocks", [(1, 1), (2, 2), (2, 3), (3, 2), (4, 2)])
def test_every_row_belongs_to_a_sentence_that_is_not_too_long(window, blocks, monkeypatch):
    monkeypatch.setattr("fairseq_plugins.data.packed_batches.LARGE", 0)
    generator = torch.Generator().manual_seed(1)
    for number in range(200):
        count = int(torch.randint(1, 60, (1,), generator=generator))
        top = (3, 20, 90)[number % 3]
        source, target = (
            torch.randint(1, most, (count,), generator=generator).numpy() for most in (5 * top, top)
        )
        padded = bool(number % 2)
        shape, levels, targets = plan(source, target, Spec(PAD, 64, window, blocks, padded))
        assert len(levels) == len(shape.source) == blocks
        longest = (*(shape.longest for _ in levels), shape.longest_target)
        for rows, lengths, most in zip((*shape.source, shape.target), (*levels, targets), longest):
            assert lengths.sum() == rows and 1 <= lengths.min() <= lengths.max() <= most
            assert len(lengths) == len(targets) <= shape.sentences
        for above, below in zip(levels, levels[1:]):
            assert (below >= -(-above // window)).all()
            assert (below[:count] == -(-above[:count] // window)).all()


def test_padding_is_an_eighth_at_most():
    """Also where the batch fills a power of two; and padding stays near the batch's own size."""
    spec = Spec(PAD, 64)
    shape, _, _ = plan(np.full(32, 2048), np.full(32, 64), spec)
    assert shape.source[0] == 9 * 32 * 2048 // 8
    source, target = np.full(32, 1500), np.r_[np.full(31, 64), 600]
    sizes = [
        shape.sentences * shape.longest * shape.longest_target
        for shape, _, _ in (plan(source, target, spec._replace(padded=padded)) for padded in (0, 1))
    ]
    assert sizes[1] < 1.75 * 32 * 1500 * 600 < sizes[0] / 2
    for count, length in ((3, 4000), (1, 8000)):  # few long documents
        shape, _, _ = plan(np.full(count, length), np.full(count, 600), spec._replace(padded=True))
        assert shape.sentences * shape.longest <= 2.1 * count * length


def test_layouts_know_of_a_padded_batch(build, build_joined):
    softmax = "--encoder-token-mixer softmax"
    for mixer, expected in ((softmax, False), ("--encoder-token-mixer longformer", True)):
        model = build(*"--encoder-blocks 1,1".split(), *mixer.split())
        assert captured_step.make_spec(model) == Spec(PAD, captured_step.STEP, 2, 2, expected)
    assert captured_step.make_spec(build_joined(*COPIES.split())).padded
    assert not captured_step.make_spec(build("--decoder-layers", "1", arch="transformer")).padded


def test_rows_pass_fairseqs_copies_untouched(make_sample):
    from fairseq.utils import apply_to_sample

    sample = Collate(lambda examples: examples, Spec(PAD, 32))(make_sample((5, 1, 7)))
    assert isinstance(sample["packed"], PackedBatch)
    assert apply_to_sample(lambda x: x.half(), sample)["packed"] is sample["packed"]
    assert Collate(lambda examples: examples, Spec(PAD, 32))({}) == {}


@pytest.mark.parametrize("side", [True, False])
def test_pairs_need_no_padding_to_become_rows(side):
    """The rows are those of fairseq's padded batch; a batch with more than pairs is padded."""
    words = Dictionary()
    for number in range(8):
        words.add_symbol(f"w{number}")
    # fairseq sorts a batch by the source's length
    sentences = [
        [torch.tensor([*range(4, 4 + n), words.eos()]) for n in lengths]
        for lengths in ((7, 5, 2, 0), (1, 6, 0, 3))
    ]
    source, target = (
        (ListDataset(tokens), [len(x) for x in tokens], words) for tokens in sentences
    )
    pairs = LanguagePairDataset(*source, *target, left_pad_source=side, left_pad_target=side)
    examples = [pairs[number] for number in range(4)]
    spec = Spec(words.pad(), 32, 2, 2)
    collate = Collate(pairs.collater, spec)
    found, padded = collate(examples)["packed"], pack(pairs.collater(examples), spec)
    assert found.shape == padded.shape and found.tokens == padded.tokens == 14
    assert found.sentences == 4 and torch.equal(found.numbers, padded.numbers)
    shifted = [{**x, "prev_output_tokens": x["target"].flip(0)} for x in examples]
    assert not torch.equal(collate(shifted)["packed"].numbers, found.numbers)
    assert collate([]) == {}


# --- whole trainings ---


@pytest.fixture
def train(toy_data, run_train, train_args, tmp_path, monkeypatch):
    """train(words, folder, updates) -> the losses of its updates and its output."""

    def run(words="", folder="run", updates=4, captured=True):
        with monkeypatch.context() as patch:
            if captured:
                patch.setattr(captured_step, "graph_class", lambda device: Tape)
            output = run_train(
                *(toy_data.bin, *train_args, "--dropout", "0", "--cpu", "--log-format", "json"),
                *("--cuda-graphs", *words.split(), "--save-dir", tmp_path / folder),
                *("--max-update", updates),
            ).output
        lines = re.findall(r"train_inner \| (\{.*\})", output)
        return [json.loads(line) for line in lines], output

    return run


@pytest.mark.parametrize("half", ["--bf16", "--fp16 --fp16-init-scale 4"])
def test_a_training_has_the_losses_of_one_without_captured_graphs(train, monkeypatch, half):
    if "fp16" in half:  # as on a GPU, without the refusal of a CPU
        plain = Trainer.__init__
        while hasattr(plain, "__wrapped__"):
            plain = plain.__wrapped__
        monkeypatch.setattr(Trainer, "__init__", plain)
        monkeypatch.setattr(Trainer, "words_of_data", {}, raising=False)  # of another __init__
        monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    words = f"--update-freq 2 --clip-norm 0.5 {half}"
    expected, output = train(words, "eager", captured=False)
    assert "steps are not captured (--cuda-graphs): it needs a GPU" in output
    found, whole = train(words)
    assert len(found) == len(expected) == 4
    for one, other in zip(found, expected):
        for name in ("loss", "nll_loss", "gnorm", "wpb", "bsz", "lr"):
            assert float(one[name]) == pytest.approx(float(other[name]), rel=0.01, abs=0.003), name
    assert all(float(one["replayed"]) == 100 for one in found)
    assert '"train_replayed": "100"' in whole  # in the line of the epoch


@pytest.mark.parametrize("name", ["train_step", "valid_step"])
def test_captured_graphs_are_dropped_when_fairseq_finds_memory_short(train, monkeypatch, name):
    """Then it tries a batch of valid again, and skips one of training."""
    prepare, steps, kept = captured_step.prepare, [], []
    monkeypatch.setattr(
        captured_step, "prepare", lambda trainer: steps.append(prepare(trainer)) or steps[-1]
    )
    original = getattr(FairseqTask, name)

    def short(*args, **kwargs):
        kept.append(len(steps[-1].captures))
        if kept[-1]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(*args, **kwargs)

    monkeypatch.setattr(FairseqTask, name, short)
    losses, output = train("--max-epoch 9")  # an end if each batch is skipped
    assert sum(count > 0 for count in kept) == 1 < len(kept)
    assert output.count("memory is short, so the captured graphs are dropped") == 1
    assert len(losses) == 4 and not steps[-1].captures
    assert type(steps[-1].criterion) is LabelSmoothedCrossEntropyFused, "in chunks, as fairseq's"


def test_captured_search_is_dropped_too():
    """What BLEU of valid searches with holds memory that training may need."""
    graphs = mock.Mock()
    task = SimpleNamespace(sequence_generator=SimpleNamespace(graphs=graphs))
    Trainer._log_oom(SimpleNamespace(task=task, _optimizer=None), RuntimeError("out of memory"))
    graphs.drop.assert_called_once_with()


def test_a_resumed_training_is_the_same_to_the_bit(train, tmp_path):
    words = "--dropout 0.1 --bf16"
    losses, _ = train(words)
    assert len({line["loss"] for line in losses}) == 4
    train(words, "resumed", 2)
    train(words, "resumed", 4)
    whole, resumed = (
        torch.load(tmp_path / folder / "checkpoint_last.pt", weights_only=False)
        for folder in ("run", "resumed")
    )
    for name, value in whole["model"].items():
        assert torch.equal(resumed["model"][name], value), name
    moments = [x["last_optimizer_state"]["state"] for x in (whole, resumed)]
    for one, other in zip(*(state.values() for state in moments)):
        assert one["step"] == other["step"] == 4
        assert torch.equal(one["exp_avg"], other["exp_avg"])


@pytest.mark.parametrize(
    "words, told",
    [
        ("--report-accuracy", "--report-accuracy"),
        ("--ignore-prefix-size 1", "--ignore-prefix-size"),
        ("--num-batch-buckets 1", "--num-batch-buckets, which pads sentences"),
    ],
)
def test_what_is_not_captured_is_told_in_one_line(train, words, told):
    losses, output = train(words, updates=1)
    (line,) = [
        line for line in output.splitlines() if "--cuda-graphs" in line and "not cap" in line
    ]
    assert line.endswith(f"steps are not captured (--cuda-graphs): {told}")
    assert len(losses) == 1 and "replayed" not in losses[0]
