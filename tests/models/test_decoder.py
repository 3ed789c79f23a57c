"""The decoder's layers against the equations: fairseq's attention, either feed-forward network."""

import pytest
import torch

from tests.batches import (
    assert_close,
    assert_same_function,
    make_sentences,
    pad,
    padding_mask,
    unpad,
)
from tests.models.truth import attention_of, choices_of, ffn_of, norm_of
from tests.reference.decoder import causal, run_decoder_layer


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("pre_norm", [False, True])
# the gate of MSCFFN is relu, whatever the model's activation function
@pytest.mark.parametrize(
    "ffn, activation", [("standard", "relu"), ("mscffn", "relu"), ("mscffn", "tanh")]
)
def test_layer_equals_the_reference(build, ffn, activation, pre_norm, training):
    words = ["--encoder-blocks", "1,1", "--decoder-ffn", ffn, "--activation-fn", activation]
    model = build(*words, *(["--decoder-normalize-before"] if pre_norm else []))
    layer = model.decoder.layers[0].train(training)
    # "standard" is fairseq's own layer
    network = ffn_of(layer if ffn == "standard" else layer.ffn, ffn, choices_of(words))
    across = attention_of(layer.encoder_attn)

    def truth(x, memory):
        sublayers = [
            (causal(attention_of(layer.self_attn)), norm_of(layer.self_attn_layer_norm)),
            (lambda x: across(x, memory), norm_of(layer.encoder_attn_layer_norm)),
            (network, norm_of(layer.final_layer_norm)),
        ]
        return run_decoder_layer(sublayers, x, pre_norm)

    x = make_sentences((4, 1, 3), 24)
    memory = make_sentences((2, 5, 3), 24, seed=1)
    mask, memory_mask = padding_mask((4, 1, 3)), padding_mask((2, 5, 3), "left")

    def in_a_batch():
        padded = pad(x, mask)
        out = layer(
            padded,
            pad(memory, memory_mask),
            memory_mask,
            self_attn_mask=model.decoder.buffered_future_mask(padded),
            self_attn_padding_mask=mask,
        )
        return unpad(out[0], mask)

    leaves = {name: p for name, p in layer.named_parameters() if p.requires_grad}
    leaves.update((f"x[{i}]", sentence) for i, sentence in enumerate(x + memory))
    assert_same_function(
        in_a_batch,
        lambda: list(map(truth, x, memory)),
        leaves,
        tolerance=1e-5,  # fairseq's cross-attention normalises in float32
    )


def test_names_and_order_are_fairseqs(build):
    """The name of dropout to retain, and the order of parameters, which optimizers store."""
    found = [
        (layer.dropout_module.module_name, list(dict(layer.named_parameters()))[-2:])
        for layer in (
            build("--decoder-layers", 1, "--decoder-ffn", ffn).decoder.layers[0]
            for ffn in ("standard", "mscffn")
        )
    ]
    assert found[0] == found[1]


def test_dropout_is_inside_the_network_alone(build):
    """All of MSCFFN's products dropped: what is left is a constant, which is not dropped again."""
    words = "--encoder-blocks 1,1 --decoder-ffn mscffn --activation-dropout 0.999999".split()
    layer = build(*words).decoder.layers[0].train()
    ffn = layer.ffn
    constant = ffn.out_proj(ffn.contract_bias.flatten())
    x = torch.randn(5, 2, 24, dtype=torch.float64)
    seen = []
    hook = layer.final_layer_norm.register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    out = layer.encoder_attn_layer_norm.register_forward_hook(lambda m, a, y: seen.append(y))
    try:
        layer(x, x, None)
    finally:
        hook.remove()
        out.remove()
    before, after = seen  # post-norm: the last residual is what the cross-attention's norm gave
    assert_close(after - before, constant.expand_as(before))
