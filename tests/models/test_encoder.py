"""The whole encoder against the equations, and what padding and neighbours must not change."""

import pytest
import torch

from fairseq_plugins.errors import ConfigurationError
from tests.batches import (
    SIDES,
    assert_close,
    assert_same_function,
    half,
    unpad,
    value_and_gradients,
)
from tests.models.truth import true_encoder_rows

CONFIGURATIONS = {
    "one block": "--encoder-blocks 2 --time-window 1 --feature-window 1",
    "sum without compression": "--encoder-blocks 2,1 --time-window 1 --feature-window 1",
    "time": "--encoder-blocks 2,1,1 --time-window 2 --feature-window 1",
    "feature": "--encoder-blocks 2,1,1 --time-window 1 --feature-window 2",
    "both": "--encoder-blocks 2,1,1 --time-window 2 --feature-window 2",
    "windows that differ": "--encoder-blocks 1,2 --time-window 3 --feature-window 4",
    "wide time window": "--encoder-blocks 1,1 --time-window 4 --feature-window 3"
    " --mscffn-subspaces 4",
    "max, then linear": "--encoder-blocks 1,2,1 --time-window 2 --feature-window 2"
    " --time-pooling max --feature-pooling linear",
    "min, then mean": "--encoder-blocks 1,2 --time-window 2 --feature-window 2"
    " --time-pooling min --feature-pooling mean",
    "mean, then max": "--encoder-blocks 1,2 --time-window 2 --feature-window 2"
    " --feature-pooling max",
    "max, then min": "--encoder-blocks 1,2 --time-window 2 --feature-window 2"
    " --time-pooling max --feature-pooling min",
}
MIXERS = ("fastformer", "linear", "softmax")
FEED_FORWARDS = ("standard", "mscffn")
COMPRESSIONS = {
    "none": "--encoder-blocks 2 --time-window 1 --feature-window 1",
    "time": "--encoder-blocks 1,1 --time-window 2 --feature-window 1",
    "feature": "--encoder-blocks 1,1 --time-window 1 --feature-window 2",
    "both": "--encoder-blocks 1,1,1 --time-window 2 --feature-window 2",
}


def encoder_leaves(model):
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if name.startswith("encoder.") and parameter.requires_grad
    }


def encode(model, tokens):
    """The real rows of each sentence, out of a batch."""
    encoder = model.encoder
    mask = tokens.eq(encoder.padding_idx)
    out = encoder(tokens, src_lengths=(~mask).sum(dim=1))
    rows = out["encoder_out"][0]
    assert rows.shape == (tokens.size(1), tokens.size(0), 24)
    # a sentence without a token has nothing to attend to: its padding counts as real
    assert torch.equal(out["encoder_padding_mask"][0], mask & ~mask.all(dim=1, keepdim=True))
    assert torch.isfinite(rows).all()
    return unpad(rows, mask)


