"""Mixers that share `MultiHeadMixer`: each equals its reference, and costs what it says."""

from argparse import Namespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.modules.token_mixers import (
    TOKEN_MIXERS,
    BigBird,
    BigBirdOptions,
    Flowformer,
    Linformer,
    LinformerOptions,
    Longformer,
    LongformerOptions,
    MixerSpec,
    Performer,
    PerformerOptions,
    Poolingformer,
    PoolingformerOptions,
    SoftmaxAttention,
)
from fairseq_plugins.modules.token_mixers.linformer import SHARING
from fairseq_plugins.modules.token_mixers.performer import orthogonal_features
from tests.batches import (
    SIDES,
    assert_close,
    assert_same_function,
    leaves_of,
    make_sentences,
    pad,
    padding_mask,
    randomize,
    run_or_skip,
    unpad,
)
from tests.reference import multi_head
from tests.reference.bigbird import bigbird
from tests.reference.flowformer import flowformer
from tests.reference.linformer import linformer
from tests.reference.longformer import longformer
from tests.reference.performer import performer
from tests.reference.poolingformer import first_level, second_level

DIM, MEMORY_DIM, HEADS = 15, 21, 3
BIGBIRD = BigBirdOptions(block=2, window_blocks=3, global_blocks=1, random_blocks=2)
LONGFORMER = LongformerOptions(window=4, global_tokens=2)
POOLINGFORMER = PoolingformerOptions(window=4, pooling_window=10, kernel=5, stride=3)


def heads_of(projection, x):
    return multi_head.heads_of(x, projection.weight, projection.bias, HEADS)


def true_rows(mixer, x, memory, ratio):
    """What the equations say of one sentence, with the parameters of `mixer`."""
    q, k, v = (
        heads_of(projection, source)
        for projection, source in (
            (mixer.q_proj, x),
            (mixer.k_proj, memory),
            (mixer.v_proj, memory),
        )
    )
    heads = range(HEADS)
    if isinstance(mixer, Performer):
        out = [performer(q[h], k[h], v[h], mixer.directions) for h in heads]
    elif isinstance(mixer, Linformer):
        e, f = mixer.key_mixtures, mixer.value_mixtures
        e, f = (m.expand(HEADS, -1, -1) for m in (e, e if f is None else f))
        out = [linformer(q[h], k[h], v[h], e[h], f[h]) for h in heads]
    elif isinstance(mixer, Longformer):
        both = zip(
            q,
            k,
            v,
            heads_of(mixer.global_q_proj, x),
            heads_of(mixer.global_k_proj, memory),
            heads_of(mixer.global_v_proj, memory),
        )
        out = [longformer(*six, LONGFORMER.window, LONGFORMER.global_tokens, ratio) for six in both]
    elif isinstance(mixer, BigBird):
        sizes = (BIGBIRD.block, BIGBIRD.window_blocks, BIGBIRD.global_blocks, ratio)
        out = [bigbird(q[h], k[h], v[h], mixer.draws[h], *sizes) for h in heads]
    elif isinstance(mixer, Poolingformer):
        y = [first_level(q[h], k[h], v[h], POOLINGFORMER.window, ratio) for h in heads]
        joined = torch.cat(y, dim=1)
        q, k, v = (
            heads_of(projection, joined)
            for projection in (mixer.pooled_q_proj, mixer.pooled_k_proj, mixer.pooled_v_proj)
        )
        sizes = (POOLINGFORMER.pooling_window, POOLINGFORMER.stride)
        weights = list(zip(mixer.key_pooling, mixer.value_pooling))
        out = [y[h] + second_level(q[h], k[h], v[h], *weights[h], *sizes) for h in heads]
    else:
        out = [flowformer(q[h], k[h], v[h]) for h in heads]
    return multi_head.joined(out, mixer.out_proj.weight, mixer.out_proj.bias)


CASES = {
    "performer": (Performer, PerformerOptions(features=12)),
    "linformer": (Linformer, LinformerOptions(projected_length=4)),
    "longformer": (Longformer, LONGFORMER),
    "bigbird": (BigBird, BIGBIRD),
    "poolingformer": (Poolingformer, POOLINGFORMER),
    "flowformer": (Flowformer, None),
}
ALL = pytest.mark.parametrize("name", CASES)


def make(name, options=None, memory_dim=DIM, time_window=1, dim=DIM, heads=HEADS, dropout=0.0):
    torch.manual_seed(3)
    kind, default = CASES[name]
    spec = MixerSpec(
        dim, memory_dim, heads, dropout=dropout, max_positions=40, time_window=time_window
    )
    return kind(spec, options or default)


