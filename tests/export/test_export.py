"""Exported models write what torch writes."""

import copy
import random
import shutil

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass.configs import GenerationConfig

from fairseq_plugins.api import Translator
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.export import comparison, exporter, quantization
from fairseq_plugins.export import folder as export_folder
from fairseq_plugins.export.ctranslate2 import write_ctranslate2
from fairseq_plugins.layers.feed_forwards import FEED_FORWARDS
from fairseq_plugins.layers.token_mixers import TOKEN_MIXERS
from fairseq_plugins.options.search import Options
from fairseq_plugins.search.engine import Input
from fairseq_plugins.search.onnx_backend.beam_search import search
from fairseq_plugins.search.onnx_backend.exported_model import ExportedClassifier
from fairseq_plugins.search.onnx_backend.folder import DECODER, ENCODER, Export
from fairseq_plugins.search.torch_backend.copied import find_copied
from fairseq_plugins.search.torch_backend.trained_model import TrainedClassifier
from fairseq_plugins.search.torch_backend.unknown import NUMBERS, to_known
from tests.models import test_encoder_classifier as classifiers
from tests.tiny_models import TINY, drop_mscffn

onnx = pytest.importorskip("onnx", reason="needs onnx: pip install '.[test]'")
GRAPHS = (ENCODER, DECODER)

# each costs many seconds of torch's exporter: a case tries several things at once, and those that
# are not in USUAL are slow
USUAL = (
    "all, min, linear, pre-norm",
    "flowformer, switch in the decoder, copying",
)
CASES = {
    "fairseq's, pre-norm, 2 + 3": (
        "transformer",
        "--encoder-layers 2 --decoder-layers 3 --encoder-normalize-before"
        " --decoder-normalize-before --share-decoder-input-output-embed",
    ),
    "fairseq's, learned positions, gelu": (
        "transformer",
        "--encoder-layers 1 --encoder-learned-pos --decoder-learned-pos --layernorm-embedding"
        " --activation-fn gelu --quant-noise-pq 0.1 --quant-noise-pq-block-size 4",
    ),
    "ftc, three blocks, max, linear attention": (
        "transformer_ftc",
        "--encoder-blocks 1,1,1 --time-window 3 --feature-window 1 --time-pooling max"
        " --encoder-token-mixer linear --no-token-positional-embeddings --no-scale-embedding",
    ),
    "mscffn with fastformer, a layer of its own, add": (
        "mscffn_transformer",
        "--encoder-layers 1 --decoder-layers 2 --encoder-token-mixer fastformer"
        " --fastformer-interaction add --fastformer-sharing none",
    ),
    "fastformer, concat, shared heads": (
        "fastformer_encoder",
        "--encoder-layers 2 --fastformer-interaction concat --fastformer-sharing head,layer",
    ),
    "all, min, linear, pre-norm": (
        "transformer_ftc",
        "--encoder-blocks 1,1 --time-window 2 --feature-window 2 --time-pooling min"
        " --encoder-token-mixer fastformer --encoder-ffn mscffn --decoder-ffn mscffn"
        " --feature-pooling linear --encoder-normalize-before --decoder-normalize-before",
    ),
    "ftc, weights of 64 positions, 66 with padding, low-dimensional": (
        "transformer_ftc",
        "--encoder-blocks 1,1 --time-window 3 --feature-window 2 --encoder-token-mixer linformer"
        " --encoder-learned-pos --encoder-ffn low_dimensional --decoder-ffn low_dimensional",
    ),
    "ftc, performer, switch in the encoder, copying": (
        "transformer_ftc",
        "--encoder-blocks 1,1 --time-window 2 --feature-window 2 --encoder-token-mixer performer"
        " --encoder-ffn switch --decoder-layers 2 --copy-attention --copy-next"
        " --share-all-embeddings",
    ),
    "flowformer, switch in the decoder, copying": (
        "fastformer_encoder",
        "--encoder-layers 1 --encoder-token-mixer flowformer --decoder-ffn switch"
        " --decoder-layers 1 --copy-attention --share-all-embeddings",
    ),
}
# mixers whose windows are reshapes of a padded length, in the one classifier below
LOCAL = {
    "longformer": "--longformer-window 4 --longformer-global-tokens 2",
    "bigbird": "--bigbird-block 2 --bigbird-global-blocks 1",
    "poolingformer": "--poolingformer-window 4 --poolingformer-pooling-window 8"
    " --poolingformer-kernel 3 --poolingformer-stride 2",
}
# one for each other part that is registered
for _option, _registry in (("token-mixer", TOKEN_MIXERS), ("ffn", FEED_FORWARDS)):
    for _name, (_part, _) in _registry._parts.items():
        _words = f"--encoder-{_option} {_name}"
        _known = _name in (_registry.default, *LOCAL)
        if not _known and not any(_words in case[1] for case in CASES.values()):
            CASES[_name] = ("transformer_ftc", f"--encoder-blocks 1,1 {_words}")


