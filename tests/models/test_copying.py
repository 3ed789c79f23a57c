"""Models that copy: every combination, both criterions and training paths, what is refused."""

from unittest import mock

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy_with_alignment import (
    LabelSmoothedCrossEntropyCriterionWithAlignment,
)

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.benchmarks import peak_memory, workloads
from fairseq_plugins.layers.feed_forwards import FEED_FORWARDS
from fairseq_plugins.layers.token_mixers import TOKEN_MIXERS
from fairseq_plugins.losses import (
    LabelSmoothedCrossEntropyFused,
    LabelSmoothedCrossEntropyRDrop,
    chunked,
)
from fairseq_plugins.models import decoder
from tests.batches import assert_close, assert_same_training, make_criterion, run_criterion
from tests.reference.copy_attention import copy_probabilities
from tests.tiny_models import TINY

COPY = "--copy-attention --decoder-layers 2".split()
COMPRESSIONS = {
    "none": "--encoder-blocks 2 --time-window 1 --feature-window 1",
    "both": "--encoder-blocks 1,1 --time-window 2 --feature-window 2",
}
LENGTHS = (5, 1, 9, 3)


def sample_with_copies(make_sample, lengths=LENGTHS, **kwargs):
    """Targets of which about half are words of their source, which has words twice."""
    sample = make_sample(lengths, **kwargs)
    source, target = sample["net_input"]["src_tokens"], sample["target"]
    source[source > 3] = 4 + source[source > 3] % 6
    target[target > 3] = 4 + target[target > 3] % 11
    return sample


def run(kind, model, sample, **options):
    return run_criterion(make_criterion(kind, **options), model, sample)


def assert_all_forms_agree(model, sample, paths=(False, True)):
    """fairseq's criterion and the fused one, on fairseq's own decoder and on the packed one."""
    results = []
    for packs in paths:
        model.train().decoder.packs = packs
        plain = run(LabelSmoothedCrossEntropyCriterion, model, sample, report_accuracy=True)
        # packed sequences reach the loss as they are, never in the layout of the batch
        layout = mock.patch.object(decoder, "put_rows", None if packs else decoder.put_rows)
        with mock.patch.object(chunked, "CHUNK", 4), layout:
            fused = run(LabelSmoothedCrossEntropyFused, model, sample, report_accuracy=True)
        assert_same_training(fused, plain, 1e-9)
        results.append(plain)
    # fairseq's cross-attention normalises in float32, whatever the type of the model
    assert_same_training(results[-1], results[0], 1e-5)
    for name, gradient in results[0][3].items():
        may_be_zero = "k_proj.bias" in name or "experts" in name  # which may get no position
        assert may_be_zero or gradient.abs().max() > 0, name


@pytest.mark.parametrize(
    "mixer, compression", [("softmax", "none"), *((mixer, "both") for mixer in TOKEN_MIXERS)]
)
def test_every_mixer(build_joined, make_sample, mixer, compression):
    words = ["--encoder-token-mixer", mixer, *COMPRESSIONS[compression].split()]
    model = build_joined(*COPY, *words, "--training-path", "fast")
    assert_all_forms_agree(model, sample_with_copies(make_sample))


@pytest.mark.parametrize("ffn", sorted(FEED_FORWARDS))
@pytest.mark.parametrize("words", [
    "--decoder-normalize-before --share-all-embeddings",
    "--layernorm-embedding --decoder-learned-pos --copy-next",
])  # fmt: skip
def test_every_network_and_options(build_joined, make_sample, ffn, words):
    networks = ["--encoder-ffn", ffn, "--decoder-ffn", ffn]
    model = build_joined(*COPY, *networks, *words.split(), "--encoder-blocks", "1,1")
    # fairseq's decoder has the padding of a batch, too, which Switch would route
    paths = (True,) if ffn == "switch" else (False, True)
    assert_all_forms_agree(model, sample_with_copies(make_sample, side="right"), paths)


@pytest.mark.parametrize("words", ["", "--copy-attention", "--copy-attention --copy-next"])
def test_guided_alignment_reads_the_words_of_the_batch(build_joined, make_sample, words):
    """fairseq's criterion indexes attention by the columns of a batch padded on the left."""
    words = ["--decoder-layers", "2", "--training-path", "fast", *words.split()]
    model, sample = build_joined(*words).train(), sample_with_copies(make_sample)
    width = sample["net_input"]["src_tokens"].size(1)
    # first and last word of each sentence, with that of its target
    ends = [(width - n, width - 1, t - 1) for n, t in zip(LENGTHS, LENGTHS[::-1])]
    pairs = [(s, row * width + t) for row, (*both, t) in enumerate(ends) for s in both]
    sample["alignments"] = torch.tensor(pairs)
    sample["align_weights"] = torch.linspace(0.5, 1, len(pairs))
    results = []
    for model.decoder.packs in (False, True):
        kind = LabelSmoothedCrossEntropyCriterionWithAlignment
        results.append(run(kind, model, sample, alignment_lambda=0.5))
    assert results[0][2]["alignment_loss"] > 0
    assert_same_training(results[1], results[0], 1e-5)


def test_copying_reads_its_own_layer_and_heads(build_joined, make_sample):
    net_input = sample_with_copies(make_sample)["net_input"]
    for path in ("plain", "fast"):
        model = build_joined(*COPY, "--training-path", path).train()
        expected = model(**net_input)[1]["copy_log_odds"][0]
        found = model(**net_input, alignment_layer=0, alignment_heads=1)[1]["copy_log_odds"][0]
        assert torch.equal(found, expected)


