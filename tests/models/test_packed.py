"""Batches as rows against fairseq's padded batches, in float64: the loss and every gradient."""

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.modules import MultiheadAttention

from fairseq_plugins.data.packed_batches import Spec, pack
from fairseq_plugins.layers import kernels
from fairseq_plugins.layers.projections import concatenate
from fairseq_plugins.losses import LabelSmoothedCrossEntropyFused
from fairseq_plugins.models.packed import PackedModel, find_obstacle, store_projections_together
from tests.batches import PAD, TASK, assert_close, run_criterion

MODELS = {
    "ftc": "--encoder-blocks 1,1",
    "three blocks": "--encoder-blocks 1,2,1 --feature-window 2 --encoder-attention-heads 1",
    "windows of 3": "--encoder-blocks 1,1 --time-window 3 --feature-window 3",
    "time alone": "--encoder-blocks 1,1 --feature-window 1 --time-pooling max",
    "features alone": "--encoder-blocks 1,1 --time-window 1 --feature-pooling linear",
    "minimum": "--encoder-blocks 1,1 --time-pooling min --feature-pooling max",
    "pre-norm": "--encoder-blocks 1,1 --encoder-normalize-before --decoder-normalize-before",
    "one block": "--encoder-blocks 2 --time-window 1 --feature-window 1 --training-path fast",
    "learned positions": "--encoder-blocks 1,1 --encoder-learned-pos --decoder-learned-pos",
    "embedding": "--encoder-blocks 1,1 --layernorm-embedding --no-scale-embedding",
    "no positions": "--encoder-blocks 1,1 --no-token-positional-embeddings",
    "mscffn": "--encoder-blocks 1,1 --encoder-ffn mscffn --decoder-ffn mscffn",
    "fastformer": "--encoder-blocks 1,1 --encoder-token-mixer fastformer",
    "fastformer, add": "--encoder-blocks 1,1 --encoder-token-mixer fastformer"
    " --fastformer-interaction add --fastformer-sharing head",
    "fastformer, concat": "--encoder-blocks 1,1 --encoder-token-mixer fastformer"
    " --fastformer-interaction concat --fastformer-sharing none",
    "performer": "--encoder-blocks 1,1 --encoder-token-mixer performer",
    "other sizes": "--encoder-blocks 1,1 --decoder-embed-dim 30 --decoder-output-dim 12",
}
LENGTHS = ((5, 1, 7), (3, 9, 2, 1), (1,), (20, 17, 19))


def compute(criterion, model, batch):
    model.train()
    loss, _, log, gradients = run_criterion(criterion, model, batch)
    return loss, log, gradients


def packed(model, sample, step=16):
    encoder = model.encoder
    blocks = 1 + sum(getattr(layer, "starts_later_block", False) for layer in encoder.layers)
    rows = pack(sample, Spec.make(PAD, step, getattr(encoder, "time_window", 1), blocks))
    assert rows.shape.source[0] % step == rows.shape.target % step == 0
    on = PackedModel(model, rows.numbers, rows.shape)
    return on, on.sample(rows.sentences, rows.tokens)


