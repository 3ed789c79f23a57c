"""Search among the words of a shortlist."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.export import folder as export_folder
from fairseq_plugins.export import shared_table
from fairseq_plugins.export import shortlist as lexical
from fairseq_plugins.serving import Translator
from fairseq_plugins.serving.folder import SHORTLIST_DECODER, Export
from fairseq_plugins.serving.search import Options, Source, search
from fairseq_plugins.serving.shortlist import FILE, GROUP, Shortlist
from tests.serving.conftest import sign

ALWAYS = (2, 3)  # the end symbol and the unknown word


@pytest.fixture(scope="module")
def pairs():
    """Sentences whose target tokens are the source tokens plus 20."""
    draw = random.Random(1)
    source = [[draw.randrange(4, 20) for _ in range(draw.randrange(3, 9))] for _ in range(600)]
    sides = (source, [[token + 20 for token in tokens] for tokens in source])
    return [[torch.tensor([*tokens, 2]) for tokens in side] for side in sides]


@pytest.fixture(scope="module")
def arrays():
    """A lexicon in which token i becomes i + 1 and i + 2."""
    targets = [[i + 1, i + 2] for i in range(30)]
    return {
        "common": np.array(ALWAYS),
        "starts": np.cumsum([0] + [len(some) for some in targets]),
        "targets": np.array(targets).flatten(),
        "vectors": np.arange(40 * 6, dtype=np.float32).reshape(40, 6),
        "biases": np.arange(40, dtype=np.float32),
    }


def test_words_of_a_batch(tmp_path, arrays):
    np.savez(tmp_path / FILE, **arrays)
    sources = np.array([[10, 20, 2], [10, 2, 1]])
    words = Shortlist(tmp_path / FILE).choose(sources, [35], padding=1)
    expected = [2, 3, 4, 11, 12, 21, 22, 35]
    assert words.inputs["words"].tolist() == expected
    assert words.groups * GROUP == len(expected)
    assert [words.places[token] for token in expected] == list(range(8)) and words.places[5] == -1
    assert words.inputs["word_vectors"].T.tolist() == arrays["vectors"][expected].tolist()
    more = Shortlist(tmp_path / FILE).choose(sources, [35, 36], padding=1)
    assert more.groups == 2 and more.inputs["words"].tolist() == [*expected, 36] + [1] * 7
    assert np.isneginf(more.inputs["word_biases"][9:]).all()
    assert more.inputs["word_biases"][:9].tolist() == [*expected, 36]


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays.pop("starts"),
        lambda arrays: arrays.update(starts=arrays["starts"][::-1]),
        lambda arrays: arrays.update(starts=arrays["starts"] + 1),
        lambda arrays: arrays.update(targets=arrays["targets"] + 39),
        lambda arrays: arrays.update(common=np.array([-1])),
        lambda arrays: arrays.update(common=np.array([["x"]])),
        lambda arrays: arrays.update(biases=arrays["biases"][1:]),
        lambda arrays: arrays.update(scales=arrays["biases"][1:]),
        None,
    ],
)
def test_a_damaged_one_is_told_in_one_line(tmp_path, arrays, change):
    path = tmp_path / FILE
    np.savez(path, **arrays)
    Shortlist(path).check(30, 40)
    if change is None:
        path.write_bytes(path.read_bytes()[:-40])
    else:
        change(changed := dict(arrays))
        np.savez(path, **changed)
    with pytest.raises(ConfigurationError, match=f"--shortlist: {path} cannot be used"):
        Shortlist(path).check(30, 40)


def with_shortlist(model, task, folder, lexicon, monkeypatch, int8=False):
    monkeypatch.setattr(lexical, "lexicon", lambda task: lexicon)
    export_folder.write_shortlist_graph(model, task, folder, int8)
    sign(folder)
    return Export(folder, shortlist=True)


def every_word(task):
    """A lexicon in which every source token may become anything."""
    size = len(task.source_dictionary)
    return {
        "common": np.arange(len(task.target_dictionary)),
        "starts": np.zeros(size + 1, np.int64),
        "targets": np.zeros(0, np.int64),
    }


@pytest.mark.parametrize("copying", [False, True])
def test_of_all_words_it_changes_nothing(
    tmp_path, monkeypatch, export_tiny, export_joined, task, joined_task, copying
):
    words = "--encoder-layers 1 --decoder-layers 2".split()
    words += "--copy-attention --copy-next --share-all-embeddings".split() if copying else []
    make, task = (export_joined, joined_task) if copying else (export_tiny, task)
    model, whole = make(tmp_path / "export", *words, arch="fastformer_encoder")
    listed = with_shortlist(model, task, whole.folder, every_word(task), monkeypatch)
    draw = random.Random(2)
    sources = [
        Source([*(draw.randrange(4, 40) for _ in range(length)), 2], 12, prefix)
        for length, prefix in ((3, ()), (9, ()), (1, (7, 9)), (6, ()))
    ]
    if copying:  # words that the dictionary lacks
        first = len(task.target_dictionary)
        sources.append(Source([first, 7, first + 1, 8, 2], 12, (first + 1,)))
    for options in (Options(nbest=5), Options(no_repeat_ngram=2, min_len=3)):
        for ours, theirs in zip(search(listed, sources, options), search(whole, sources, options)):
            assert [h.tokens for h in ours] == [h.tokens for h in theirs]
            scores = [h.score for h in theirs]
            assert [h.score for h in ours] == pytest.approx(scores, abs=1e-5)


def test_eight_bits_of_all_words_change_little(tmp_path, monkeypatch, export_tiny, task):
    """On processors where sums of signed 8-bit products overflow, too."""
    monkeypatch.setattr("fairseq_plugins.export.quantization.LEAST", 100)
    words = "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 256".split()
    words += ["--decoder-embed-dim", "256"]
    model, whole = export_tiny(tmp_path / "export", *words, arch="transformer", int8=True)
    listed = with_shortlist(model, task, whole.folder, every_word(task), monkeypatch, int8=True)
    sources = [Source([token, token + 1, 2], 9, range(token, token + 9)) for token in range(4, 30)]
    differences = [
        abs(ours - theirs)
        for found, expected in zip(*(search(e, sources, Options()) for e in (listed, whole)))
        for ours, theirs in zip(found[0].token_scores, expected[0].token_scores)
    ]
    assert max(differences) < 0.01


@pytest.mark.parametrize("int8", [False, True])
def test_only_its_words_are_written(
    tmp_path, monkeypatch, export_tiny, export_joined, task, joined_task, int8
):
    words, make = ["--encoder-layers", "1"], export_tiny
    if int8:  # all graphs read one copy of the embeddings
        monkeypatch.setattr("fairseq_plugins.export.quantization.LEAST", 100)
        make, task = export_joined, joined_task
        words += ["--share-all-embeddings"]
    model, whole = make(tmp_path / "export", *words, arch="transformer", int8=int8)
    lexicon = dict(every_word(task), common=np.array([*ALWAYS, 5, 6, 7, 8, 9]))
    listed = with_shortlist(model, task, whole.folder, lexicon, monkeypatch, int8)
    content = (whole.folder / SHORTLIST_DECODER).read_bytes()
    assert (shared_table.FILE.encode() in content) == int8
    sources = [Source([7, 11, 5, 2], 12), Source([9, 2], 12, prefix=(17,))]
    found = search(listed, sources, Options(nbest=5))
    assert {token for h in found[0] for token in h.tokens} <= {17, *lexicon["common"].tolist()}
    assert all(h.tokens[0] == 17 for h in found[1])
    # the fewer words, the higher their probabilities
    assert found[0][0].token_scores[0] > search(whole, sources[:1], Options())[0][0].token_scores[0]


def test_aligner_finds_translations(pairs):
    pytest.importorskip("thot", reason="needs sil-thot: pip install '.[shortlist]'")

    class Words(list):
        eos, unk = (lambda self: 2), (lambda self: 3)

    task = SimpleNamespace(
        load_dataset=lambda split: None,
        dataset=lambda split: SimpleNamespace(src=pairs[0], tgt=pairs[1]),
        source_dictionary=Words(range(40)),
        target_dictionary=Words(range(40)),
    )
    found = lexical.lexicon(task)
    for token in range(4, 20):
        targets = found["targets"][found["starts"][token] : found["starts"][token + 1]]
        assert token + 20 in targets and len(targets) < 16
    assert found["starts"][25] == found["starts"][24]  # no source sentence has this token
    assert set(ALWAYS) <= set(found["common"])


def test_without_training_data_or_shortlist(exported):
    def load_dataset(split):
        raise FileNotFoundError("Dataset not found: train")

    pytest.importorskip("thot", reason="needs sil-thot: pip install '.[shortlist]'")
    with pytest.raises(ConfigurationError, match="--shortlist needs the training data"):
        lexical.lexicon(SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(ConfigurationError, match="export the model with --shortlist"):
        Translator(exported.folder, shortlist=True)
    with pytest.raises(ConfigurationError, match="remove --sampling"):
        Translator(exported.folder, shortlist=True, sampling=True)
