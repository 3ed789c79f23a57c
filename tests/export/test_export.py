"""Exported models write what torch writes."""

import random
from types import SimpleNamespace

import pytest

from fairseq_plugins import export
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.serving.folder import DECODER, ENCODER, Export

GRAPHS = (ENCODER, DECODER)

# each costs some seconds of torch's exporter: a case tries several things at once
CASES = {
    "fairseq's transformer": ("transformer", ""),
    "fairseq's, pre-norm, 2 + 3": (
        "transformer",
        "--encoder-layers 2 --decoder-layers 3 --encoder-normalize-before"
        " --decoder-normalize-before --share-decoder-input-output-embed",
    ),
    "fairseq's, learned positions, gelu": (
        "transformer",
        "--encoder-learned-pos --decoder-learned-pos --layernorm-embedding --activation-fn gelu",
    ),
    "ftc, three blocks, max": (
        "transformer_ftc",
        "--encoder-blocks 1,1,1 --time-window 3 --feature-window 1 --time-pooling max"
        " --no-token-positional-embeddings --no-scale-embedding",
    ),
    "ftc, linear, pre-norm": (
        "transformer_ftc",
        "--encoder-blocks 1,1 --time-window 2 --feature-window 2 --feature-pooling linear"
        " --encoder-normalize-before --decoder-normalize-before",
    ),
    "fastformer, layers of their own, add": (
        "fastformer_encoder",
        "--encoder-layers 2 --fastformer-interaction add --fastformer-sharing none",
    ),
    "fastformer, concat, shared heads": (
        "fastformer_encoder",
        "--encoder-layers 2 --fastformer-interaction concat --fastformer-sharing head,layer",
    ),
    "ftc, linear attention": (
        "transformer_ftc",
        "--encoder-blocks 1,1 --time-window 2 --feature-window 2 --encoder-token-mixer linear",
    ),
    "mscffn": ("mscffn_transformer", "--encoder-layers 2 --decoder-layers 2"),
    "all": (
        "transformer_ftc",
        "--encoder-blocks 1,1 --time-window 2 --feature-window 2 --time-pooling min"
        " --encoder-token-mixer fastformer --encoder-ffn mscffn --decoder-ffn mscffn",
    ),
}


@pytest.fixture
def sources(task):
    draw, dictionary = random.Random(3), task.source_dictionary
    return [
        [draw.randrange(dictionary.nspecial, len(dictionary)) for _ in range(length)]
        + [dictionary.eos()]
        for length in (1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 21, 30)
    ]


@pytest.mark.parametrize("arch, words", CASES.values(), ids=CASES)
def test_hypotheses_equal_torch(tmp_path, export_tiny, task, sources, arch, words):
    model, exported = export_tiny(tmp_path / "export", *words.split(), arch=arch)
    found = export.compare(exported, export.search_with_torch(model, task, sources), sources)
    assert found.equal == found.sentences == len(sources)
    assert found.largest_difference < export.EXACT


def test_eight_bits(tmp_path, export_tiny, task, sources):
    """A quarter of the size, and scores near those in float32."""
    words = "--encoder-embed-dim 256 --decoder-embed-dim 256 --encoder-ffn-embed-dim 512".split()
    words += "--decoder-ffn-embed-dim 512 --encoder-blocks 1,1 --mscffn-subspaces 8".split()
    words += ["--encoder-ffn", "mscffn"]
    model, exported = export_tiny(tmp_path / "export", *words)
    sizes = {name: (exported.folder / name).stat().st_size for name in GRAPHS}
    assert export.compare(exported, model, task, sources).equal == len(sources)
    export.quantize_graphs(exported.folder)
    export.write_config(model, task, exported.folder, {}, "not stated")
    found = export.compare(Export(exported.folder), model, task, sources)
    assert 1e-6 < found.largest_difference < 0.5
    for name, size in sizes.items():
        assert (exported.folder / name).stat().st_size < 0.3 * size


def test_wrong_weights_are_found(tmp_path, export_tiny, task, sources):
    model, exported = export_tiny(tmp_path / "export", arch="transformer")
    model.decoder.layers[0].fc1.bias.data += 1.0
    found = export.compare(exported, export.search_with_torch(model, task, sources), sources)
    assert found.equal < found.sentences or found.largest_difference > export.EXACT


def test_failing_graphs_are_errors_of_one_line(monkeypatch, task, sources):
    def fail(*arguments):
        raise RuntimeError("Non-zero status code returned\nmore")

    monkeypatch.setattr(export, "search", fail)
    exported, model = SimpleNamespace(max_output=9), None
    with pytest.raises(ConfigurationError, match="its graphs fail on other lengths") as error:
        export.compare(exported, model, task, sources)
    assert "\n" not in str(error.value)


def test_models_without_a_graph_are_errors_of_one_line(tmp_path, export_tiny):
    words = "--adaptive-softmax-cutoff 10,20".split()
    with pytest.raises(ConfigurationError, match="--adaptive-softmax-cutoff") as error:
        export_tiny(tmp_path / "export", *words, arch="transformer")
    assert "\n" not in str(error.value)