def assert_same(criterion, model, sample, tolerance=1e-12, **options):
    expected = compute(criterion, model, sample)
    on, rows = packed(model, sample, **options)
    found = compute(criterion, on, rows)
    assert_close(found[0], expected[0], "loss", tolerance)
    for name in ("nll_loss", *(["kl"] if "kl" in expected[1] else [])):
        assert_close(found[1][name], expected[1][name], name, tolerance)
    assert sorted(found[2]) == sorted(expected[2])
    for name, gradient in expected[2].items():
        assert_close(found[2][name], gradient, name, 100 * tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_of_every_architecture(build, make_sample, name):
    model = build(*MODELS[name].split())
    assert find_obstacle(model) == ""
    criterion = LabelSmoothedCrossEntropyFused(TASK, False, 0.1)
    for lengths in LENGTHS:
        assert_same(criterion, model, make_sample(lengths))
    assert_same(criterion, model, make_sample((5, 1, 7), side="right"), step=64)


def test_fairseqs_own_transformer_and_criterion(build, make_sample):
    model = build(arch="transformer")
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.activation_dropout_module = torch.nn.Tanh()  # it has to be called
    assert find_obstacle(model) == ""
    for lengths in LENGTHS:
        sample = make_sample(lengths)
        # its cross-attention and its criterion normalise in float32
        assert_same(LabelSmoothedCrossEntropyFused(TASK, False, 0.1), model, sample, 1e-7)
        criterion = LabelSmoothedCrossEntropyCriterion(TASK, False, 0.1)
        expected = compute(criterion, model, sample)
        found = compute(criterion, *packed(model, sample))
        assert_close(found[0], expected[0], "loss", 1e-6)
        for name, gradient in expected[2].items():
            assert_close(found[2][name], gradient, name, 1e-5)


REFUSED = {
    "--encoder-layerdrop 0.5": "LayerDrop",
    "--decoder-layerdrop 0.5": "LayerDrop",
    "--checkpoint-activations": "--checkpoint-activations",
    "--no-cross-attention": "--no-cross-attention",
    "--adaptive-softmax-cutoff 10,20": "--adaptive-softmax-cutoff",
    "--encoder-blocks 1,1 --encoder-ffn switch": "--encoder-ffn or --decoder-ffn switch",
    "--encoder-blocks 1,1 --encoder-token-mixer linformer": "--encoder-token-mixer with Linformer",
    "--quant-noise-pq 0.1 --quant-noise-pq-block-size 2": "quantisation noise",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_take_rows_says_why(build, words):
    arch = "transformer_ftc" if "--encoder-blocks" in words else "transformer"
    assert find_obstacle(build(*words.split(), arch=arch)) == REFUSED[words]


def test_hooks_do_not_take_rows(build):
    model = build("--encoder-blocks", "1,1")
    model.encoder.layers[0].register_forward_hook(lambda module, given, out: None)
    assert find_obstacle(model) == "hooks on its modules"


@pytest.mark.parametrize("name", ["ftc", "fastformer", "mscffn", "minimum"])
def test_sentences_of_padding_may_hold_anything(build, make_sample, name):
    model = build(*MODELS[name].split())
    criterion = LabelSmoothedCrossEntropyFused(TASK, False, 0.1)
    on, rows = packed(model, make_sample((5, 1, 7)), step=64)
    assert rows["target"].eq(PAD).sum() > 32
    expected = compute(criterion, on, rows)
    with torch.no_grad():
        model.encoder.embed_tokens.weight[PAD] = model.decoder.embed_tokens.weight[PAD] = torch.nan
    found = compute(criterion, on, rows)
    assert torch.equal(found[0], expected[0])
    for name, gradient in expected[2].items():
        assert torch.equal(found[2][name], gradient), name


@pytest.mark.parametrize("name", list(MODELS)[:6])
def test_the_kernels_of_pooling_that_are_checked_are_those_in_use(
    build, make_sample, monkeypatch, name
):
    """A training checks them before its first step, as a captured step cannot."""
    asked = []
    monkeypatch.setattr(kernels, "is_on_gpu", lambda x: True)
    monkeypatch.setattr(
        kernels, "usable", lambda x, *kernel: kernel[0] == "pooling" and asked.append(kernel)
    )
    model = build(*MODELS[name].split())
    on, rows = packed(model, make_sample((5, 1, 7)))
    run_criterion(LabelSmoothedCrossEntropyFused(TASK, False, 0.1), on, rows)
    pooling = {kernel for kernel in asked if kernel[0] == "pooling"}  # not that of the loss
    assert pooling == set(model.encoder.packed_kernels()) != set()


def test_projections_of_attention_are_neighbours(build):
    """Keys and values alone across, where all layers' are, and in the first layer of a later block.

    There queries have half the size.
    """
    model = build("--encoder-blocks", "1,1")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    store_projections_together(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    modules = model.named_modules()
    attentions = {name: m for name, m in modules if isinstance(m, MultiheadAttention)}
    together = [
        concatenate([m.q_proj, m.k_proj, m.v_proj][first:])[0].data_ptr()
        for name, m in attentions.items()
        for first in ["encoder_attn" in name or m.q_proj.in_features != m.k_proj.in_features]
    ]
    neighbours = {p.data_ptr() for m in attentions.values() for p in m.parameters()}
    assert len(together) == 4 and neighbours.issuperset(together)
    across = [layer.encoder_attn for layer in model.decoder.layers]
    of_all = [p for attention in across for p in (attention.k_proj, attention.v_proj)]
    assert concatenate(of_all)[0].data_ptr() == across[0].k_proj.weight.data_ptr()