def check(mixer, lengths, memory_lengths=None, memory_dim=DIM, ratio=1, side="right", fill=0.0):
    """Batch computation equals the equations for each sentence: values and all gradients."""
    x = make_sentences(lengths, DIM)
    mask = padding_mask(lengths, side)
    memory, memory_mask = x, mask
    if memory_lengths is not None:
        memory = make_sentences(memory_lengths, memory_dim, seed=1)
        memory_mask = padding_mask(memory_lengths, side)

    def in_a_batch():
        padded = pad(x, mask, fill)
        padded_memory = padded if memory is x else pad(memory, memory_mask, fill)
        out = mixer(padded, padded_memory, mask, memory_mask)
        assert out.shape == padded.shape
        return unpad(out, mask)

    assert_same_function(
        in_a_batch,
        lambda: [true_rows(mixer, *pair, ratio) for pair in zip(x, memory)],
        leaves_of(mixer, x=x, **({} if memory is x else {"memory": memory})),
        tolerance=1e-9,
    )


@ALL
@pytest.mark.parametrize("side", SIDES)
def test_equals_the_reference(name, side):
    check(randomize(make(name)), (1, 13, 2, 5, 9), side=side, fill=float("nan"))


@ALL
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("ratio, lengths, memory_lengths", [
    (1, (3, 8), (3, 8)), (2, (7, 1, 3), (13, 1, 6)), (4, (4, 2), (13, 8)),
])  # fmt: skip
def test_pooled_queries_equal_the_reference(name, ratio, lengths, memory_lengths, side):
    mixer = randomize(make(name, memory_dim=MEMORY_DIM, time_window=ratio))
    check(mixer, lengths, memory_lengths, MEMORY_DIM, ratio, side, fill=1e9)


@pytest.mark.parametrize("sharing", SHARING)
def test_linformer_shares_its_mixtures(sharing):
    mixer = randomize(make("linformer", LinformerOptions(projected_length=4, sharing=sharing)))
    check(mixer, (5, 9))
    names = [name for name, _ in mixer.named_parameters() if name.endswith("mixtures")]
    assert len(names) == (1 if sharing == "key-value" else 2)
    assert len(mixer.key_mixtures) == (HEADS if sharing == "none" else 1)
    with pytest.raises(ValueError, match="40 positions, and has 41 .*--max-source-positions"):
        mixer(*[torch.zeros(41, 1, DIM).double()] * 2)


@pytest.mark.parametrize("name", ["longformer", "bigbird", "poolingformer"])
def test_chunks_of_queries_do_not_show(name):
    """A sentence of several chunks equals the reference, alone and beside a longer one."""
    mixer = randomize(make(name))
    (x,) = make_sentences((70,), DIM)
    x = x.detach().unsqueeze(1)
    alone = mixer(x, x)
    assert_close(alone.squeeze(1), true_rows(mixer, x.squeeze(1), x.squeeze(1), 1))
    longer = torch.cat([torch.randn(30, 1, DIM).double(), x])
    mask = padding_mask((100, 70), "left")
    batch = torch.cat([torch.randn(100, 1, DIM).double(), longer], dim=1)
    assert_close(mixer(batch, batch, mask, mask)[30:, 1:], alone)


class Count(TorchDispatchMode):
    """Numbers in the largest tensor that was computed, and in all of them."""

    def __init__(self):
        super().__init__()
        self.largest = self.all = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.largest = max(self.largest, out.numel())
            self.all += out.numel()
        return out


def cost(name, length):
    """Operations and numbers computed for a sentence of this length, and its largest tensor."""
    values = {full: option.default for full, option in TOKEN_MIXERS.options()}
    # with dropout torch's attention is not fused, so that its products are counted
    spec = MixerSpec(32, 32, 2, dropout=0.1, max_positions=4096)
    mixer = TOKEN_MIXERS.choose("mixer", Namespace(mixer=name, **values)).build(spec)
    x = torch.zeros(length, 1, 32, requires_grad=True)
    with FlopCounterMode(display=False) as operations, Count() as numbers:
        mixer(x, x).sum().backward()
    return operations.get_total_flops(), numbers.all, numbers.largest


@pytest.mark.parametrize("name", list(CASES) + ["fastformer"])
def test_cost_grows_linearly_with_length(name):
    """Lengths are beyond every window."""
    for short, long in zip(cost(name, 1024), cost(name, 2048)):
        assert long <= 2.01 * short


