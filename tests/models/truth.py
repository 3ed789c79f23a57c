"""The ground truth's view of a model's encoder: its parameters, and the words it was asked for by.

What is to be computed is read from the command line, never from the model, so that an option that
does not arrive makes a difference.
"""

from typing import Callable, Dict, Sequence

from torch import Tensor, nn

from tests.reference import feed_forward
from tests.reference.attention import softmax_attention
from tests.reference.compression import pool_features, pool_time
from tests.reference.encoder import Block, Layer, encode, identity, layer_norm
from tests.reference.fastformer import fastformer

HEADS = 2
DEFAULTS = {
    "time-pooling": "mean",
    "feature-pooling": "mean",
    "encoder-token-mixer": "softmax",
    "fastformer-interaction": "product",
    "fastformer-sharing": "query-value,layer",
    "encoder-ffn": "standard",
}


def choices_of(words: Sequence[str]) -> Dict[str, str]:
    """`--option value` pairs; flags get "yes"; a later option wins."""
    choices = dict(DEFAULTS)
    following = list(words[1:]) + ["--"]
    for word, value in zip(words, following):
        if word.startswith("--"):
            choices[word[2:]] = "yes" if value.startswith("--") else value
    return choices


def weights(*layers: nn.Module) -> Sequence[Tensor]:
    return [parameter for layer in layers for parameter in (layer.weight, layer.bias)]


def attention_of(a: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    parameters = weights(a.q_proj, a.k_proj, a.v_proj, a.out_proj)
    return lambda x, memory: softmax_attention(x, memory, HEADS, *parameters)


def mixer_of(module: nn.Module, choices: Dict[str, str]) -> Callable[[Tensor, Tensor], Tensor]:
    if choices["encoder-token-mixer"] == "softmax":
        return attention_of(module.attention)
    sharing = choices["fastformer-sharing"].split(",")
    shared_values = "query-value" in sharing
    assert (module.v_proj is None) == shared_values
    return lambda x, memory: fastformer(
        x,
        memory,
        HEADS,
        *weights(module.q_proj, module.k_proj, module.q_proj if shared_values else module.v_proj),
        module.query_score.expand(HEADS, -1),
        module.key_score.expand(HEADS, -1),
        *weights(module.out_proj),
        interaction=choices["fastformer-interaction"],
        head_sharing="head" in sharing,
    )


def standard_of(fc1: nn.Module, fc2: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: feed_forward.standard(x, *weights(fc1, fc2))


def mscffn_of(module: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: feed_forward.mscffn(
        x,
        *weights(module.in_proj),
        module.expand_weight.transpose(1, 2),
        module.expand_bias.squeeze(1),
        module.contract_weight.transpose(1, 2),
        module.contract_bias.squeeze(1),
        *weights(module.out_proj),
    )


def norm_of(module: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: layer_norm(x, *weights(module))


def pool_of(module: nn.Module, choices: Dict[str, str]) -> Callable[[Tensor], Tensor]:
    time_window, feature_window = int(choices["time-window"]), int(choices["feature-window"])
    linear: Sequence[Tensor] = []
    if choices["feature-pooling"] == "linear" and feature_window > 1:
        linear = weights(module.feature_pooling.linear)

    def pool(x: Tensor) -> Tensor:
        if time_window > 1:
            x = pool_time(x, time_window, choices["time-pooling"])
        if feature_window > 1:
            x = pool_features(x, feature_window, choices["feature-pooling"], *linear)
        return x

    return pool


def true_encoder_rows(encoder: nn.Module, words: Sequence[str], sentence: Tensor) -> Tensor:
    """What the equations say of one sentence of tokens, with the parameters of `encoder`.

    The embedding is fairseq's own, of the sentence alone and without padding.
    """
    choices = choices_of(words)
    embedded = encoder.forward_embedding(sentence.unsqueeze(0))[0].squeeze(0)
    layers = list(encoder.layers)
    blocks = []
    for number, size in enumerate(int(n) for n in choices["encoder-blocks"].split(",")):
        block, layers = layers[:size], layers[size:]
        assert len(block) == size, "too few layers"
        blocks.append(
            Block(
                [
                    Layer(
                        mixer_of(layer.mixer, choices),
                        norm_of(layer.self_attn_layer_norm),
                        mscffn_of(layer.ffn)
                        if choices["encoder-ffn"] == "mscffn"
                        else standard_of(layer.ffn.fc1, layer.ffn.fc2),
                        norm_of(layer.final_layer_norm),
                    )
                    for layer in block
                ],
                pool_of(block[0], choices) if number > 0 else identity,
            )
        )
    assert not layers, "too many layers"
    pre_norm = "encoder-normalize-before" in choices
    assert (encoder.layer_norm is not None) == pre_norm
    return encode(
        embedded,
        blocks,
        int(choices["time-window"]),
        int(choices["feature-window"]),
        pre_norm,
        norm_of(encoder.layer_norm) if pre_norm else identity,
    )