def compare(exported, expected, sources):
    return comparison.compare(comparison.search_with_export(exported, sources), expected)


@pytest.fixture
def sources(task):
    draw, dictionary = random.Random(3), task.source_dictionary
    return [
        [draw.randrange(dictionary.nspecial, len(dictionary)) for _ in range(length)]
        + [dictionary.eos()]
        for length in (1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 21, 30)
    ]


@pytest.mark.parametrize(
    "arch, words",
    [
        pytest.param(*case, id=name, marks=[] if name in USUAL else pytest.mark.slow)
        for name, case in CASES.items()
    ],
)
def test_hypotheses_equal_torch(request, monkeypatch, tmp_path, sources, arch, words):
    """Up to the longest source; models that copy also in 8 bits, and with unknown subwords."""
    joined = "--copy-attention" in words
    export_tiny = request.getfixturevalue("export_joined" if joined else "export_tiny")
    task = request.getfixturevalue("joined_task" if joined else "task")
    if (arch, words) == CASES[USUAL[0]]:
        model, exported = request.getfixturevalue("usual")
    else:
        model, exported = export_tiny(tmp_path / "export", *words.split(), arch=arch)
    assert exported.copies == joined and exported.max_source == 63
    assert exported.length_multiple % 3 == 0 or "linformer" not in words
    every = [*sources, [7] * 63 + [2], [8] * 60 + [2]]
    expected = comparison.search_with_torch(model, task, every)
    found = compare(exported, expected, every)
    assert found.equal == found.total == len(every)
    assert found.largest_difference < exporter.EXACT
    if joined:
        assert_unknown_subwords_are_written(model, task, exported, copy.deepcopy(sources))
        with pytest.raises(
            ConfigurationError, match="--temperature: an exported model that copies"
        ):
            Translator(exported.folder, sampling=True, temperature=2.0)
        monkeypatch.setattr("fairseq_plugins.export.quantization.LEAST", 100)
        export_folder.quantize_graphs(exported.folder)
        export_folder.write_config(model, task, exported.folder, {"int8": True}, "not stated")
        found = compare(Export(exported.folder), expected, every)
        assert 1e-6 < found.largest_difference < 0.5


@pytest.mark.parametrize("names", [["longformer"], pytest.param([*LOCAL], marks=pytest.mark.slow)])
def test_classes_equal_torch(tmp_path, names):
    """A classifier with one layer of each local mixer: in and beyond windows, alone as in a batch.

    To export one model of each would take three times as long.
    """
    words = "--arch encoder_classifier --sentence-pooling mean --encoder-layers"
    models = [
        classifiers.build(
            *f"{words} {len(names)} --encoder-token-mixer {name} {LOCAL[name]}".split(),
            max_positions=200,
        )
        for name in names
    ]
    model = models[0].float().eval()
    for number in range(1, len(names)):
        model.encoder.layers[number].mixer = models[number].encoder.layers[number].mixer.float()
    task = classifiers.task(max_positions=200)
    export_folder.write_graphs(model, tmp_path)
    export_folder.write_dictionaries(task, tmp_path)
    (tmp_path / "preparation.json").write_text("{}")
    export_folder.write_config(model, task, tmp_path, {}, "not stated")
    draw = random.Random(3)
    sources = [[draw.randrange(4, 40) for _ in range(n)] for n in (1, 2, 7, 33, 64, 65, 130, 200)]
    expected = comparison.classify(TrainedClassifier("", tmp_path, model, task, True), sources)
    exported = ExportedClassifier(tmp_path)
    assert exported.labels == ["0", "1", "2"] and exported.length_multiple > 1
    found = comparison.compare(comparison.classify(exported, sources), expected)
    probabilities = [row for _, row in expected]
    assert found.equal == found.total == len(sources)
    assert found.largest_difference < 1e-5 < np.ptp(probabilities, axis=0).min()
    for source, row in zip(sources, probabilities):
        assert exported.probabilities([source])[0] == pytest.approx(row, abs=1e-5)


