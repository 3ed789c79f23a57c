"""Models that copy: the accelerated generator finds what fairseq's finds, in 8 bits as well."""

import pytest
import torch

from fairseq_plugins.generation.int8 import quantize
from tests.generation.test_decoding import LENGTHS, assert_same_results

COPY = "--copy-attention --encoder-blocks 1,1 --decoder-layers 2".split()


@pytest.fixture(scope="module")
def model(build_joined):
    return build_joined(*COPY)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam_size": 1},
        {"no_repeat_ngram_size": 2},
        {"temperature": 0.7, "min_len": 10, "unk_penalty": 2.0},
        {"print_alignment": "soft", "beam_size": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_options(build_generator, model, make_sample, options, side):
    assert_same_results(build_generator, [model], make_sample(LENGTHS, side=side), **options)


@pytest.mark.parametrize(
    "words",
    [
        "--copy-layer 0 --copy-heads 1 --decoder-normalize-before",
        "--encoder-token-mixer fastformer --decoder-ffn mscffn --share-all-embeddings",
    ],
)
def test_decoders(build_joined, build_generator, make_sample, words):
    model = build_joined(*COPY, *words.split())
    assert_same_results(build_generator, [model], make_sample(LENGTHS))


def test_an_ensemble_with_one_that_does_not_copy(
    build_joined,
    build_generator,
    model,
    make_sample,
):
    other = build_joined("--encoder-blocks", "1,1", seed=2)
    assert_same_results(build_generator, [model, other], make_sample(LENGTHS))


def test_in_8_bits(build_joined, build_generator, make_sample):
    """The accelerated generator and fairseq's differ by rounding alone."""
    wide = "--encoder-embed-dim 48 --decoder-embed-dim 48".split()
    exact, quantised = (build_joined(*COPY, *wide, plain=True).eval() for _ in range(2))
    quantize(quantised)
    assert type(quantised.decoder.copying.gate) is torch.nn.Linear
    net_input = make_sample(LENGTHS)["net_input"]
    real = net_input["prev_output_tokens"].ne(1)
    with torch.no_grad():
        found, expected = (
            m.get_normalized_probs(m(**net_input), log_probs=False)[real]
            for m in (quantised, exact)
        )
    assert 0 < (found - expected).norm() < 0.05 * expected.norm()
    fast, plain = (
        build_generator([quantised], accelerated).generate([quantised], make_sample(LENGTHS))
        for accelerated in (True, False)
    )
    for some, others in zip(fast, plain):
        scores = [torch.stack([h["score"] for h in hypotheses]) for hypotheses in (some, others)]
        assert torch.allclose(*scores, atol=0.02)
        assert some[0]["tokens"].tolist() == others[0]["tokens"].tolist()


def test_it_says_words_that_only_the_source_has(build_joined, build_generator, make_sample):
    """With g near 0, hypotheses are made of source words, whatever the softmax wants."""
    model = build_joined(*COPY)
    with torch.no_grad():
        model.decoder.copying.gate.weight.zero_()
        model.decoder.copying.gate.bias.fill_(-40.0)
    sample = make_sample((5, 9, 3))
    found = build_generator([model], True).generate([model], sample)
    for tokens, hypotheses in zip(sample["net_input"]["src_tokens"].tolist(), found):
        assert set(hypotheses[0]["tokens"].tolist()) <= set(tokens)
