"""Exports for CTranslate2 write what torch writes."""

import pytest
import torch

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.export import comparison, exporter
from fairseq_plugins.export.ctranslate2 import largest_difference, write_ctranslate2

ORDINARY = "--encoder-blocks 2 --time-window 1 --feature-window 1"  # no compression


@pytest.mark.parametrize(
    "arch, words",
    [
        ("transformer", "--encoder-layers 3 --decoder-layers 1"),
        ("transformer_ftc", ORDINARY + " --encoder-normalize-before --decoder-normalize-before"),
    ],
)
def test_greedy_search_equals_torch(tmp_path, build, task, arch, words):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="needs ctranslate2: pip install it")
    model = build(*words.split(), arch=arch).float().eval()
    write_ctranslate2(model, task, tmp_path / "model", int8=False)
    translator = ctranslate2.Translator(str(tmp_path / "model"))
    symbols = task.source_dictionary.symbols
    for tokens in ([7, 11, 5, 9, 2], [6, 2], [4, 8, 12, 13, 14, 15, 16, 2]):
        written = [task.target_dictionary.eos()]
        for _ in range(10):
            with torch.no_grad():
                source = torch.tensor([tokens])
                logits = model(source, torch.tensor([len(tokens)]), torch.tensor([written]))[0]
            logits[..., : task.target_dictionary.eos()] = -float("inf")
            written.append(int(logits[0, -1].argmax()))
            if written[-1] == task.target_dictionary.eos():
                break
        (found,) = translator.translate_batch(
            [[symbols[token] for token in tokens[:-1]]], beam_size=1, max_decoding_length=10
        )
        expected = [task.target_dictionary.symbols[token] for token in written[1:]]
        assert found.hypotheses[0] == [word for word in expected if word != "</s>"]


@pytest.mark.parametrize(
    "words", [pytest.param("--encoder-layers 1", marks=pytest.mark.slow), "--share-all-embeddings"]
)
def test_scores_equal_torch(tmp_path, build_joined, joined_task, words):
    pytest.importorskip("ctranslate2", reason="needs ctranslate2: pip install it")
    model = build_joined(*words.split(), arch="transformer").float().eval()
    sources = [*comparison.sources_of(joined_task, None, 64)[0], [7, 3] * 30 + [2]]
    expected = comparison.search_with_torch(model, joined_task, sources)
    for int8, least, most in ((True, 1e-4, 0.5), (False, 0, exporter.EXACT)):
        folder = tmp_path / str(int8)
        write_ctranslate2(model, joined_task, folder, int8)
        difference = largest_difference(folder, joined_task, sources, expected)
        assert least <= difference < most
    assert comparison.search_with_torch(model, joined_task, sources) == expected


@pytest.mark.parametrize(
    "words, told",
    [
        ("--encoder-blocks 1,1 --time-window 2", "compression, Fastformer or MSCFFN"),
        ("--decoder-ffn mscffn", "its decoder"),
        ("--adaptive-softmax-cutoff 10,20", "--adaptive-softmax-cutoff"),
        ("--cross-self-attention", "--cross-self-attention"),
        ("--no-cross-attention", "--no-cross-attention"),
        ("--decoder-output-dim 12", "--decoder-output-dim"),
        ("--decoder-layers 0", "--decoder-layers 0"),
        (
            "--encoder-normalize-before --decoder-normalize-before --no-decoder-final-norm",
            "--no-decoder-final-norm",
        ),
        ("--decoder-attention-heads 4", "different numbers of heads"),
        ("--encoder-normalize-before", "of one side only"),
    ],
)
def test_other_models_are_refused_in_one_line(tmp_path, build, task, words, told):
    """With or without the package ctranslate2."""
    words = [*ORDINARY.split(), *words.split()]
    with pytest.raises(ConfigurationError, match=told) as error:
        write_ctranslate2(build(*words).float(), task, tmp_path / "model", int8=False)
    assert "\n" not in str(error.value) and not (tmp_path / "model").exists()