def assert_unknown_subwords_are_written(model, task, exported, sources):
    """As in torch, with a beam and prefixes; drawn by their probability, alone as in a batch."""
    first, draw, most = len(task.target_dictionary), random.Random(5), 12
    for row, source in enumerate(sources[4:]):  # the others have none
        for place in draw.sample(range(len(source) - 1), 3):
            source[place] = first + draw.randrange(1 + row % 3)
    tokens = data_utils.collate_tokens([torch.tensor(s) for s in sources], 1, left_pad=True)
    net_input = {
        "src_tokens": to_known(tokens, task.target_dictionary),
        "src_lengths": tokens.ne(1).sum(dim=1),
    }
    sample, written = {"net_input": net_input, NUMBERS: tokens}, set()
    for prefixes, size in (([], 0), ([[first], [7]] * 6, 2)):
        generator = task.build_generator(
            [model], GenerationConfig(max_len_a=0, max_len_b=most, no_repeat_ngram_size=size)
        )
        prefixes = prefixes and [p if first in s else [7] for p, s in zip(prefixes, sources)]
        more = {"prefix_tokens": torch.tensor(prefixes)} if prefixes else {}
        expected = generator.generate([model], sample, **more)
        wanted = [Input(s, most, *prefixes[n : n + 1]) for n, s in enumerate(sources)]
        options = Options(nbest=5, no_repeat_ngram=size)
        best = [theirs[0]["tokens"] for theirs in expected]
        copied = find_copied(model, net_input, best, tokens)
        assert {place is None for places in copied for place in places[:-1]} == {True, False}
        without = search(exported, wanted, options)
        found = search(exported, wanted, options, copied=True)
        for ours, theirs, places, same in zip(found, expected, copied, without, strict=True):
            assert ours[0].copied == places[:-1]  # without the end symbol
            assert [h._replace(copied=[]) for h in ours] == same
            assert [h.pieces for h in ours] == [h["tokens"].tolist() for h in theirs]
            for a, b in zip(ours, theirs):
                assert a.token_scores == pytest.approx(b["positional_scores"].tolist(), abs=1e-4)
            written |= {t for h in ours for t in h.pieces if t >= first}
    assert len(written) > 1
    wanted = [Input(source, 1, (), number) for number, source in enumerate(sources)]
    options = Options(beam=8, nbest=8, sampling=True, min_len=0)
    drawn = search(exported, wanted, options)
    assert [[h.pieces for h in search(exported, [w], options)[0]] for w in wanted] == [
        [h.pieces for h in found] for found in drawn
    ]
    best = search(exported, wanted, Options(beam=20, nbest=20, min_len=0))
    compared = 0
    for some, others in zip(drawn, best):
        known = {h.pieces[0]: h.token_scores[0] for h in others}
        for token in {h.pieces[0] for h in some} & {t for t in known if t >= first}:
            scores = [h.token_scores[0] for h in some if h.pieces[0] == token]
            assert scores == pytest.approx([known[token]] * len(scores), abs=1e-5)
            compared += 1
    assert compared


