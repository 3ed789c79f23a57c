"""The slow reference of every registered part, told the parameters of a module.

Which equation is meant is read from the options, never from the module, so that an option that does
not arrive makes a difference.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Sequence

from torch import Tensor, nn

from tests.reference import feed_forward
from tests.reference.attention import softmax_attention
from tests.reference.fastformer import fastformer
from tests.reference.linear_attention import linear_attention

Options = Dict[str, Any]


class Reference(NamedTuple):
    """What a part computes for one sentence, and what the contract is tried with.

    rows: of a token mixer (module, heads, options, x, memory), of a feed-forward network (module,
        options, x), to `T x d`.
    options: each a set of options that is tried.
    forms: if a module has several ways to the same numbers, what makes it take each.
    """

    rows: Callable[..., Tensor]
    options: Sequence[Options] = ({},)
    forms: Dict[str, Callable[[nn.Module], None]] = {"only": lambda module: None}


def weights(*layers: nn.Module) -> List[Tensor]:
    return [tensor for layer in layers for tensor in (layer.weight, layer.bias)]


def softmax_rows(mixer: nn.Module, heads: int, options: Options, *inputs: Tensor) -> Tensor:
    a = mixer.attention
    return softmax_attention(*inputs, heads, *weights(a.q_proj, a.k_proj, a.v_proj, a.out_proj))


def linear_rows(mixer: nn.Module, heads: int, options: Options, *inputs: Tensor) -> Tensor:
    m = mixer
    return linear_attention(*inputs, heads, *weights(m.q_proj, m.k_proj, m.v_proj, m.out_proj))


def fastformer_rows(mixer: nn.Module, heads: int, options: Options, *inputs: Tensor) -> Tensor:
    sharing = options.get("sharing", "query-value,layer").split(",")
    shares_values = "query-value" in sharing
    assert (mixer.v_proj is None) == shares_values
    return fastformer(
        *inputs,
        heads,
        *weights(mixer.q_proj, mixer.k_proj, mixer.q_proj if shares_values else mixer.v_proj),
        mixer.query_score.expand(heads, -1),
        mixer.key_score.expand(heads, -1),
        *weights(mixer.out_proj),
        interaction=options.get("interaction", "product"),
        head_sharing="head" in sharing,
    )


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


def set_fastformer(reassociate: bool, fold: bool) -> Callable[[nn.Module], None]:
    def force(mixer: nn.Module) -> None:
        mixer.reassociate, mixer.fold = reassociate, fold

    return force


def set_chunked(chunked: bool) -> Callable[[nn.Module], None]:
    def force(ffn: nn.Module) -> None:
        ffn.chunked = chunked

    return force


MIXERS: Dict[str, Reference] = {
    "softmax": Reference(softmax_rows),
    "linear": Reference(linear_rows),
    "fastformer": Reference(
        fastformer_rows,
        options=[
            {"interaction": interaction, "sharing": sharing}
            for interaction in ("product", "add", "concat")
            for sharing in ("none", "query-value", "head", "query-value,head,layer")
        ],
        forms={
            "plain": set_fastformer(False, False),
            "keyless": set_fastformer(True, False),
            "folded": set_fastformer(True, True),
        },
    ),
}
FEED_FORWARDS: Dict[str, Reference] = {
    "standard": Reference(standard_rows),
    "mscffn": Reference(
        mscffn_rows,
        options=[
            {"subspaces": 2, "expansion": 1},
            {"subspaces": 6, "expansion": 3},
            {"subspaces": 24, "expansion": 2},
            {},
        ],
        forms={"plain": set_chunked(False), "chunked": set_chunked(True)},
    ),
}
