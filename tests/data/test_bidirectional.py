"""prepare-bidirectional: both directions in one folder."""

import json
import random
import shutil
from pathlib import Path

import pytest

from fairseq_plugins.cli import prepare_bidirectional
from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.errors import ConfigurationError
from tests.tiny_runs import binarised, prepare


@pytest.fixture(scope="module")
def make_pair(tmp_path_factory):
    def make(*words):
        generator, text = random.Random(1), {}
        for split, size in (("train", 40), ("valid", 5), ("test", 4)):
            numbers = [generator.randint(0, 999) for _ in range(size)]
            sides = "l'an {} & plus .", "the year {} & more ."
            text[split] = [[side.format(n) for n in numbers] for side in sides]
        words = ["--vocab-size", 40, "--subword", "bpe", *words]
        return prepare(tmp_path_factory.mktemp("pair"), text, *words, languages=("fr", "en"))

    return make


@pytest.fixture(scope="module")
def pair(make_pair):
    return make_pair("--joined-dictionary")


@pytest.fixture(scope="module")
def both(pair):
    prepare_bidirectional.main([str(pair), str(pair.with_name("both"))])
    return pair.with_name("both")


@pytest.mark.parametrize("split, size", [("train", 40), ("valid", 5)])
def test_each_pair_is_in_both_directions(pair, both, split, size):
    french, english = (binarised(pair / f"{split}.fr-en.{side}") for side in ("fr", "en"))
    assert len(french) == size and french != english
    assert Prepared(both).words == Prepared(pair).words  # so that a training starts from another
    assert binarised(both / f"{split}.fr-en.fr") == french + english
    assert binarised(both / f"{split}.fr-en.en") == english + french


def test_a_pair_prepared_again_with_other_content_is_noticed(pair, both, tmp_path):
    other, made = tmp_path / "pair", tmp_path / "both"
    shutil.copytree(str(pair), str(other))
    shutil.copytree(str(both), str(made))
    with open(other / "train.fr-en.fr.bin", "r+b") as tokens:
        tokens.write(b"\1")
    with pytest.raises(ConfigurationError, match="prepared with other settings .pair was "):
        prepare_bidirectional.main([str(other), str(made)])


def test_folders_that_cannot_be_joined_are_refused(make_pair, pair, both, tmp_path):
    documents = Path(shutil.copytree(str(pair), str(tmp_path / "documents")))
    tagged = Path(shutil.copytree(str(pair), str(tmp_path / "tagged")))
    for folder, name, value in ((documents, "boundary", "<q>"), (tagged, "tag", "madeupword0000")):
        record = json.loads((folder / "preparation.json").read_text())
        record["settings"][name] = value
        (folder / "preparation.json").write_text(json.dumps(record))
    for folder, message in (
        (make_pair("--no-joined-dictionary"), "one dictionary per language.*--joined-dictionary"),
        (both, "has both directions"),
        (tagged, "sources with a tag.*--no-tag"),
        (documents, "was prepared for summarization, which has one direction"),
        (tmp_path / "none", "none.* cannot be used"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            prepare_bidirectional.main([str(folder), str(tmp_path / "made")])
    assert not (tmp_path / "made").exists()
