"""The decoder on real positions alone against fairseq's own forward: outputs and every gradient."""

import pytest
import torch

from fairseq_plugins.layers.dropout import FastDropout
from tests.batches import SIDES, assert_close, half

BASE = "--encoder-blocks 1,1 --decoder-layers 2 --training-path fast".split()
OPTIONS = {
    "post-norm": "",
    "pre-norm": "--encoder-normalize-before --decoder-normalize-before",
    "no final norm": "--decoder-normalize-before --no-decoder-final-norm",
    "mscffn": "--decoder-ffn mscffn",
    "layerdrop": "--decoder-layerdrop 0.5",
    "checkpointed": "--checkpoint-activations",
    "checkpointed mscffn": "--checkpoint-activations --decoder-ffn mscffn",
    "tied": "--share-decoder-input-output-embed",
    "embedding": "--layernorm-embedding --no-scale-embedding --decoder-learned-pos",
    "no positions": "--no-token-positional-embeddings --activation-fn gelu",
    "decoder alone": "--no-cross-attention",
    "other sizes": "--decoder-embed-dim 30 --decoder-output-dim 12",
    "fastformer": "--encoder-token-mixer fastformer",
}
LENGTHS = ((5, 1, 7), (3, 9, 2, 1), (4, 4), (1, 2, 3, 4, 5, 6, 7, 8, 9))


def compute(model, sample, packs, seed=3, **kwargs):
    """Features at real positions, and the gradients of a weighting of them."""
    model.decoder.packs = packs
    model.train().zero_grad()
    torch.manual_seed(seed)
    features, _ = model(**sample["net_input"], features_only=True, **kwargs)
    real = sample["net_input"]["prev_output_tokens"].ne(1)
    found = features[real]
    generator = torch.Generator().manual_seed(5)
    weights = torch.randn(found.shape, generator=generator, dtype=found.dtype)
    loss = (found * weights).sum()
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return found, gradients


def assert_same(model, sample, tolerance=1e-6, **kwargs):
    # fairseq's cross-attention normalises in float32, whatever the type of the model
    plain = compute(model, sample, False, **kwargs)
    packed = compute(model, sample, True, **kwargs)
    assert_close(packed[0], plain[0], "features", tolerance)
    assert sorted(packed[1]) == sorted(plain[1])
    for name, gradient in plain[1].items():
        assert_close(packed[1][name], gradient, name, 10 * tolerance)


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_equal_with_every_option(build, make_sample, name):
    model = build(*BASE, *OPTIONS[name].split())
    assert model.decoder.packs
    for lengths in LENGTHS[:2]:
        assert_same(model, make_sample(lengths))


@pytest.mark.parametrize("lengths, source_side, target_side", half(LENGTHS, SIDES, SIDES))
def test_equal_wherever_padding_is(
    build, make_sample, make_tokens, lengths, source_side, target_side
):
    model = build(*BASE)
    sample = make_sample(lengths, side=source_side)
    target_lengths = lengths[1:] + lengths[:1]
    width = max(lengths) + 2  # a whole column of padding
    previous = make_tokens(target_lengths, target_side, width, seed=4)
    sample["net_input"]["prev_output_tokens"] = previous
    assert_same(model, sample)


@pytest.mark.parametrize("mixer", ["softmax", "fastformer"])
def test_a_batch_without_a_target(build, make_sample, mixer):
    """As a process may get to take part in a step of the others: no features, zero gradients."""
    model = build(*BASE, "--encoder-token-mixer", mixer)
    sample = make_sample((2, 4))
    sample["net_input"]["prev_output_tokens"].fill_(1)
    features, gradients = compute(model, sample, packs=True)
    assert features.numel() == 0 and gradients
    assert not any(gradient.any() for gradient in gradients.values())


