"""Repairs of the search and of what it prints."""

import pytest
import torch
from fairseq.ngram_repeat_block import NGramRepeatBlock

from fairseq_plugins import compat
from fairseq_plugins.errors import ConfigurationError

compat.apply()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_tokens_that_would_repeat_an_ngram_are_banned(size):
    generator = torch.Generator().manual_seed(size)
    vocabulary, hypotheses, longest = 7, 20, 16
    tokens = torch.full((hypotheses, longest), 1)  # padding, as in fairseq's buffer
    tokens[:, 0] = 2
    for step in range(longest - 2):
        scores = torch.randn(hypotheses, vocabulary, generator=generator)
        expected = scores.clone()
        for hypothesis in range(hypotheses):
            words = tokens[hypothesis, 1 : step + 1].tolist()
            seen = {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}
            for word in range(vocabulary):
                if tuple(words[len(words) - size + 1 :] + [word]) in seen:
                    expected[hypothesis, word] = float("-inf")
        block = NGramRepeatBlock(size, use_extension=False)
        actual = block(tokens, scores, hypotheses, 1, step)
        assert actual.tolist() == expected.tolist()
        tokens[:, step + 1] = torch.randint(3, vocabulary, (hypotheses,), generator=generator)


def test_a_model_that_holds_no_numbers(tiny_checkpoint, toy_data, run_generate, tmp_path):
    state = torch.load(tiny_checkpoint, weights_only=False)
    state["model"]["decoder.layers.0.fc1.weight"][0, 0] = float("nan")
    torch.save(state, tmp_path / "failed.pt")
    for models in (tmp_path / "failed.pt", f"{tiny_checkpoint}:{tmp_path / 'failed.pt'}"):
        with pytest.raises(
            ConfigurationError, match="the model cannot be used: .*fc1.weight holds"
        ):
            run_generate(toy_data.bin, "--path", models, "--gen-subset", "valid", "--cpu")