@pytest.mark.slow
def test_eight_bits(tmp_path, export_tiny, task, sources):
    """A quarter of the size, and scores near those in float32."""
    words = "--encoder-embed-dim 256 --decoder-embed-dim 256 --encoder-ffn-embed-dim 512".split()
    words += "--decoder-ffn-embed-dim 512 --encoder-blocks 1 --mscffn-subspaces 8".split()
    words += "--time-window 1 --feature-window 1".split()
    words += ["--encoder-ffn", "mscffn"]
    model, exported = export_tiny(tmp_path / "export", *words)
    sizes = {name: (exported.folder / name).stat().st_size for name in GRAPHS}
    expected = comparison.search_with_torch(model, task, sources)
    assert compare(exported, expected, sources).equal == len(sources)
    export_folder.quantize_graphs(exported.folder)
    export_folder.write_config(model, task, exported.folder, {}, "not stated")
    # of the same hypotheses, as those of random weights differ after any rounding
    wanted = [Input(s, len(tokens) - 1, tokens[:-1]) for s, (tokens, _) in zip(sources, expected)]
    found = search(Export(exported.folder), wanted, Options())
    scores = np.array([hypotheses[0].score for hypotheses in found])
    assert [hypotheses[0].pieces for hypotheses in found] == [tokens for tokens, _ in expected]
    assert 1e-6 < np.abs(scores - [score for _, score in expected]).max() < 0.5
    for name, size in sizes.items():
        assert (exported.folder / name).stat().st_size < 0.3 * size


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, lookups",
    [("--share-all-embeddings", 3), ("--share-decoder-input-output-embed", 2), ("", 0)],
)
def test_shared_embeddings_are_stored_once(
    tmp_path, monkeypatch, export_joined, joined_task, sources, words, lookups
):
    """The file holds the output layer; sharing changes a score by no more than rounding does."""
    monkeypatch.setattr("fairseq_plugins.export.quantization.LEAST", 100)
    words = [*words.split(), "--encoder-layers", "1", "--decoder-layers", "1"]
    apart, shared = tmp_path / "apart", tmp_path / "shared"
    model, _ = export_joined(apart, *words, arch="transformer")
    shutil.copytree(apart, shared)
    export_folder.quantize_graphs(shared)
    monkeypatch.setattr(quantization, "_is_part", lambda weight, table: False)
    export_folder.quantize_graphs(apart)

    def external(name):
        graph = onnx.load(shared / name, load_external_data=False).graph
        return [w for w in graph.initializer if w.data_location == onnx.TensorProto.EXTERNAL]

    assert sum(len(external(name)) for name in GRAPHS) == lookups
    table = shared / quantization.FILE
    assert table.exists() == bool(lookups)
    if lookups:
        dimension = model.decoder.embed_dim
        rows = np.frombuffer(table.read_bytes(), np.int8).reshape(-1, dimension)
        weight = model.decoder.output_projection.weight.detach().numpy()
        scale = np.abs(weight).max(axis=1, keepdims=True) / 127
        assert np.abs(rows[: len(weight)] * scale - weight).max() <= 0.51 * scale.max()
        before, after = (
            sum((folder / name).stat().st_size for name in GRAPHS) for folder in (apart, shared)
        )
        assert before - after > 0.8 * lookups * table.stat().st_size

    expected = comparison.search_with_torch(model, joined_task, sources)
    found = []
    for folder in (apart, shared):
        export_folder.write_config(model, joined_task, folder, {}, "not stated")
        found.append(compare(Export(folder), expected, sources))
    assert found[0].equal == found[1].equal
    assert abs(found[0].largest_difference - found[1].largest_difference) < 1e-3


@pytest.fixture(scope="module")
def usual(tmp_path_factory, export_tiny):
    """The model of the first case and its export."""
    arch, words = CASES[USUAL[0]]
    return export_tiny(tmp_path_factory.mktemp("usual") / "export", *words.split(), arch=arch)


def test_graphs_name_no_files_of_the_machine(usual):
    _, exported = usual
    for name in GRAPHS:
        content = (exported.folder / name).read_bytes()
        assert b".py" not in content and b"site-packages" not in content


