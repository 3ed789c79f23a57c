"""What the mixers on `MultiHeadMixer` do beyond the contract of all parts."""

import pytest
import torch

from fairseq_plugins.layers.token_mixers import (
    TOKEN_MIXERS,
    BigBird,
    BigBirdOptions,
    MixerSpec,
    Performer,
    PerformerOptions,
    SoftmaxAttention,
)
from fairseq_plugins.layers.token_mixers.performer import orthogonal_features
from tests.batches import assert_close, make_sentences, pad, padding_mask, randomize, unpad
from tests.contract.references import MIXERS

DIM, MEMORY_DIM, HEADS = 15, 21, 3


def make(name, options=None, memory_dim=DIM, time_window=1, dropout=0.0):
    """With the options that the contract tries first, unless others are given."""
    torch.manual_seed(3)
    part, kind = TOKEN_MIXERS._parts[name]
    spec = MixerSpec(
        DIM, memory_dim, HEADS, dropout=dropout, max_positions=40, time_window=time_window
    )
    return part(spec, kind(**(options or MIXERS[name].options[0])))


def true_rows(name, mixer, *inputs, options=None):
    return MIXERS[name].rows(mixer, HEADS, options or MIXERS[name].options[0], *inputs)


@pytest.mark.parametrize("name, options", [
    ("longformer", {"window": 4, "global_tokens": 1}),
    ("longformer", {"window": 2**20, "global_tokens": 2**20}),
    ("bigbird", {"block": 2, "window_blocks": 3, "global_blocks": 0, "random_blocks": 1}),
    ("bigbird", {"block": 2, "window_blocks": 99, "global_blocks": 99, "random_blocks": 9}),
    ("bigbird", {"block": 2**20, "window_blocks": 1, "global_blocks": 0, "random_blocks": 1}),
    ("poolingformer", {"window": 2**20, "pooling_window": 2**20, "kernel": 31, "stride": 2}),
    ("poolingformer", {"window": 2, "pooling_window": 2**20, "kernel": 3, "stride": 99}),
])  # fmt: skip
def test_windows_beyond_the_sentence(name, options):
    """Also with a memory longer or shorter than the queries; then a query may see no key."""
    mixer = randomize(make(name, options))
    for lengths, memory_lengths in (((9, 3), (4, 2)), ((4, 2), (9, 3))):
        x, memory = make_sentences(lengths, DIM), make_sentences(memory_lengths, DIM, seed=1)
        mask, memory_mask = padding_mask(lengths), padding_mask(memory_lengths)
        out = mixer(pad(x, mask), pad(memory, memory_mask), mask, memory_mask)
        for found, *pair in zip(unpad(out, mask), x, memory):
            assert_close(found, true_rows(name, mixer, *pair, options=options))


def test_a_graph_has_room_for_all_global_tokens_or_none():
    options = {"block": 3, "window_blocks": 1, "global_blocks": 0, "random_blocks": 1}
    assert make("bigbird", options).length_multiple() == 3
    assert make("longformer", {"window": 4, "global_tokens": 40}).length_multiple() == 64


def test_linformer_refuses_longer_sentences():
    mixer = make("linformer")
    x = torch.zeros(41, 1, DIM)
    assert mixer(x[1:], x[1:]).shape == x[1:].shape
    with pytest.raises(ValueError, match="41 positions, .* built for 40: .*--max-source-positions"):
        mixer(x, x)


@pytest.mark.parametrize("name", ["longformer", "bigbird", "poolingformer"])
def test_several_chunks_equal_the_reference(name):
    """A sentence of several chunks equals the reference, alone and beside a longer one."""
    mixer = randomize(make(name))
    (x,) = make_sentences((70,), DIM)
    x = x.detach().unsqueeze(1)
    alone = mixer(x, x)
    assert_close(alone.squeeze(1), true_rows(name, mixer, x.squeeze(1), x.squeeze(1)))
    longer = torch.cat([torch.randn(30, 1, DIM).double(), x])
    mask = padding_mask((100, 70), "left")
    batch = torch.cat([torch.randn(100, 1, DIM).double(), longer], dim=1)
    assert_close(mixer(batch, batch, mask, mask)[30:, 1:], alone)


@pytest.mark.parametrize("name", ["linformer", "longformer", "bigbird", "poolingformer"])
def test_dropout_acts_on_the_weights(name):
    """With all weights dropped only the bias is left."""
    mixer = randomize(make(name, dropout=0.999999)).train()
    x = torch.randn(9, 2, DIM).double()
    assert_close(mixer(x, x), mixer.out_proj.bias.expand(9, 2, DIM))


def test_performer_estimates_softmax_attention():
    """16 times as many features give about a quarter of the error."""
    torch.manual_seed(0)
    x = torch.randn(20, 4, 32) / 2
    spec = MixerSpec(32, 32, 2)
    truth = SoftmaxAttention(spec).eval()
    errors = []
    for features in (64, 1024):
        mixer = Performer(spec, PerformerOptions(features=features))
        mixer.load_state_dict(truth.attention.state_dict(), strict=False)
        errors.append((mixer(x, x) - truth(x, x)).norm().item() / truth(x, x).norm().item())
    assert errors[0] < 0.3
    assert errors[1] < 0.4 * errors[0]


def test_performer_features_are_orthogonal_and_gaussian():
    drawn = orthogonal_features(4000, 8, torch.Generator().manual_seed(0))
    for group in drawn.view(500, 8, 8)[:5]:
        products = group @ group.t()
        assert_close(products, torch.diag(products.diag()))
    assert_close(drawn.mean(dim=0), torch.zeros(8).double(), tolerance=0.06)
    assert_close(drawn.t() @ drawn / 4000, torch.eye(8).double(), tolerance=0.06)
    assert drawn.norm(dim=1).std() > 0.5


def test_bigbird_draws_other_blocks_for_each_head_and_block():
    mixer = BigBird(MixerSpec(16, 16, 4), BigBirdOptions(block=1, window_blocks=1))
    picks = mixer._random_blocks(torch.tensor([1000]), 1000)[0]  # h x blocks x 2
    assert len({tuple(row.flatten().tolist()) for row in picks}) == 4
    assert (picks[..., 0] != picks[..., 1]).all() and (
        picks != torch.arange(1000).view(-1, 1)
    ).all()
    assert picks.min() == 2 and picks.max() == 999
    counts = torch.bincount(picks.flatten(), minlength=1000)[2:]  # 8,000 draws of 998 blocks
    assert counts.float().var() < 2 * counts.float().mean()


def test_bigbirds_blocks_are_in_checkpoints():
    """Another seed draws others; the state of the first gives the same output."""
    options = BigBirdOptions(block=2, window_blocks=1, random_blocks=1)
    mixers = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        mixers.append(BigBird(MixerSpec(DIM, DIM, HEADS), options).double().eval())
    x = torch.randn(40, 1, DIM).double()
    state = mixers[0].state_dict()
    parameters = {name: value for name, value in state.items() if name != "draws"}
    mixers[1].load_state_dict(parameters, strict=False)
    assert not torch.allclose(mixers[0](x, x), mixers[1](x, x))
    mixers[1].load_state_dict(state)
    assert torch.equal(mixers[0](x, x), mixers[1](x, x))