def test_features_at_padding_are_zero_and_poison_there_is_not_read(build, make_sample):
    """1e9 in the embedding of padding reaches no real position and no gradient but its own."""
    model = build(*BASE)
    sample = make_sample((5, 1, 7))
    expected = compute(model, sample, True)
    with torch.no_grad():
        model.decoder.embed_tokens.weight[1] = 1e9
    found = compute(model, sample, True)
    assert torch.equal(found[0], expected[0])
    for name, gradient in expected[1].items():
        assert torch.equal(found[1][name], gradient), name
    features = model(**sample["net_input"], features_only=True)[0]
    padding = sample["net_input"]["prev_output_tokens"].eq(1)
    assert padding.any() and not features[padding].any()


def test_everything_but_training_is_fairseqs_own_forward(build, make_sample, monkeypatch):
    model = build(*BASE)
    calls = []
    packed = model.decoder.extract_packed_features
    monkeypatch.setattr(
        model.decoder, "extract_packed_features", lambda *args: calls.append(args) or packed(*args)
    )
    words = make_sample((5, 1, 7))["net_input"]
    model.train()
    encoder_out = model.encoder(words["src_tokens"])
    model.decoder(words["prev_output_tokens"], encoder_out, full_context_alignment=True)
    model.decoder(words["prev_output_tokens"], encoder_out, incremental_state={})
    assert model(**words, alignment_layer=0)[1]["attn"][0] is not None
    model.eval()
    model(**words)
    assert not calls
    model.train()
    model(**words)
    assert len(calls) == 1


@pytest.mark.parametrize("dropout", ["--dropout", "--attention-dropout", "--activation-dropout"])
def test_dropout_acts_and_activation_checkpoints_repeat_it(build, make_sample, dropout):
    """Recomputed activations must see the same dropout, or gradients are those of nothing."""
    sample, words = make_sample((5, 1, 7)), [*BASE, dropout, "0.4"]
    plain, checkpointed = (
        compute(build(*words, *more), sample, True) for more in ([], ["--checkpoint-activations"])
    )
    other_seed = compute(build(*words), sample, True, seed=4)
    assert not torch.equal(plain[0], other_seed[0])
    assert torch.equal(plain[0], checkpointed[0])
    for name, gradient in plain[1].items():
        assert_close(checkpointed[1][name], gradient, name)


def test_in_half_precision_no_worse_than_the_plain_path(build, make_sample):
    sample = make_sample((5, 1, 7))
    exact, exact_gradients = compute(build(*BASE), sample, False)
    errors = []
    for packs in (False, True):
        found, gradients = compute(build(*BASE).bfloat16(), sample, packs)
        assert found.dtype == torch.bfloat16
        worst = max((gradients[n].double() - g).abs().max() for n, g in exact_gradients.items())
        errors.append(((found.double() - exact).abs().max(), worst))
    assert errors[1][0] <= 2 * errors[0][0] and errors[1][1] <= 2 * errors[0][1]
    assert errors[1][0] < 0.2


@pytest.mark.parametrize(
    "words, expected",
    [
        ("--encoder-blocks 1,1", True),
        ("--encoder-blocks 1,1 --training-path plain", False),
        ("--encoder-blocks 2 --time-window 1 --feature-window 1", False),
        ("--encoder-blocks 2 --time-window 1 --feature-window 1 --training-path fast", True),
        ("--encoder-blocks 2 --time-window 1 --feature-window 1 --decoder-ffn mscffn", True),
        ("--encoder-blocks 1,1 --cross-self-attention", False),
        ("--encoder-blocks 1,1 --checkpoint-activations --offload-activations", False),
    ],
)
def test_auto_is_fast_where_the_model_is_no_transformer(build, words, expected):
    model = build(*words.split(), "--dropout", "0.1", plain=True)
    assert getattr(model.decoder, "packs", False) == expected
    assert {layer.mixer.fast for layer in model.encoder.layers} == {expected}
    dropouts = {type(m) for m in model.modules() if type(m).__name__.endswith("Dropout")}
    assert (FastDropout in dropouts) == expected and len(dropouts) == 1