def test_wrong_weights_are_found(usual, task, sources):
    model, exported = copy.deepcopy(usual[0]), usual[1]
    model.decoder.layers[0].encoder_attn.out_proj.bias.data[0] += 1.0
    expected = comparison.search_with_torch(model, task, sources)
    found = compare(exported, expected, sources)
    assert found.equal < found.total or found.largest_difference > exporter.EXACT


ORDINARY = "transformer_ftc --encoder-blocks 2 --time-window 1 --feature-window 1 "
REFUSED = {
    ORDINARY + "--adaptive-softmax-cutoff 10,20": "--adaptive-softmax-cutoff",
    ORDINARY + "--cross-self-attention": "--cross-self-attention",
    ORDINARY + "--no-cross-attention": "--no-cross-attention",
    "transformer --decoder-layers 0": "--decoder-layers 0",
}
OTHERS = (
    "fconv --encoder-embed-dim 24 --encoder-layers [(24,3)] --decoder-embed-dim 24"
    " --decoder-layers [(24,3)] --decoder-attention True --decoder-out-embed-dim 24",
    "nonautoregressive_transformer --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 16"
    " --encoder-attention-heads 2 --decoder-embed-dim 16 --decoder-attention-heads 2",
    "lstm --encoder-embed-dim 24 --decoder-embed-dim 24 --decoder-out-embed-dim 24",
    "lightconv --encoder-layers 1 --encoder-kernel-size-list [3] --decoder-layers 1"
    " --decoder-kernel-size-list [3]",
)
REFUSED.update(dict.fromkeys(OTHERS, "Model is not a Transformer"))


@pytest.mark.parametrize("words, told", REFUSED.items())
def test_models_that_no_format_has_are_errors_of_one_line(tmp_path, parse, words, told):
    arch, *more = words.split()
    sizes = {"transformer_ftc": TINY, "transformer": drop_mscffn(TINY)}.get(arch, [])
    setup = parse("--arch", arch, *sizes, *more)
    model = setup.build_model().float().eval()
    for write in (
        lambda: export_folder.write_graphs(model, tmp_path),
        lambda: write_ctranslate2(model, setup.task, tmp_path, int8=False),
    ):
        with pytest.raises(ConfigurationError, match=told) as error:
            write()
        assert "\n" not in str(error.value) and not list(tmp_path.iterdir())


def test_all_sentences_of_a_split(monkeypatch, usual, task):
    monkeypatch.setattr(comparison, "BATCH", 8)
    model, exported = usual
    sources, too_long = comparison.sources_of(task, "valid", 1000)
    assert len(sources) == len(task.dataset("valid")) > 2 * comparison.BATCH
    assert too_long == 0
    expected = comparison.search_with_torch(model, task, sources)
    found = compare(exported, expected, sources)
    assert found.equal == found.total == len(sources)
    # hypotheses that the default limit ends
    longer = comparison.search_with_torch(model, task, sources[:9], lambda length: 60 + length)
    found = comparison.search_with_export(exported, sources[:9], lambda n: 60 + n)
    found = comparison.compare(found, longer)
    assert found.equal == 9 and any(len(tokens) > 61 for tokens, _ in longer)
    assert all(len(tokens) <= 61 for tokens, _ in expected)
    with pytest.raises(ConfigurationError, match="--compare other"):
        comparison.sources_of(task, "other", 1000)


@pytest.mark.slow
def test_a_vocabulary_smaller_than_the_beam(tmp_path, parse):
    """fairseq lowers the beam to V - 1 = 4."""
    task = parse("--arch", "transformer").task
    task.src_dict = task.tgt_dict = Dictionary()
    task.src_dict.add_symbol("a")
    args = parse("--arch", "transformer", "--encoder-layers", "1", *drop_mscffn(TINY)).args
    model = task.build_model(args).float().eval()
    export_folder.write_graphs(model, tmp_path)
    export_folder.write_dictionaries(task, tmp_path)
    export_folder.write_config(model, task, tmp_path, {}, "not stated")
    sources = [[4] * length + [2] for length in range(1, 6)]
    expected = comparison.search_with_torch(model, task, sources)
    found = compare(Export(tmp_path), expected, sources)
    assert found.equal == len(sources) and found.largest_difference < exporter.EXACT
