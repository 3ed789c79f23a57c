"""Exports for CTranslate2 write what torch writes."""

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.export import comparison, exporter
from fairseq_plugins.export.ctranslate2 import largest_difference, write_ctranslate2

ORDINARY = "--encoder-blocks 2 --time-window 1 --feature-window 1"  # no compression


@pytest.mark.parametrize(
    "arch, words",
    [
        ("transformer", "--share-all-embeddings --encoder-layers 3 --decoder-layers 1"),
        ("transformer_ftc", ORDINARY + " --encoder-normalize-before --decoder-normalize-before"),
    ],
)
def test_scores_equal_torch(tmp_path, build_joined, joined_task, arch, words):
    pytest.importorskip("ctranslate2", reason="needs ctranslate2: pip install it")
    model = build_joined(*words.split(), arch=arch).float().eval()
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
        ("--decoder-output-dim 12", "--decoder-output-dim"),
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
