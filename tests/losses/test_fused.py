"""The fused criterion is fairseq's label smoothing: numbers, logs and gradients."""

import os
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    label_smoothed_nll_loss,
)
from fairseq.distributed import LegacyDistributedDataParallel, ModuleProxyWrapper
from torch.multiprocessing import start_processes
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers import kernels
from fairseq_plugins.layers.copying import Copies, find_word_positions
from fairseq_plugins.losses import (
    LabelSmoothedCrossEntropyFused,
    LabelSmoothedCrossEntropyRDrop,
    LabelSmoothedCrossEntropySimCut,
    chunked,
)
from fairseq_plugins.losses.chunked import Objective
from fairseq_plugins.losses.label_smoothed import find_projection, in_chunks
from fairseq_plugins.models import decoder
from tests.batches import TASK, assert_same_training, make_criterion, run_criterion
from tests.layers import test_kernels
from tests.layers.test_kernels import DEVICE, EVERY_DTYPE, needs_triton
from tests.losses.test_two_passes import ONE_PASS, RDROP, make_problem


def run(kind, model, sample, **options):
    return run_criterion(make_criterion(kind, **options), model, sample)


def smoothed_cross_entropy(x, target, weight, bias, smoothing, chunk):
    """The chunked loss of one pass."""
    objective = Objective(smoothing)
    return chunked.chunked_loss(x.view(1, *x.shape[-2:]), target, weight, bias, objective, chunk)


def assert_equal(model, sample, **options):
    expected = run(LabelSmoothedCrossEntropyCriterion, model, sample, **options)
    with mock.patch.object(chunked, "CHUNK", 4):
        found = run(LabelSmoothedCrossEntropyFused, model, sample, **options)
    assert_same_training(found, expected, 1e-6)


@pytest.mark.parametrize("arch", ["transformer", "transformer_ftc"])
@pytest.mark.parametrize("tied", [[], ["--share-decoder-input-output-embed"]])
@pytest.mark.parametrize("training", [False, True])
def test_equal_to_fairseqs(build, make_sample, arch, tied, training):
    model = build(*tied, "--dropout", 0.2, arch=arch).train(training)
    sample = make_sample((5, 1, 7, 3))
    for options in (
        {"report_accuracy": True},
        {"sentence_avg": True, "label_smoothing": 0.0},
        {"ignore_prefix_size": 2, "report_accuracy": True, "label_smoothing": 0.3},
    ):
        assert_equal(model, sample, **options)
    with torch.no_grad():
        assert_equal(model, sample, report_accuracy=True)


@pytest.mark.parametrize("kind", [
    LabelSmoothedCrossEntropyFused,
    LabelSmoothedCrossEntropyRDrop,
    LabelSmoothedCrossEntropySimCut,
])  # fmt: skip
@pytest.mark.parametrize("prefix", [0, 2])
def test_packed_rows_reach_the_loss(build, make_sample, monkeypatch, kind, prefix):
    """The rows of real positions alone, never the layout of the batch; then all is as before."""
    model, sample = build("--training-path", "fast").train(), make_sample((5, 1, 7, 3))
    options = {"ignore_prefix_size": prefix, "report_accuracy": True}
    if kind is LabelSmoothedCrossEntropySimCut:
        options["simcut_p"] = 0.0  # words are drawn for real positions alone, or for all
    model.decoder.packs = False
    expected = run(kind, model, sample, **options)
    model.decoder.packs = True
    monkeypatch.setattr(decoder, "put_rows", None)
    found = run(kind, model, sample, **options)
    monkeypatch.undo()
    assert_same_training(found, expected, 1e-6)
    features = model(**sample["net_input"], features_only=True)[0]
    assert features.shape[:2] == sample["target"].shape


def test_unreduced_losses_are_fairseqs(build, make_sample):
    model, sample = build(arch="transformer").eval(), make_sample((5, 1, 7, 3))
    losses = [
        kind(TASK, False, 0.1)(model, sample, reduce=False)[0]
        for kind in (LabelSmoothedCrossEntropyCriterion, LabelSmoothedCrossEntropyFused)
    ]
    assert torch.equal(*losses)


