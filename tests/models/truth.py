"""The ground truth's view of a model's encoder: its parameters, and the words it was asked for by.

What is to be computed is read from the command line, never from the model, so that an option that
does not arrive makes a difference.
"""

from collections.abc import Callable, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from tests.contract import references
from tests.contract.references import weights
from tests.reference.compression import pool_features, pool_time
from tests.reference.encoder import Block, Layer, encode, identity

HEADS = 2
DEFAULTS = {
    "time-pooling": "mean",
    "feature-pooling": "mean",
    "encoder-token-mixer": "softmax",
    "encoder-ffn": "standard",
    "mscffn-subspaces": "6",  # of the tiny models
}


def choices_of(words: Sequence[str]) -> dict[str, str]:
    """`--option value` pairs; flags get "yes"; a later option wins."""
    choices = dict(DEFAULTS)
    following = list(words[1:]) + ["--"]
    for word, value in zip(words, following):
        if word.startswith("--"):
            choices[word[2:]] = "yes" if value.startswith("--") else value
    return choices


def attention_of(a: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, memory: references.attention_rows(a, HEADS, {}, x, memory)


def options_of(name: str, choices: dict[str, str]) -> dict[str, str]:
    """A part's own options, without its name."""
    start = name + "-"
    return {key[len(start) :]: value for key, value in choices.items() if key.startswith(start)}


def mixer_of(module: nn.Module, choices: dict[str, str]) -> Callable[[Tensor, Tensor], Tensor]:
    name = choices["encoder-token-mixer"]
    options = options_of(name, choices)
    return lambda x, memory: references.MIXERS[name].rows(module, HEADS, options, x, memory)


def ffn_of(module: nn.Module, name: str, choices: dict[str, str]) -> Callable[[Tensor], Tensor]:
    options = options_of(name, choices)
    return lambda x: references.FEED_FORWARDS[name].rows(module, options, x)


def norm_of(module: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: F.layer_norm(x, x.shape[-1:], *weights(module))


def pool_of(module: nn.Module, choices: dict[str, str]) -> Callable[[Tensor], Tensor]:
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
                        ffn_of(layer.ffn, choices["encoder-ffn"], choices),
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
