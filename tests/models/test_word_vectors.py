"""Word vectors in GloVe's and word2vec's text formats become the embeddings they name."""

import logging

import pytest
import torch
from fairseq.data import Dictionary
from torch import nn

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.models.word_vectors import load_word_vectors
from tests.models.test_options import from_words, from_yaml
from tests.tiny_models import TINY

OPTION = "--encoder-embed-path"


def write(path, vectors, header=False):
    """A text file of vectors; returns its name."""
    lines = ["{} {}".format(word, " ".join(map(str, numbers))) for word, numbers in vectors.items()]
    if header:
        lines.insert(0, f"{len(vectors)} {len(next(iter(vectors.values())))}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def vectors_of(words, dim=24):
    return {word: [n + i / 100 for i in range(dim)] for n, word in enumerate(words, 1)}


def words_of(toy_data, side):
    dictionary = toy_data.bin / f"dict.{side}.txt"
    return [line.split()[0] for line in dictionary.read_text().splitlines()]


def loaded(path, words, dim=24, fill=0.5):
    """A dictionary of these words, and an embedding of `fill` that had the vectors loaded."""
    dictionary = Dictionary()
    for word in words:
        dictionary.add_symbol(word)
    embedding = nn.Embedding(len(dictionary), dim, dictionary.pad())
    nn.init.constant_(embedding.weight, fill)
    nn.init.zeros_(embedding.weight[dictionary.pad()])
    load_word_vectors(path, dictionary, embedding, OPTION)
    return dictionary, embedding.weight.data


@pytest.mark.parametrize("header", [False, True], ids=["glove", "word2vec"])
def test_every_word_has_its_vector_in_both_formats(tmp_path, header, caplog):
    given = vectors_of(["the", ",", "\u00e9t\u00e9", "rain"])
    path = write(tmp_path / "vectors.txt", given, header)
    with caplog.at_level(logging.INFO):
        dictionary, weight = loaded(path, ["rain", "the", "snow", "\u00e9t\u00e9"])
    for word in ("the", "rain", "\u00e9t\u00e9"):  # the first line is a word, too
        assert torch.equal(weight[dictionary.index(word)], torch.tensor(given[word]))
    assert (weight[dictionary.index("snow")] == 0.5).all()
    assert (weight[dictionary.pad()] == 0).all()
    assert "3 of the dictionary's 7 words found (42.9 %)" in caplog.text
    assert "few of" not in caplog.text


def test_spaces_within_a_word_and_at_the_end_of_a_line(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("the 1 2 \n. . 3 4\n\u00a0 5 6\nrain -7e-1 8\n", encoding="utf-8")
    dictionary, weight = loaded(str(path), ["the", ".", "rain"], dim=2)
    assert weight[dictionary.index("the")].tolist() == [1, 2]
    assert weight[dictionary.index(".")].tolist() == [0.5, 0.5]  # it is in no line alone
    assert weight[dictionary.index("rain")].tolist() == pytest.approx([-0.7, 8])


def test_a_piece_that_begins_a_word_is_the_word(tmp_path, caplog):
    path = write(tmp_path / "vectors.txt", vectors_of(["the", "s"]))
    words = ["\u2581the", "\u2581"] + [f"\u2581x{n}" for n in range(20)]
    dictionary, weight = loaded(path, words)
    assert weight[dictionary.index("\u2581the"), 0] == 1
    assert (weight[dictionary.index("\u2581")] == 0.5).all()
    assert "few of the dictionary's words have a vector" in caplog.text


def test_words_without_a_vector_are_alike(tmp_path):
    generator = torch.Generator().manual_seed(1)
    mixing = torch.tensor([[2.0, 0.0, 0.0], [1.0, 0.5, 0.0], [0.0, 0.3, 0.1]])
    known = torch.randn(400, 3, generator=generator) @ mixing.t() + torch.tensor([5.0, -3.0, 0.0])
    names = [f"w{n}" for n in range(400)]
    path = write(tmp_path / "vectors.txt", dict(zip(names, known.tolist())))
    torch.manual_seed(1)
    dictionary, weight = loaded(path, names + [f"new{n}" for n in range(4000)], dim=3)
    new = weight[dictionary.index("new0") :]
    assert torch.allclose(new.mean(dim=0), known.mean(dim=0), atol=0.1)
    centred, expected = new - new.mean(dim=0), known - known.mean(dim=0)
    assert torch.allclose(
        centred.t() @ centred / len(new), expected.t() @ expected / len(known), atol=0.25
    )
    assert len(new.unique(dim=0)) == 4000
    assert (weight[dictionary.pad()] == 0).all()


@pytest.mark.parametrize("make", [from_words, from_yaml])
def test_the_option_reaches_the_model(parse, tmp_path, make, toy_data):
    words, target = (words_of(toy_data, side)[:10] for side in ("src", "tgt"))
    encoder = write(tmp_path / "encoder.txt", vectors_of(words))
    decoder = write(tmp_path / "decoder.txt", vectors_of(target), header=True)
    arch = ["--arch", "fastformer_encoder", *TINY, "--encoder-layers", "1"]
    model = make(parse, [*arch, OPTION, encoder, "--decoder-embed-path", decoder])
    for side, expected in ((model.encoder, words), (model.decoder, target)):
        for n, word in enumerate(expected, 1):
            row = side.embed_tokens.weight[side.dictionary.index(word)]
            assert torch.allclose(row, torch.tensor([n + i / 100 for i in range(24)]))


def test_a_checkpoint_does_not_need_the_file(
    run_train, run_generate, train_args, toy_data, tmp_path
):
    path = write(tmp_path / "vectors.txt", vectors_of(words_of(toy_data, "src"), dim=16))
    words = [toy_data.bin, *train_args, "--arch", "fastformer_encoder", OPTION, path]
    words += ["--save-dir", tmp_path / "model", "--lr", 1e-9]
    run_train(*words, "--max-update", 1)
    saved = torch.load(
        str(tmp_path / "model" / "checkpoint_last.pt"), map_location="cpu", weights_only=False
    )
    rows = saved["model"]["encoder.embed_tokens.weight"]
    assert torch.allclose(rows[4:].sort(dim=0).values[:, 0], torch.arange(1.0, len(rows) - 3))
    run_train(*words, "--max-update", 2)  # resumes, with the file
    (tmp_path / "vectors.txt").unlink()
    generated = run_generate(
        *(toy_data.bin, "--path", tmp_path / "model" / "checkpoint_last.pt", "--cpu"),
        *("--max-len-b", 3),
    )
    assert "H-0" in generated.output


MISTAKES = [  # file, what the message must hold
    ("the 1 2 3\n", ["vectors of 3 numbers", "--encoder-embed-dim is 2", "--encoder-embed-dim 3"]),
    ("2 3\nthe 1 2 3\na 1 2 3\n", ["vectors of 3 numbers", "--encoder-embed-dim 3"]),
    ("the 1 2\nrain 1\n", ["line 2"]),
    ("the 1 2\na 1 2\nrain 1 x\n", ["line 3"]),
    ("the 1 2\na 1 2\n\n", ["line 3"]),
    *((f"the 1 2\na 1 {number}\n", ["line 2", "finite"]) for number in ("nan", "-inf", "1e39")),
    ("The 1 2\n", ["none of the dictionary's 5 words", "rain", "case"]),
    ("", ["none of the dictionary's 5 words"]),
]


@pytest.mark.parametrize("content, parts", MISTAKES)
def test_mistakes_are_errors_of_one_line(tmp_path, content, parts):
    path = tmp_path / "vectors.txt"
    path.write_text(content)
    with pytest.raises(ConfigurationError) as error:
        loaded(str(path), ["the", "rain"], dim=2)
    assert all(part in str(error.value) for part in [OPTION, str(path), *parts])
    assert "\n" not in str(error.value)