def make_copies(tokens=7, vocabulary=11):
    """Log-odds of copying for words of three sentences; some cannot be copied."""
    generator = torch.Generator().manual_seed(2)
    words = torch.randint(0, vocabulary, (3, 5), generator=generator)
    odds = torch.randn(tokens, 5, generator=generator, dtype=torch.float64)
    sentence = torch.arange(tokens) % 3
    places = find_word_positions(words, vocabulary)[sentence]
    odds[places != torch.arange(5)] = -float("inf")  # each word has one place
    odds[:, 3] = -float("inf")
    log_generate = -torch.rand(tokens, generator=generator, dtype=torch.float64)
    return log_generate.requires_grad_(), odds.requires_grad_(), words, sentence


def mixture_loss(x, weight, target, log_generate, odds, words, sentence, smoothing):
    """The equation: label smoothing of log P, word by word."""
    p = functional.linear(x, weight).softmax(dim=-1)
    copied = torch.zeros_like(p)
    for n in range(len(p)):
        for word, odd in zip(words[sentence[n]], odds[n]):
            copied[n, word] += odd.exp()
    log_probs = (log_generate.exp().unsqueeze(1) * (p + copied)).log()
    loss, nll = label_smoothed_nll_loss(log_probs, target, smoothing, ignore_index=-1)
    return loss, nll, log_probs.argmax(dim=1).eq(target).sum()


@pytest.mark.parametrize("chunk", [1, 3, 100])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_of_a_mixture_in_value_and_every_gradient(chunk, smoothing):
    (x, weight, _), target = make_problem(ONE_PASS)
    log_generate, odds, words, sentence = make_copies()
    target[:3] = words[sentence[:3], 0]  # some targets can be copied
    leaves = (x, weight, log_generate, odds)
    expected = mixture_loss(x[0], weight, target, log_generate, odds, words, sentence, smoothing)
    found = chunked.chunked_loss(
        x,
        target,
        weight,
        None,
        Objective(smoothing),
        chunk,
        count_correct=True,
        copies=Copies(log_generate, odds, words, sentence),
    )
    torch.testing.assert_close((found.loss, found.nll_loss), expected[:2])
    assert found.correct == expected[2] > 0
    gradients = [torch.autograd.grad(value * 1.7, leaves) for value in (found.loss, expected[0])]
    finite = torch.isfinite(odds)
    assert not gradients[0][3][~finite].any() and finite.any() and not finite.all()
    for one, other in zip(*gradients):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("scale", [2.0**7, 2.0**16])
def test_the_scale_of_fp16_saves_gradients_of_words_that_are_known(scale):
    """Where probabilities are near 0 and 1, gradients of features are as exact as fairseq's."""
    tokens, dim, vocabulary = 40, 64, 8000
    generator = torch.Generator().manual_seed(1)
    weight = 0.3 * torch.randn(vocabulary, dim, generator=generator)
    target = torch.randint(0, vocabulary, (tokens,), generator=generator)
    x = 4.5 * weight[target]  # the target has 0.99999
    errors = []
    for kind in ("plain", "fused"):
        results = []
        for dtype in (torch.float64, torch.float16):
            leaf, w = x.half().to(dtype).requires_grad_(), weight.half().to(dtype)
            if kind == "fused":
                loss = smoothed_cross_entropy(leaf, target, w, None, 0.0, 16).loss
            else:
                exact = torch.promote_types(dtype, torch.float32)
                log_probs = functional.linear(leaf, w).log_softmax(dim=-1, dtype=exact)
                loss, _ = label_smoothed_nll_loss(log_probs, target, 0.0, ignore_index=-1)
            (loss * scale).backward()
            results.append(leaf.grad.double())
        assert torch.isfinite(results[1]).all()
        errors.append((results[1] - results[0]).norm(dim=1) / results[0].norm(dim=1))
    assert errors[1].median() <= 1.5 * errors[0].median() + 1e-4


def test_a_word_that_fills_a_chunk_stays_within_fp16():
    """The largest sum of the weight's gradient: fairseq's, 512 times 4, is in range, too."""
    x = torch.full((512, 8), 4.0, dtype=torch.float16)
    weight = torch.zeros(50, 8, dtype=torch.float16, requires_grad=True)
    target = torch.full((512,), 7)
    bias = torch.zeros(50, dtype=torch.float16, requires_grad=True)
    smoothed_cross_entropy(x, target, weight, bias, 0.0, chunked.CHUNK).loss.backward()
    expected = torch.full((50, 8), 512 * 4 / 50)
    expected[7] -= 512 * 4
    torch.testing.assert_close(weight.grad.float(), expected, rtol=2e-3, atol=0)
    torch.testing.assert_close(bias.grad.float(), expected[:, 0] / 4, rtol=2e-3, atol=0)


