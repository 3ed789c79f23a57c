"""What all mixers must do in the laboratory's models: neither padding nor neighbours count."""

import argparse
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

from fairseq_plugins import lab
from fairseq_plugins.errors import ConfigurationError
from tests.batches import assert_close, randomize
from tests.labelled import TINY

lab.register()
from fairseq_plugins.lab.pair_classifier import separate  # noqa: E402

# tests/contract has all mixers; here are two that depend on the length, each in another way
CHOICES = [
    "--encoder-token-mixer linformer --encoder-ffn mscffn",
    "--encoder-token-mixer bigbird",
    "--encoder-blocks 1,1 --time-window 2 --sentence-pooling mean",
]
HISTORIES, CANDIDATES = ([0, 1, 2, 0, 4], [], [3], [5, 1]), ([0, 6], [1, 2, 3], [4], [5, 0, 1, 2])
LENGTHS = (4, 1, 9, 2, 7, 3, 5)


def build(arch, words):
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS, allow_abbrev=False)
    parser.add_argument("--arch")
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    args = parser.parse_args([*TINY, "--arch", arch, *words.split()])
    ARCH_CONFIG_REGISTRY[arch](args)
    dictionary = Dictionary()
    for number in range(36):
        dictionary.add_symbol(str(number))
    task = SimpleNamespace(source_dictionary=dictionary, max_positions=lambda: 32, max_history=8)
    torch.manual_seed(1)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task)


def padded(rows, fill, width=0):
    width = max(width, 1, *map(len, rows))
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])


def gradients_reach_all(model, scores):
    model.train()
    scores().sum().backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_recommender_scores_a_user_alone_as_in_a_batch(choice):
    model = randomize(build("news_recommender", choice))
    generator = torch.Generator().manual_seed(2)
    titles = [torch.randint(4, 40, (n,), generator=generator).tolist() for n in LENGTHS]

    def scores(histories, candidates, width=0):
        inputs = (
            padded(titles, 1, 9 + width),
            padded(histories, -1, width),
            padded(candidates, -1, width),
        )
        return model(*inputs)

    together = scores(HISTORIES, CANDIDATES)
    assert together.shape == (4, 4)
    for row, history, candidates in zip(together, HISTORIES, CANDIDATES):
        found = scores([history], [candidates], width=6)[0]
        assert torch.isinf(found[len(candidates) :]).all()
        assert_close(found[: len(candidates)], row[: len(candidates)], choice, 1e-9)
    with torch.no_grad():  # the equation for the third user: one click, one candidate
        of_news, of_user = model.news_pooling, model.user_pooling
        vectors = []
        for number in (HISTORIES[2][0], CANDIDATES[2][0]):
            encoded = model.encoder(torch.tensor([titles[number]]), None)["encoder_out"][0]
            vectors.append(of_news(encoded, torch.zeros(1, encoded.size(0), dtype=torch.bool)))
        encoded = model.user_encoder(torch.tensor([[5]]), None, token_embeddings=vectors[0][None])
        user = of_user(encoded["encoder_out"][0], torch.zeros(1, 1, dtype=torch.bool))
        assert_close(together[2, :1], (user * vectors[1]).sum(1) / 24**0.5, choice, 1e-9)
    # the user counts
    assert not torch.allclose(scores([[0]], [[1, 2]]), scores([[3]], [[1, 2]]))
    gradients_reach_all(model, lambda: scores(HISTORIES, [[0, 6]] * 4))


@pytest.mark.parametrize("choice", CHOICES)
def test_a_pair_is_classified_alone_as_in_a_batch(choice):
    model = build("pair_classifier", choice)
    model.register_classification_head("head", 3)
    model = randomize(model)
    generator = torch.Generator().manual_seed(2)
    sides = [torch.randint(4, 40, (n,), generator=generator).tolist() for n in LENGTHS[:6]]
    pairs = [[*a, 2, *b, 2] for a, b in zip(sides[::2], sides[1::2])]

    def scores(rows, width=0):
        return model(padded(rows, 1, width), classification_head_name="head")[0]

    together = scores(pairs, 20)
    for row, pair in zip(together, pairs):
        assert_close(scores([pair])[0], row, choice, 1e-9)
        left = torch.tensor([[1, 1, *pair]])
        assert_close(model(left, classification_head_name="head")[0][0], row, choice, 1e-9)
    with torch.no_grad():
        head, vectors = model.classification_heads["head"], []
        for side in sides[:2]:  # each text is encoded as if it were alone
            encoded = model.encoder(torch.tensor([[*side, 2]]), None)
            vectors.append(head.pool(encoded["encoder_out"][0], encoded["encoder_padding_mask"][0]))
        expected = head.out_proj(head.layers(torch.cat(vectors, dim=1)))
    assert_close(together[0], expected[0], choice, 1e-9)
    gradients_reach_all(model, lambda: scores(pairs))


def test_texts_are_separated_at_the_first_end():
    pairs = torch.tensor([[1, 1, 7, 8, 2, 9, 2], [5, 2, 6, 7, 8, 2, 1]])
    assert separate(pairs, 1, 2).tolist() == [
        [7, 8, 2, 1],
        [5, 2, 1, 1],
        [9, 2, 1, 1],
        [6, 7, 8, 2],
    ]
    for single in ([[7, 8, 2, 1]], [[7, 8, 9, 1]], [[5, 2, 6], [7, 8, 2]]):
        with pytest.raises(
            ConfigurationError, match="has no end symbol with another text after it"
        ):
            separate(torch.tensor(single), 1, 2)