@pytest.mark.parametrize(
    "configuration, pre_norm, side", half(sorted(CONFIGURATIONS), (False, True), SIDES)
)
def test_encoder_equals_the_reference(build, make_tokens, configuration, pre_norm, side):
    """In a batch, padded by more than is needed, against each sentence alone.

    1e9 is in every padded position of the input of every layer.
    """
    words = CONFIGURATIONS[configuration].split()
    # the mixers and feed-forward networks in turn, each with each
    number = sorted(CONFIGURATIONS).index(configuration) + 2 * pre_norm
    words += ["--encoder-token-mixer", MIXERS[number % 3]]
    words += ["--encoder-ffn", FEED_FORWARDS[number // 2 % 2]]
    words += ["--encoder-normalize-before"] if pre_norm else []
    model = build(*words)
    tokens, poisoned = make_tokens((4, 1, 7, 2, 9), side, 9 + 3 * pre_norm), []

    def poison(layer, args):
        x, mask = args[:2]
        poisoned.append(int(mask.sum()))
        return (x.masked_fill(mask.t().unsqueeze(-1), 1e9), *args[1:])

    for layer in model.encoder.layers:
        layer.register_forward_pre_hook(poison)
    assert_same_function(
        lambda: encode(model, tokens),
        lambda: [true_encoder_rows(model.encoder, words, row[row.ne(1)]) for row in tokens],
        encoder_leaves(model),
        tolerance=1e-9,
    )
    assert len(poisoned) == len(model.encoder.layers) and min(poisoned) > 0


CHOICES = MIXERS, FEED_FORWARDS, sorted(COMPRESSIONS)


def build_combination(build, mixer, feed_forward, compression):
    words = (
        f"--encoder-token-mixer {mixer} --encoder-ffn {feed_forward} {COMPRESSIONS[compression]}"
    )
    return build(*words.split())


@pytest.mark.parametrize("mixer, feed_forward, compression", half(*CHOICES))
def test_a_sentence_of_padding_alone_leaves_the_others_alone(
    build, make_tokens, mixer, feed_forward, compression
):
    model = build_combination(build, mixer, feed_forward, compression)
    leaves = encoder_leaves(model)
    some = make_tokens((5, 3))
    with_empty = torch.cat([some, torch.ones(1, 5, dtype=torch.long)])

    outputs, gradients = value_and_gradients(lambda: encode(model, some), leaves)
    found, found_gradients = value_and_gradients(lambda: encode(model, with_empty)[:2], leaves)
    for a, b in zip(found, outputs):
        assert_close(a, b, tolerance=1e-11)
    for name in leaves:
        assert_close(found_gradients[name], gradients[name], name, 1e-9)


def test_hidden_states_are_returned_on_request(build, make_tokens):
    model = build(*"--encoder-blocks 2,1 --time-window 2 --feature-window 2".split())
    out = model.encoder(make_tokens((4, 2)), return_all_hiddens=True)
    sizes = [tuple(state.shape) for state in out["encoder_states"]]
    assert sizes == [(4, 2, 24)] * 3 + [(2, 2, 12)]


@pytest.mark.parametrize(
    "words, distinct",
    [
        ("--encoder-blocks 4 --time-window 1 --feature-window 1", 1),
        ("--encoder-blocks 2,2 --time-window 1 --feature-window 1", 1),
        ("--encoder-blocks 2,2 --time-window 2 --feature-window 1", 1),
        ("--encoder-blocks 2,2 --feature-window 2", 3),  # d; d to d / 2; d / 2
        ("--encoder-blocks 1,3,2 --feature-window 2", 5),
    ],
)
def test_layers_of_one_size_share_their_mixer(build, words, distinct):
    words = words.split() + ["--encoder-token-mixer", "fastformer"]
    for sharing, expected in (("layer", distinct), ("query-value", None), ("none", None)):
        layers = build(*words, "--fastformer-sharing", sharing).encoder.layers
        assert len({id(layer.mixer) for layer in layers}) == (expected or len(layers))
        # the rest of a layer is its own
        assert len({id(layer.ffn) for layer in layers}) == len(layers)
        assert len({id(layer.self_attn_layer_norm) for layer in layers}) == len(layers)


def test_layers_that_differ_do_not_load_into_a_shared_mixer(build):
    words = "--encoder-blocks 3 --time-window 1 --feature-window 1".split()
    words += ["--encoder-token-mixer", "fastformer"]
    state = build(*words, "--fastformer-sharing", "query-value").state_dict()
    shared = build(*words)
    with pytest.raises(ConfigurationError, match="layers 0 and 1 share .*--fastformer-sharing"):
        shared.load_state_dict(dict(state))
    shared.load_state_dict(shared.state_dict())
    dropped = build(*words, "--encoder-layerdrop", 0.9)
    with pytest.raises(ConfigurationError, match="layers 0 and 1 share .*--fastformer-sharing"):
        dropped.train().load_state_dict(dict(state))


def test_mixers_know_how_many_positions_were_pooled(build):
    """And sharing over layers does not look at it: the same size is the same mixer."""
    words = ["--encoder-blocks", "2,2,1", "--time-window", 3, "--feature-window", 1]
    layers = build(*words, "--encoder-token-mixer", "longformer").encoder.layers
    assert [layer.mixer.window.ratio for layer in layers] == [1, 1, 3, 1, 3]
    layers = build(*words, "--encoder-token-mixer", "fastformer").encoder.layers
    assert len({id(layer.mixer) for layer in layers}) == 1