def test_autocast_on_a_cpu():
    (x, weight, b), target = make_problem(ONE_PASS, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = functional.linear(x[0], torch.eye(3))
        loss = smoothed_cross_entropy(half, target, weight, b, 0.1, 3).loss
        log_probs = functional.linear(half, weight, b).float().log_softmax(dim=-1)
    expected, _ = label_smoothed_nll_loss(log_probs, target, 0.1, ignore_index=-1)
    torch.testing.assert_close(loss, expected, rtol=1e-2, atol=1e-2)
    grads = [torch.autograd.grad(v, (x, weight, b), retain_graph=True) for v in (loss, expected)]
    for found, true in zip(*grads):
        torch.testing.assert_close(found, true, rtol=5e-2, atol=5e-2)


class Wrapper(torch.nn.Module):
    def __init__(self, module, find_unused_parameters):
        super().__init__()
        self.module = module
        self.find_unused_parameters = find_unused_parameters


class FullyShardedDataParallel(Wrapper):
    """Named as fairscale's, which is not needed here."""


def test_models_that_cannot_are_refused(build, parse):
    tied = build("--share-decoder-input-output-embed", arch="transformer")
    untied = build(arch="transformer")
    adaptive = build("--adaptive-softmax-cutoff", "10,20", arch="transformer", plain=True)

    pointing = build(arch="transformer")
    kind = type(pointing.decoder)
    pointing.decoder.__class__ = type("Pointing", (kind,), {"output_layer": lambda self, x: x})

    sizes = "--encoder-embed-dim 8 --decoder-embed-dim 8 --encoder-layers 1 --decoder-layers 1"
    sizes += " --encoder-attention-heads 1 --decoder-attention-heads 1"
    aligning = parse("--arch", "transformer_align", *sizes.split()).build_model()
    assert find_projection(Wrapper(Wrapper(tied, True), False)).weight is (
        tied.decoder.embed_tokens.weight
    )
    assert find_projection(Wrapper(untied, False)) is untied.decoder.output_projection
    for model, message in (
        (adaptive, "--adaptive-softmax-cutoff leaves"),
        (torch.nn.Linear(2, 3), "Linear has no output_projection"),
        (pointing, "Pointing computes its own probabilities"),
        (FullyShardedDataParallel(tied, False), "fully_sharded"),
        (Wrapper(untied, True), "--find-unused-parameters does not see"),
        (aligning, "TransformerAlignModel does not return features"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            find_projection(model)
    plain = LabelSmoothedCrossEntropyCriterion(TASK, True, 0.3)
    found = in_chunks(plain, untied)
    assert type(found) is LabelSmoothedCrossEntropyFused
    assert (found.sentence_avg, found.eps, found.task) == (True, 0.3, TASK)
    assert in_chunks(plain, pointing) is plain
    two_passes = LabelSmoothedCrossEntropyRDrop(TASK, False, 0.1)
    assert in_chunks(two_passes, untied) is two_passes


CRITERIONS = {
    "fused": LabelSmoothedCrossEntropyFused(TASK, False, 0.1),
    "rdrop": LabelSmoothedCrossEntropyRDrop(TASK, False, 0.1),
    "simcut": LabelSmoothedCrossEntropySimCut(TASK, False, 0.1, simcut_p=0.4),
}


def share_a_batch(rank, folder, criterion, backend, find_unused_parameters):
    """One of two processes: the mean gradient of its half of the sentences and the other's."""
    torch.set_num_threads(1)
    meeting = f"file://{folder}/{backend}{find_unused_parameters}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    model, halves = torch.load(f"{folder}/work.pt", weights_only=False)
    if backend == "legacy_ddp":
        wrapped = LegacyDistributedDataParallel(model, dist.group.WORLD)
    else:  # as fairseq does it on a GPU
        wrapped = DistributedDataParallel(model, find_unused_parameters=find_unused_parameters)
    shared = ModuleProxyWrapper(wrapped)
    torch.manual_seed(1)
    loss, _, _ = CRITERIONS[criterion](shared, halves[rank])
    loss.backward()
    if backend == "legacy_ddp":  # which leaves that to the trainer
        shared.all_reduce_grads()
    torch.save([p.grad for p in model.parameters()], f"{folder}/{rank}.pt")
    dist.destroy_process_group()
    os._exit(0)  # the end of DDP's reducer may wait forever for a thread of gloo


@pytest.mark.skipif(torch.cuda.is_available(), reason="these processes are forked")
@pytest.mark.parametrize(
    "criterion, backend, find_unused",
    [
        ("fused", "legacy_ddp", False),
        ("rdrop", "legacy_ddp", False),
        ("simcut", "legacy_ddp", False),
        ("simcut", "pytorch_ddp", True),
        ("fused", "pytorch_ddp", False),
        ("fused", "pytorch_ddp", True),
    ],
)
def test_two_processes_share_the_gradient_of_the_projection(
    build, make_sample, tmp_path, criterion, backend, find_unused
):
    """It is no part of the model's forward, where DDP looks for what is used."""
    tied = ["--share-decoder-input-output-embed"] if find_unused else []
    model = build(*tied, "--dropout", 0.2, arch="transformer").train()
    halves = [make_sample((5, 1, 7)), make_sample((2, 4), seed=3)]
    torch.save((model, halves), tmp_path / "work.pt")
    for half in halves:
        torch.manual_seed(1)
        CRITERIONS[criterion](model, half)[0].backward()
    words = (str(tmp_path), criterion, backend, find_unused)
    start_processes(share_a_batch, words, nprocs=2, start_method="fork")
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=False)
        for (name, p), gradient in zip(model.named_parameters(), found):
            if p.grad is not None:
                torch.testing.assert_close(2 * gradient, p.grad, rtol=1e-5, atol=1e-5, msg=name)


@needs_triton
@EVERY_DTYPE
@pytest.mark.parametrize("vocabulary, smoothing", [(11, 0.0), (70, 0.1), (40, 0.3)])
@pytest.mark.parametrize("masked", [True, False])
def test_the_kernel_equals_plain_torch(
    monkeypatch, vocabulary, smoothing, masked, dtype, tolerance
):
    """All sums and gradients, in one chunk and several, with rows longer than a program's block."""
    monkeypatch.setitem(test_kernels.module("cross_entropy").BLOCKS, "most", 32)
    (x, weight, _), target = make_problem(ONE_PASS, torch.float64, vocabulary=vocabulary)
    counted = torch.arange(7) % 3 != 1 if masked else None
    found = []
    for on_gpu, chunk in ((False, 7), (True, 7), (True, 3)):
        monkeypatch.setattr(kernels, "usable", lambda x, *given, on_gpu=on_gpu: on_gpu)
        leaves = [leaf.detach().to(DEVICE, dtype).requires_grad_() for leaf in (x, weight)]
        sums = chunked.chunked_loss(
            leaves[0],
            target.to(DEVICE),
            leaves[1],
            None,
            Objective(smoothing),
            chunk,
            count_correct=True,
            counted=None if counted is None else counted.to(DEVICE),
        )
        found.append([*sums, *torch.autograd.grad(sums.loss * 1.7, leaves)])
    for ours in found[1:]:
        for one, other in zip(ours, found[0]):
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
    with torch.no_grad():
        sums = chunked.chunked_loss(
            x.to(DEVICE, dtype),
            target.to(DEVICE),
            weight.to(DEVICE, dtype),
            None,
            Objective(smoothing),
        )
    assert counted is not None or sums.loss == found[1][0]


@needs_triton
@pytest.mark.parametrize("kind", ["one pass", "two passes", "bias", "copies"])
def test_one_pass_without_bias_and_copies_asks_for_the_kernel(monkeypatch, kind):
    objective = RDROP if kind == "two passes" else ONE_PASS
    (x, weight, bias), target = make_problem(objective, torch.float32)
    copies = None
    if kind == "copies":
        copies = Copies(*(v.float() if v.is_floating_point() else v for v in make_copies()))
    taken, asked = [], []
    own = test_kernels.module("cross_entropy")
    replace = own.replace_by_gradient
    monkeypatch.setattr(own, "replace_by_gradient", lambda *a: taken.append(a) or replace(*a))
    monkeypatch.setattr(kernels, "usable", lambda x, *given: asked.append(given) or True)
    bias = bias if kind == "bias" else None
    chunked.chunked_loss(x, target, weight, bias, objective, copies=copies)
    assert asked == [("cross_entropy", 11)] * (kind == "one pass")
    assert len(taken) == (kind == "one pass")