def test_softmax_attention_is_not_linear():
    """So that the test above can fail."""
    for short, long in zip(cost("softmax", 1024), cost("softmax", 2048)):
        assert long > 3 * short


@ALL
@pytest.mark.parametrize("time_window", [1, 2])
def test_scripted_equals_eager(name, time_window):
    mixer = randomize(make(name, time_window=time_window))
    scripted = torch.jit.script(mixer)
    x, memory = torch.randn(5, 2, DIM).double(), torch.randn(5 * time_window, 2, DIM).double()
    masks = padding_mask((5, 2), "left"), padding_mask((5 * time_window, 2 * time_window), "left")
    for given in ((None, None), masks):
        for _ in range(3):  # the third call is optimised
            assert_close(scripted(x, memory, *given), mixer(x, memory, *given), tolerance=1e-14)


@ALL
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_padding_alone_and_large_numbers_are_finite(name, dtype):
    mixer = make(name).to(dtype)
    mask = padding_mask((0, 5, 0))
    x = (30 * torch.randn(5, 3, DIM)).to(dtype).requires_grad_()
    out = run_or_skip(lambda: mixer(x, x, mask, mask))
    assert out.dtype == dtype and torch.isfinite(out).all()
    out.float().pow(2).mean().backward()
    for tensor in [x] + list(mixer.parameters()):
        assert torch.isfinite(tensor.grad).all()


@pytest.mark.parametrize("name", ["linformer", "longformer", "bigbird", "poolingformer"])
def test_dropout_acts_on_the_weights(name):
    """With all weights dropped only the bias is left."""
    mixer = randomize(make(name, dropout=0.999999)).train()
    x = torch.randn(9, 2, DIM).double()
    assert_close(mixer(x, x), mixer.out_proj.bias.expand(9, 2, DIM))


@pytest.mark.parametrize("name", ["performer", "flowformer"])
def test_order_of_positions_does_not_matter(name):
    mixer = randomize(make(name))
    x = torch.randn(9, 2, DIM).double()
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    assert_close(mixer(x[order], x[order]), mixer(x, x)[order])


def test_performer_estimates_softmax_attention():
    """More features, a smaller error: 16 times as many, about a quarter."""
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


def test_performer_draws_again_and_resumes():
    """Features follow from the checkpoint's seed and the number of updates."""
    mixer = make("performer", PerformerOptions(features=12, redraw=10))
    first = mixer.directions.clone()
    mixer.set_num_updates(9)
    assert torch.equal(mixer.directions, first)
    mixer.set_num_updates(10)
    second = mixer.directions.clone()
    assert not torch.allclose(second, first)

    torch.manual_seed(99)
    other = Performer(MixerSpec(DIM, DIM, HEADS), PerformerOptions(features=12, redraw=10))
    other.load_state_dict(mixer.state_dict())
    assert torch.equal(other.directions, second)
    other.set_num_updates(19)
    assert torch.equal(other.directions, second)
    for one in (mixer, other):
        one.set_num_updates(20)
    assert torch.equal(other.directions, mixer.directions)
    fixed = make("performer")
    before = fixed.directions.clone()
    fixed.set_num_updates(10**6)
    assert torch.equal(fixed.directions, before)


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


@pytest.mark.parametrize("mixer, values, words", [
    (Performer, PerformerOptions(features=0), ["--performer-features", "0"]),
    (Performer, PerformerOptions(redraw=-1), ["--performer-redraw", "-1"]),
    (Linformer, LinformerOptions(projected_length=0), ["--linformer-projected-length", "0"]),
    (Longformer, LongformerOptions(window=7), ["--longformer-window", "7", "even"]),
    (Longformer, LongformerOptions(global_tokens=0), ["--longformer-global-tokens", "0"]),
    (BigBird, BigBirdOptions(window_blocks=2), ["--bigbird-window-blocks", "2", "odd"]),
    (BigBird, BigBirdOptions(block=0), ["--bigbird-block", "0"]),
    (Poolingformer, PoolingformerOptions(pooling_window=1), ["--poolingformer-pooling-window"]),
    (Poolingformer, PoolingformerOptions(kernel=4), ["--poolingformer-kernel", "4", "odd"]),
    (Poolingformer, PoolingformerOptions(stride=0), ["--poolingformer-stride", "0"]),
])  # fmt: skip
def test_mistakes_are_named(mixer, values, words):
    with pytest.raises(ConfigurationError) as error:
        mixer.complete(values, [])
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)
