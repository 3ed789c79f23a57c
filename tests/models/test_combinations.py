"""Compression with fairseq's own options, with layers that are dropped or pruned."""

import pytest
import torch


def test_layerdrop_may_drop_where_a_block_begins(parse, tiny_words, make_sample):
    """Sizes change there: whatever is dropped, the encoder's output has its shape."""
    words = "--encoder-blocks 1,1,1 --time-window 2 --feature-window 2 --encoder-layerdrop 0.7"
    setup = parse("--arch", "transformer_ftc", *tiny_words, *words.split())
    model = setup.build_model().train()
    tokens = make_sample((5, 1, 7))["net_input"]["src_tokens"]
    outputs = [model.encoder(tokens)["encoder_out"][0] for _ in range(30)]
    assert all(out.shape == (7, 3, 24) and torch.isfinite(out).all() for out in outputs)
    assert any(not torch.equal(outputs[0], out) for out in outputs), "nothing was ever dropped"
    outputs = [model.eval().encoder(tokens)["encoder_out"][0] for _ in range(9)]
    assert all(torch.equal(outputs[0], out) for out in outputs)


@pytest.mark.parametrize("more", ["", "--copy-attention"])
def test_a_decoder_is_pruned_beside_an_encoder_of_blocks(
    parse_joined, tiny_words, make_sample, more
):
    """fairseq drops the layers that are not named, so that all of the encoder's are."""
    words = f"--encoder-blocks 2,1 --decoder-layers 3 {more}".split()
    whole = parse_joined("--arch", "transformer_ftc", *tiny_words, *words).build_model().eval()
    del whole.decoder.layers[1]
    whole.decoder.num_layers = 2
    net_input = make_sample((5, 1, 7))["net_input"]
    for encoder in (None, "", "0,1,2", [2, 0, 1]):
        setup = parse_joined("--arch", "transformer_ftc", *tiny_words, *words)
        original = setup.build_model(seed=1)
        setup.args.encoder_layers_to_keep, setup.args.decoder_layers_to_keep = encoder, "0,2"
        for seed in (2, 3):  # an ensemble builds several with the same options
            pruned = setup.build_model(seed=seed).eval()
            state = {name: tensor.clone() for name, tensor in original.state_dict().items()}
            pruned.load_state_dict(state, strict=True, args=setup.args)
            found, expected = (
                m.get_normalized_probs(m(**net_input), log_probs=True) for m in (pruned, whole)
            )
            assert torch.equal(found, expected)


@pytest.mark.parametrize("path", ["plain", "fast"])
def test_adaptive_softmax_reads_its_own_state(build, make_sample, path):
    """fairseq's own model does not, where the decoder's embedding is said to be shared."""
    words = "--encoder-blocks 1,1 --adaptive-softmax-cutoff 8,20 --decoder-output-dim 12".split()
    words += ["--share-decoder-input-output-embed", "--training-path", path]
    models = [build(*words, plain=True, seed=seed).eval() for seed in (1, 2)]
    state = {name: tensor.clone() for name, tensor in models[0].state_dict().items()}
    models[1].load_state_dict(state, strict=True)
    net_input = make_sample((5, 1, 7))["net_input"]
    outputs = [m.get_normalized_probs(m(**net_input), log_probs=True) for m in models]
    assert torch.equal(*outputs)
