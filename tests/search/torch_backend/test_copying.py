"""Models that copy: the accelerated generator finds what fairseq's finds."""

import pytest
import torch

from fairseq_plugins.search.torch_backend.copied import find_copied
from fairseq_plugins.search.torch_backend.ensemble import BeamEnsemble
from tests.batches import assert_close
from tests.search.torch_backend.test_decoding import LENGTHS, assert_same_results

COPY = "--copy-attention --encoder-blocks 1,1 --decoder-layers 2".split()


@pytest.fixture(scope="module")
def model(build_joined):
    return build_joined(*COPY)


@torch.no_grad()
def test_the_temperature_counts_for_copied_words(model, make_sample):
    """fairseq divides the logits, which are those of generated words alone."""
    source = make_sample(LENGTHS)["net_input"]
    encoded = model.encoder(source["src_tokens"], source["src_lengths"])
    tokens = torch.full((2 * len(LENGTHS), 1), 2)
    cold, warm = (
        BeamEnsemble([model]).forward_decoder(tokens, [encoded], [{}], temperature)[0]
        for temperature in (0.5, 1.0)
    )
    assert_close(cold.exp(), (2 * warm).softmax(dim=1), "probabilities", 1e-6)
    assert (cold - warm).abs().max() > 0.1


@pytest.mark.parametrize(
    "words",
    [
        "--decoder-normalize-before",
        "--copy-next",
        "--encoder-token-mixer fastformer --decoder-ffn mscffn --share-all-embeddings",
    ],
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_decoders(build_joined, build_generator, make_sample, words, side):
    model = build_joined(*COPY, *words.split())
    assert_same_results(build_generator, [model], make_sample(LENGTHS, side=side))


def test_an_ensemble_with_one_that_does_not_copy(build_joined, build_generator, model, make_sample):
    other = build_joined("--encoder-blocks", "1,1", seed=2)
    assert_same_results(build_generator, [model, other], make_sample(LENGTHS))


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_it_tells_what_was_copied_from_where(build_joined, build_generator, make_sample, side):
    model = build_joined(*COPY)
    sample = make_sample((5, 9, 3), side=side)
    net_input = sample["net_input"]
    found = build_generator([model], True).generate([model], sample)
    hypotheses = [h[0]["tokens"] for h in found]
    hypotheses[1] = torch.tensor([17, *net_input["src_tokens"][1].tolist()])  # some is copied
    told = find_copied(model, net_input, hypotheses)
    kinds = set()
    for b, (tokens, positions) in enumerate(zip(hypotheses, told)):
        source = [w for w in net_input["src_tokens"][b].tolist() if w != 1]
        assert len(positions) == len(tokens)
        previous = torch.cat([tokens.new_tensor([2]), tokens[:-1]]).unsqueeze(0)
        encoded = model.encoder(torch.tensor([source]))
        logits, extra = model.decoder(previous, encoded)
        generate = extra["copy_log_generate"][0][0].exp()
        for t, (word, position) in enumerate(zip(tokens.tolist(), positions)):
            weights = [
                float(a) if w == word else 0.0 for a, w in zip(extra["attn"][0][0, t], source)
            ]
            copied = (1 - generate[t]) * sum(weights)
            generated = generate[t] * logits[0, t].softmax(dim=0)[word]
            expected = weights.index(max(weights)) if copied > generated else None
            assert position == expected
            kinds.add(position is None)
    assert kinds == {True, False}