def test_other_sizes_and_checkpointed_activations(build_joined, make_sample):
    model = build_joined(*COPY, "--checkpoint-activations", "--decoder-output-dim", "12")
    assert model.decoder.copying.gate.in_features == 12 + 24
    assert_all_forms_agree(model, sample_with_copies(make_sample))


def test_the_equation_end_to_end(build_joined, make_sample):
    """From the model's own logits and attention; which is over all positions of the source."""
    model = build_joined(*COPY).eval()
    sample = sample_with_copies(make_sample)
    net_input = sample["net_input"]
    encoded = model.encoder(net_input["src_tokens"], net_input["src_lengths"])
    seen = {}
    attention = model.decoder.layers[-1].encoder_attn
    hook = attention.register_forward_hook(lambda m, args, out: seen.update(weights=out[1]))
    output = model.decoder(net_input["prev_output_tokens"], encoded)
    hook.remove()
    weights = seen["weights"].double().mean(dim=0)
    state = model.decoder.extract_features(net_input["prev_output_tokens"], encoded)[0]
    inputs = output[1]["inner_states"][0].transpose(0, 1)
    found = model.get_normalized_probs(output, log_probs=False)
    gate = model.decoder.copying.gate
    for b, source in enumerate(net_input["src_tokens"].tolist()):
        assert not weights[b, :, net_input["src_tokens"][b].eq(1)].any()
        for t in range(found.size(1)):
            z = gate(torch.cat([state[b, t], inputs[b, t]]))[0]
            expected = copy_probabilities(output[0][b, t], weights[b, t], source, z)
            assert_close(found[b, t], expected, f"{b}, {t}")


@pytest.mark.parametrize("path", ["plain", "fast"])
def test_in_bf16_no_worse_than_the_plain_form(build_joined, make_sample, path):
    words = [*COPY, "--encoder-blocks", "1,1", "--training-path", path]
    sample = sample_with_copies(make_sample, (9, 5, 7, 8, 6, 4))
    exact = run(LabelSmoothedCrossEntropyCriterion, build_joined(*words).train(), sample)
    model = build_joined(*words).bfloat16().train()
    errors = []
    for kind in (LabelSmoothedCrossEntropyCriterion, LabelSmoothedCrossEntropyFused):
        loss, _, _, gradients = run(kind, model, sample)
        worst = max((gradients[n].double() - g).abs().max() for n, g in exact[3].items())
        errors.append(((loss.double() - exact[0]).abs(), worst))
    assert errors[1][0] <= 2 * errors[0][0] + 1e-3 and errors[1][1] <= 2 * errors[0][1]
    assert errors[1][0] < 0.01 * exact[0]


def test_in_fp16_gradients_of_rare_copies_are_finite(build_joined, make_sample):
    """At fairseq's first scale of 128. Rounded to fp16, attention would pass on infinity."""
    words = [*COPY, "--encoder-blocks", "1,1", "--training-path"]
    sample = sample_with_copies(make_sample, (9, 5, 7, 8, 6, 4))
    model = build_joined(*words, "fast").float().train()
    with torch.no_grad():  # attention to few words: to the others it is too small for fp16
        for projection_of in ("q_proj", "k_proj"):
            getattr(model.decoder.layers[-1].encoder_attn, projection_of).weight.mul_(8)
    for dtype in (torch.float32, torch.float16):
        model.to(dtype)
        for kind in (LabelSmoothedCrossEntropyCriterion, LabelSmoothedCrossEntropyFused):
            model.zero_grad()
            loss, _, _ = make_criterion(kind)(model, sample)
            (128 * loss).backward()
            for name, parameter in model.named_parameters():
                assert parameter.grad is None or parameter.grad.abs().max() < 65504, name
    plain = build_joined(*words, "plain").half().train()
    with pytest.raises(ConfigurationError, match="in float16, gradients overflow on .* plain"):
        plain(**sample["net_input"])


def test_two_passes_take_the_plain_form(build_joined, make_sample):
    """R-Drop's divergence is that of the mixtures."""
    model = build_joined(*COPY, "--encoder-blocks", "1,1").train()
    sample = sample_with_copies(make_sample)
    with mock.patch.object(chunked, "_ChunkedLoss", None):
        loss, _, log, gradients = run(LabelSmoothedCrossEntropyRDrop, model, sample)
    assert log["kl"].item() == pytest.approx(0, abs=1e-6)  # without dropout
    expected = run(LabelSmoothedCrossEntropyCriterion, model, sample)
    assert_close(loss, expected[0], "loss", 1e-6)
    for name, gradient in expected[3].items():
        assert_close(gradients[name], gradient, name, 1e-5)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_memory_of_training_is_linear_in_the_documents_length(compression):
    """The peak of a whole training step on one document, and what forward keeps for backward."""
    options = " ".join(TINY).replace("source-positions 64", "source-positions 5000")
    words = f"fastformer_encoder --copy-attention --copy-next {COMPRESSIONS[compression]}"
    words += " --share-all-embeddings --criterion label_smoothed_cross_entropy_fused"
    peaks, kept = [], []
    for length in (512, 1024, 2048):
        setting = workloads.Setting(
            *("model", "training", length, 1, 16, "fp32", "cpu", torch.get_num_threads()),
            *(options, {}, 100),
        )
        workload = workloads.build(words, setting)
        peaks.append(peak_memory.allocated_peak(workload.step))
        kept.append(peak_memory.kept_for_backward(workload))
    for one, two, three in (peaks, kept):
        assert 0 < three - two < 2.1 * (two - one)
