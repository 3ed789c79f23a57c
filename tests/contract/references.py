"""The slow reference of every registered part, told the parameters of a module.

Which equation is meant is read from the options, never from the module, so that an option that does
not arrive makes a difference.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tests.reference import feed_forward
from tests.reference.attention import linear
from tests.reference.bigbird import bigbird
from tests.reference.fastformer import fastformer
from tests.reference.flowformer import flowformer
from tests.reference.linear_attention import linear_attention
from tests.reference.linformer import linformer
from tests.reference.longformer import longformer
from tests.reference.multi_head import attend_all, heads_of, joined
from tests.reference.performer import performer
from tests.reference.poolingformer import first_level, second_level

Options = dict[str, Any]


class Reference(NamedTuple):
    """What a part computes for one sentence, and what the contract is tried with.

    rows: of a token mixer (module, heads, options, x, memory, pooled), of a feed-forward network
        (module, options, x), to `T x d`. `pooled` positions of memory were pooled into one of x.
    options: each a set of options that is tried.
    forms: if a module has several ways to the same numbers, what makes it take each.
    outputs: the least and the greatest deviation of what it computes of features of deviation 1,
        when training begins.
    scores: the same of a mixer's scores, as a multiple of softmax attention's.
    """

    rows: Callable[..., Tensor]
    outputs: tuple[float, float]
    options: Sequence[Options] = ({},)
    forms: dict[str, Callable[[nn.Module], None]] = {"only": lambda module: None}
    scores: tuple[float, float] = (0.5, 2.0)


def weights(*layers: nn.Module) -> list[Tensor]:
    """The weight and the bias of each layer, zeros where it has none."""
    found = []
    for layer in layers:
        bias = layer.bias
        found += [layer.weight, layer.weight.new_zeros(len(layer.weight)) if bias is None else bias]
    return found


def multi_head(one_head: Callable[..., Sequence[Tensor]]) -> Callable[..., Tensor]:
    """The rows of a mixer, from a function that gives the result of each head.

    `one_head` gets, for each head, its number and its queries, keys and values, None for those that
    the mixer has no projection for; and the mixer, options, x, memory, and the number of positions
    that were pooled into one of x.
    """

    def rows(
        mixer: nn.Module, heads: int, options: Options, x: Tensor, memory: Tensor, pooled: int = 1
    ) -> Tensor:
        projections = ((getattr(mixer, f"{name}_proj", None), name) for name in "qkv")
        found = (
            heads_of(x if name == "q" else memory, *weights(projection), heads)
            if projection is not None
            else [None] * heads
            for projection, name in projections
        )
        each = list(zip(range(heads), *found))
        return joined(one_head(each, mixer, options, x, memory, pooled), *weights(mixer.out_proj))

    return rows


@multi_head
def attention_rows(each, attention, options, x, memory, pooled):
    return [attend_all(q, k, v) for _, q, k, v in each]


def softmax_rows(mixer, *given):
    return attention_rows(mixer.attention, *given)


@multi_head
def linear_rows(each, mixer, options, x, memory, pooled):
    return [linear_attention(q, k, v) for _, q, k, v in each]


def fastformer_rows(mixer, heads, options, x, memory, pooled=1):
    sharing = options.get("sharing", "query-value,layer").split(",")
    assert (mixer.v_proj is None) == ("query-value" in sharing)

    def split(source, layer):
        if "head" in sharing:  # one weight `s x d_in / heads`, for the head's slice of the features
            return [linear(part, *weights(layer)) for part in source.chunk(heads, dim=1)]
        return heads_of(source, *weights(layer), heads)

    q, k = split(x, mixer.q_proj), split(memory, mixer.k_proj)
    v = q if mixer.v_proj is None else split(x, mixer.v_proj)
    scores = (score.expand(heads, -1) for score in (mixer.query_score, mixer.key_score))
    interaction = options.get("interaction", "product")
    each = [fastformer(*given, interaction) for given in zip(q, k, v, *scores)]
    return joined(each, *weights(mixer.out_proj)) + torch.cat(q, dim=1)


@multi_head
def performer_rows(each, mixer, options, x, memory, pooled):
    assert len(mixer.directions) == options["features"]
    return [performer(q, k, v, mixer.directions) for _, q, k, v in each]


@multi_head
def linformer_rows(each, mixer, options, x, memory, pooled):
    sharing, e, f = options.get("sharing", "head"), mixer.key_mixtures, mixer.value_mixtures
    assert e.shape[:2] == (len(each) if sharing == "none" else 1, options["projected_length"])
    assert (f is None) == (sharing == "key-value")
    e, f = (m.expand(len(each), -1, -1) for m in (e, e if f is None else f))
    return [linformer(q, k, v, e[h], f[h]) for h, q, k, v in each]


@multi_head
def longformer_rows(each, mixer, options, x, memory, pooled):
    projections = (
        (mixer.global_q_proj, x),
        (mixer.global_k_proj, memory),
        (mixer.global_v_proj, memory),
    )
    others = zip(*(heads_of(source, *weights(p), len(each)) for p, source in projections))
    sizes = (options["window"], options["global_tokens"], pooled)
    return [longformer(*own, *other, *sizes) for (_, *own), other in zip(each, others)]


@multi_head
def bigbird_rows(each, mixer, options, x, memory, pooled):
    assert mixer.draws.size(2) == options["random_blocks"]
    sizes = (options["block"], options["window_blocks"], options["global_blocks"], pooled)
    return [bigbird(q, k, v, mixer.draws[h], *sizes) for h, q, k, v in each]


@multi_head
def poolingformer_rows(each, mixer, options, x, memory, pooled):
    y = [first_level(q, k, v, options["window"], pooled) for _, q, k, v in each]
    projections = (mixer.pooled_q_proj, mixer.pooled_k_proj, mixer.pooled_v_proj)
    again = zip(*(heads_of(torch.cat(y, dim=1), *weights(p), len(each)) for p in projections))
    assert mixer.key_pooling.size(1) == mixer.value_pooling.size(1) == options["kernel"]
    pooling = list(zip(mixer.key_pooling, mixer.value_pooling))
    sizes = (options["pooling_window"], options["stride"])
    z = [second_level(*qkv, *pooling[h], *sizes) for h, qkv in enumerate(again)]
    return [first + second for first, second in zip(y, z)]


@multi_head
def flowformer_rows(each, mixer, options, x, memory, pooled):
    return [flowformer(q, k, v) for _, q, k, v in each]


def standard_rows(ffn: nn.Module, options: Options, x: Tensor) -> Tensor:
    return feed_forward.standard(x, *weights(ffn.fc1, ffn.fc2))


def mscffn_rows(ffn: nn.Module, options: Options, x: Tensor) -> Tensor:
    assert len(ffn.expand_weight) == int(options.get("subspaces", 12))
    return feed_forward.mscffn(
        x,
        *weights(ffn.in_proj),
        ffn.expand_weight.transpose(1, 2),
        ffn.expand_bias.squeeze(1),
        ffn.contract_weight.transpose(1, 2),
        ffn.contract_bias.squeeze(1),
        *weights(ffn.out_proj),
    )


def low_dimensional_rows(ffn: nn.Module, options: Options, x: Tensor) -> Tensor:
    assert ffn.fc1.out_features == round(5**0.5 / 2 * x.size(1))
    return standard_rows(ffn, options, x)


def switch_rows(ffn: nn.Module, options: Options, x: Tensor) -> Tensor:
    assert len(ffn.experts) == options["experts"]

    def run(expert: nn.Module) -> Callable[[Tensor], Tensor]:
        return lambda row: standard_rows(expert, {}, row)

    return feed_forward.switch(list(x), ffn.router, [run(e) for e in ffn.experts])[0]


def having(**values: bool) -> Callable[[nn.Module], None]:
    """What sets attributes of a module."""
    return lambda module: vars(module).update(values)


def set_few_draws(mixer: nn.Module) -> None:
    mixer.draws = mixer.draws[:, :4]


MIXERS: dict[str, Reference] = {
    "softmax": Reference(softmax_rows, (0.1, 0.2)),
    "linear": Reference(linear_rows, (0.08, 0.2)),
    "performer": Reference(performer_rows, (0.1, 0.25), options=[{"features": 12}]),
    "linformer": Reference(
        linformer_rows,
        (0.25, 0.6),  # means of fewer positions than softmax attention's
        options=[
            {"projected_length": 4},
            {"projected_length": 3, "sharing": "none"},
            {"projected_length": 3, "sharing": "key-value"},
        ],
    ),
    "longformer": Reference(
        longformer_rows,
        (0.25, 0.6),
        options=[{"window": 4, "global_tokens": 2}, {"window": 2, "global_tokens": 1}],
    ),
    "bigbird": Reference(
        bigbird_rows,
        (0.2, 0.6),
        options=[
            {"block": block, "window_blocks": window, "global_blocks": first, "random_blocks": r}
            for block, window, first, r in ((2, 3, 1, 2), (1, 1, 0, 3), (3, 1, 1, 0))
        ],
        forms={"few draws": set_few_draws},
    ),
    "poolingformer": Reference(
        poolingformer_rows,
        (0.3, 0.75),  # of two levels
        options=[
            {"window": 4, "pooling_window": 10, "kernel": 5, "stride": 3},
            {"window": 2, "pooling_window": 4, "kernel": 3, "stride": 4},
        ],
    ),
    "flowformer": Reference(flowformer_rows, (0.06, 0.15)),
    "fastformer": Reference(
        fastformer_rows,
        (0.6, 1.2),  # the queries are added
        options=[
            {"interaction": interaction, "sharing": sharing}
            for interaction in ("product", "add", "concat")
            for sharing in ("none", "query-value", "head", "query-value,head,layer")
        ],
        forms={
            "plain": having(reassociate=False, fold=False),
            "keyless": having(reassociate=True, fold=False),
            "folded": having(reassociate=True, fold=True),
        },
        scores=(0.1, 1.0),  # of one vector a position, with variance 1 / (2 s)
    ),
}
FEED_FORWARDS: dict[str, Reference] = {
    "standard": Reference(standard_rows, (0.15, 0.4)),
    "low_dimensional": Reference(low_dimensional_rows, (0.15, 0.4)),
    "switch": Reference(switch_rows, (0.08, 0.25), options=[{"experts": 3, "capacity_factor": 0}]),
    "mscffn": Reference(
        mscffn_rows,
        (0.12, 0.4),
        options=[
            {"subspaces": 2, "expansion": 1},
            {"subspaces": 6, "expansion": 3},
            {"subspaces": 24, "expansion": 2},
            {},
        ],
        forms={"plain": having(chunked=False), "chunked": having(chunked=True)},
    ),
}
