"""R-Drop and SimCut: two passes over a batch, their equations, and the chunked loss."""

import contextlib
import math
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.losses import (
    LabelSmoothedCrossEntropyFused,
    LabelSmoothedCrossEntropyRDrop,
    LabelSmoothedCrossEntropySimCut,
    chunked,
    two_passes,
)
from fairseq_plugins.losses.chunked import Objective, chunked_loss, plain_loss
from tests.batches import END, PAD, make_criterion, run_criterion

RDROP = Objective(0.1, (0.5, 0.5), (1.25, 1.25))
SIMCUT = Objective(0.1, (1.0, 0.0), (3.0, 0.0))
UNEQUAL = Objective(0.2, (0.3, 0.7), (0.4, 1.9))
ONE_PASS = Objective(0.2)
OBJECTIVES = pytest.mark.parametrize("objective", [ONE_PASS, RDROP, SIMCUT, UNEQUAL])


def make_problem(objective, dtype=torch.float64, tokens=7, dim=3, vocabulary=11, scale=1.0):
    generator = torch.Generator().manual_seed(1)
    shapes = ((len(objective.cross_entropy), tokens, dim), (vocabulary, dim), (vocabulary,))
    values = [scale * torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    target = torch.randint(0, vocabulary, (tokens,), generator=generator)
    return [v.to(dtype).requires_grad_() for v in values], target


def equation(features, target, weight, bias, objective):
    """Loss, negative log-likelihood and divergence, by functions of torch."""
    logs = [F.linear(x, weight, bias).log_softmax(dim=-1) for x in features]
    share = objective.smoothing / (len(weight) - 1)
    wanted = torch.full_like(logs[0], share)
    wanted[range(len(target)), target] = 1 - objective.smoothing
    parts = list(zip(objective.cross_entropy, logs))
    loss = -sum(part * (wanted * log).sum() for part, log in parts)
    nll_loss = sum(part * F.nll_loss(log, target, reduction="sum") for part, log in parts)
    pairs = list(zip(objective.divergence, zip(logs[::-1], logs))) if len(logs) == 2 else []
    divergence = sum(
        (part * F.kl_div(*pair, reduction="sum", log_target=True) for part, pair in pairs),
        torch.zeros_like(loss),
    )
    return loss + divergence, nll_loss, divergence


@OBJECTIVES
@pytest.mark.parametrize("chunk", [1, 6, 100])
def test_both_forms_are_the_equation(objective, chunk):
    (x, weight, bias), target = make_problem(objective)
    expected = equation(x, target, weight, bias, objective)
    gradients = torch.autograd.grad(expected[0] * 1.7, (x, weight, bias))
    log_probs = F.linear(x, weight, bias).log_softmax(dim=-1)
    for found in (
        plain_loss(log_probs, target, objective),
        chunked_loss(x, target, weight, bias, objective, chunk, count_correct=True),
    ):
        torch.testing.assert_close(found[:3], expected)
        assert [x.requires_grad for x in found] == [True, False, False, False]
        torch.testing.assert_close(
            torch.autograd.grad(found.loss * 1.7, (x, weight, bias)), gradients
        )
        correct = log_probs.argmax(dim=-1).eq(target).sum(dim=1).double()
        expected_correct = correct @ torch.tensor(objective.cross_entropy, dtype=torch.float64)
        assert found.correct.item() == pytest.approx(expected_correct.item())


@OBJECTIVES
def test_tokens_that_do_not_count_have_no_part_in_loss_and_gradients(objective):
    leaves, target = make_problem(objective)
    counted = torch.tensor([True, False, True, True, False, True, False])
    found = []
    for rows, given in ((counted, None), (slice(None), counted)):
        x, weight, b = (leaf.detach().requires_grad_() for leaf in leaves)
        sums = chunked_loss(x[:, rows], target[rows], weight, b, objective, 6, counted=given)
        found.append([*sums, *torch.autograd.grad(sums.loss, (x, weight, b))])
    torch.testing.assert_close(found[1], found[0])


@OBJECTIVES
def test_a_frozen_leaf_changes_nothing_for_the_others(objective):
    leaves, target = make_problem(objective)

    def loss(x, weight, bias):
        return chunked_loss(x, target, weight, bias, objective, 4).loss

    for leaf in leaves:
        leaf.requires_grad_(False)
        assert torch.autograd.gradcheck(loss, leaves)
        leaf.requires_grad_(True)


@OBJECTIVES
def test_extreme_logits_stay_finite_and_right(objective):
    values, target = make_problem(objective, torch.float32, scale=60.0)
    results = []
    for kind, dtype in (("exact", torch.float64), ("plain", None), ("chunked", None)):
        leaves = [v.detach().to(dtype, copy=True).requires_grad_() for v in values]
        if kind == "chunked":
            sums = chunked_loss(leaves[0], target, *leaves[1:], objective, 6)
        else:
            log_probs = F.linear(*leaves).log_softmax(dim=-1)
            sums = plain_loss(log_probs, target, objective)
        assert sums.nll_loss > 1e3
        results.append([*sums[:3], *torch.autograd.grad(sums.loss, leaves)])
    for exact, plain, found in zip(*results):
        assert torch.isfinite(found).all()
        # float32 has logits of 10,000 to 0.001
        allowed = 2 * (plain - exact).abs().max() + 1e-3 * exact.abs().max()
        assert (found - exact).abs().max() <= allowed


@OBJECTIVES
@pytest.mark.parametrize("scale", [1 / 16, 2.0**9, 2.0**13])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_no_worse_than_plain(dtype, scale, objective):
    """max|chunked - exact| <= 2 max|plain - exact|, for the loss and all gradients."""
    if scale > 2**9 and objective is not ONE_PASS:
        pytest.skip("beyond float16")
    values, target = make_problem(objective, tokens=500, dim=16, vocabulary=300, scale=0.5)
    half = [v.detach().to(dtype) for v in values[:2]]
    results = []
    for kind, kept in (("exact", torch.float64), ("plain", dtype), ("chunked", dtype)):
        x, weight = (v.to(kept, copy=True).requires_grad_() for v in half)
        if kind == "chunked":
            loss = chunked_loss(x, target, weight, None, objective, 64).loss
        else:
            exact = torch.promote_types(kept, torch.float32)
            logits = F.linear(x, weight)
            loss = plain_loss(logits.log_softmax(dim=-1, dtype=exact), target, objective).loss
        (loss * scale).backward()
        results.append([v.detach().double() for v in (loss, x.grad, weight.grad)])
    for exact, plain, found in zip(*results):
        assert torch.isfinite(found).all()
        allowed = 2 * (plain - exact).abs().max() + 1e-7 * exact.abs().max()
        assert (found - exact).abs().max() <= allowed


def test_objectives_are_those_of_the_papers():
    assert make_criterion(LabelSmoothedCrossEntropyRDrop, rdrop_alpha=5.0).objective() == RDROP
    assert make_criterion(LabelSmoothedCrossEntropySimCut, simcut_alpha=3.0).objective() == SIMCUT


def assert_close(found, expected):
    torch.testing.assert_close(found[0], expected[0])
    torch.testing.assert_close(found[3], expected[3])


@contextlib.contextmanager
def plain(model):
    """The loss of models without a projection that is known, from float64 log-probabilities."""
    refusal = mock.Mock(side_effect=ConfigurationError("none"))
    with mock.patch.object(two_passes, "find_projection", refusal), in_float64(model):
        yield


def in_float64(model):
    """fairseq takes log-probabilities in float32."""
    return mock.patch.object(
        model, "get_normalized_probs", lambda net_output, log_probs: net_output[0].log_softmax(-1)
    )


KINDS = [
    pytest.param(LabelSmoothedCrossEntropyRDrop, {"rdrop_alpha": 2.5}, id="rdrop"),
    pytest.param(
        LabelSmoothedCrossEntropySimCut, {"simcut_alpha": 2.5, "simcut_p": 0.4}, id="simcut"
    ),
]
CRITERIONS = pytest.mark.parametrize("kind, options", KINDS)


@CRITERIONS
@pytest.mark.parametrize("arch", ["transformer", "transformer_ftc"])
@pytest.mark.parametrize("tied", [[], ["--share-decoder-input-output-embed"]])
def test_chunked_equals_plain(build, make_sample, kind, options, arch, tied):
    model = build(*tied, "--dropout", 0.2, arch=arch).train()
    sample = make_sample((5, 1, 7, 3))
    for more in (
        {"report_accuracy": True},
        {"sentence_avg": True, "label_smoothing": 0.0},
        {"ignore_prefix_size": 2, "report_accuracy": True},
    ):
        criterion = make_criterion(kind, **options, **more)
        with plain(model):
            expected = run_criterion(criterion, model, sample)
        with mock.patch.object(chunked, "CHUNK", 6):
            found = run_criterion(criterion, model, sample)
        assert expected[2]["kl"] > 0
        assert found[1] == expected[1]
        for name, value in expected[2].items():
            assert float(found[2][name]) == pytest.approx(float(value), rel=1e-9), name
        assert_close(found, expected)


@CRITERIONS
def test_recomputed_activations_draw_the_same(build, make_sample, kind, options):
    sample, results = make_sample((5, 1, 7, 3)), []
    for words in ([], ["--checkpoint-activations"]):
        model = build("--dropout", 0.2, *words).train()
        results.append(run_criterion(make_criterion(kind, **options), model, sample))
    torch.testing.assert_close(results[1][0], results[0][0])
    torch.testing.assert_close(results[1][3], results[0][3])


@CRITERIONS
@pytest.mark.parametrize("alpha", [0.0, 2.5])
def test_validation_and_alpha_0_are_one_plain_pass(build, make_sample, kind, options, alpha):
    model, sample = build("--dropout", 0.2, arch="transformer"), make_sample((5, 1, 7, 3))
    criterion = make_criterion(kind, **{**options, sorted(options)[0]: alpha})
    model.train(alpha == 0)
    calls = []
    model.encoder.register_forward_pre_hook(lambda module, args: calls.append(1))
    found = run_criterion(criterion, model, sample)
    with in_float64(model):
        expected = run_criterion(make_criterion(LabelSmoothedCrossEntropyCriterion), model, sample)
    assert len(calls) == 2 and list(found[2]) == list(expected[2])
    assert_close(found, expected)


def make_draw(sample, probability, packed):
    """What to lose in (source, previous target), B x T each, and torch.rand that leads to it."""
    generator = torch.Generator().manual_seed(3)
    net_input, lost, numbers = sample["net_input"], {}, {}
    for name in ("src_tokens", "prev_output_tokens"):
        tokens = net_input[name]
        drawn = torch.rand(tokens.shape, generator=generator)
        lost[name] = (drawn < probability) & tokens.ne(END) & tokens.ne(PAD)
        first = torch.zeros_like(drawn)  # which must not matter
        both = torch.stack([first, drawn])
        if packed and name == "prev_output_tokens":
            both = both[:, tokens.ne(PAD)]
        numbers[both.numel()] = both.reshape(-1)
    assert len(numbers) == 2
    return lost, lambda shape, device: numbers[math.prod(shape)]


@pytest.mark.parametrize("arch", ["transformer", "transformer_ftc"])
@pytest.mark.parametrize(
    "tied", [[], ["--share-decoder-input-output-embed"], ["--share-all-embeddings"]], ids=str
)
def test_simcut_is_its_equation(build_joined, make_sample, arch, tied):
    """Lost words are replaced by one whose embedding is zero, in a forward of its own."""
    alpha, probability, zero_word = 2.5, 0.4, 41
    model = build_joined(*tied, "--dropout", 0, arch=arch).train()
    with torch.no_grad():
        for side in (model.encoder, model.decoder):
            side.embed_tokens.weight[zero_word] = 0.0
    sample = make_sample((5, 1, 7, 3), (4, 6, 2, 5))
    lost, rand = make_draw(sample, probability, packed=arch != "transformer")
    assert all(2 < mask.sum() < mask.numel() / 2 for mask in lost.values())

    criterion = make_criterion(
        LabelSmoothedCrossEntropySimCut, simcut_alpha=alpha, simcut_p=probability
    )
    with mock.patch.object(torch, "rand", mock.Mock(side_effect=rand)) as drawn:
        found = run_criterion(criterion, model, sample)
    assert drawn.call_count == 2  # once for each side

    net_input = sample["net_input"]
    cut_input = {
        name: tokens.masked_fill(lost[name], zero_word) if name in lost else tokens
        for name, tokens in net_input.items()
    }
    model.zero_grad()
    p, q = (model(**words)[0].log_softmax(dim=-1) for words in (net_input, cut_input))
    target, real = sample["target"], sample["target"].ne(PAD)
    p, q, share = p[real], q[real], 0.1 / (p.size(-1) - 1)
    cross = -share * p.sum() + (0.9 - share) * F.nll_loss(p, target[real], reduction="sum")
    divergence = (p.exp() * (p - q)).sum()
    torch.testing.assert_close(found[0], (cross + alpha * divergence).detach())
    assert float(found[2]["kl"]) == pytest.approx(divergence.item())
    assert divergence > 0.1
    with metrics.aggregate() as logged:  # in bits per token of both processes
        LabelSmoothedCrossEntropySimCut.reduce_metrics([found[2], found[2]])
    assert logged["kl"].avg == pytest.approx(divergence.item() / found[1] / math.log(2))
    (cross + alpha * divergence).backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        gradient, expected = found[3][name], parameter.grad
        if name.endswith("embed_tokens.weight"):  # the word that stands for none
            gradient, expected = (
                torch.cat([g[:zero_word], g[zero_word + 1 :]]) for g in (gradient, expected)
            )
        torch.testing.assert_close(gradient, expected, msg=name)


@pytest.mark.parametrize("kind", [LabelSmoothedCrossEntropyRDrop, LabelSmoothedCrossEntropySimCut])
def test_an_adaptive_softmax_is_refused(build, make_sample, kind):
    model = build("--adaptive-softmax-cutoff", "10,20", arch="transformer", plain=True).train()
    message = "use --criterion adaptive_loss --ddp-backend legacy_ddp"
    with pytest.raises(ConfigurationError, match=f"--adaptive-softmax-cutoff .*: {message}"):
        make_criterion(kind)(model, make_sample((5, 1)))
    with pytest.raises(ConfigurationError, match=message):
        make_criterion(LabelSmoothedCrossEntropyFused)(model, make_sample((5, 1)))


def test_hooks_go_when_the_model_fails(build, make_sample):
    model, sample = build(arch="transformer").train(), make_sample((5, 1, 7, 3))
    sample["net_input"]["src_tokens"] = None
    with pytest.raises(Exception):  # noqa: B017
        make_criterion(LabelSmoothedCrossEntropySimCut)(model, sample)
    assert not model.encoder.embed_tokens._forward_hooks
    assert not model.decoder.embed_tokens._forward_hooks


@pytest.mark.parametrize("words", [
    "transformer --criterion label_smoothed_cross_entropy_fused --bf16",
    "transformer_ftc --criterion label_smoothed_cross_entropy_rdrop --encoder-blocks 1,1",
    "fastformer_encoder --criterion label_smoothed_cross_entropy_rdrop --update-freq 2",
    "mscffn_transformer --criterion label_smoothed_cross_entropy_simcut --bf16",
])  # fmt: skip
def test_trains_every_architecture(run_train, toy_data, train_args, tmp_path, words):
    words = [*train_args, "--arch", *words.split(), "--max-update", 2, "--save-dir", tmp_path]
    output = run_train(toy_data.bin, *words).output
    assert ("| kl " in output) == ("fused" not in output) and "| nll_loss " in output
    assert "nan" not in output
