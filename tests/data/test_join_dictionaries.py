"""join-dictionaries: a folder equal to one of --joined-dictionary, and a training that starts."""

import json
import re
import shutil
from pathlib import Path

import pytest

from fairseq_plugins.cli import join_dictionaries, main, prepare_translation
from fairseq_plugins.cli import train as command
from fairseq_plugins.data import binary
from fairseq_plugins.data.prepared_folder import Record, needed_files
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.train import planning
from tests import tiny_runs


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same text prepared with one dictionary and with two, one for each subword model."""
    folder = tmp_path_factory.mktemp("pairs")
    tiny_runs.write_pairs(folder / "raw", ("de", "en"), tiny_runs.sentence, tiny_runs.SIZES)
    for kind in ("bpe", "sentencepiece"):
        for how in ("", "no-"):
            words = f"{folder / (how + kind)} --source-lang de --target-lang en --workers 1"
            words += f" --vocab-size 70 --subword {kind} --{how}joined-dictionary"
            words += "".join(f" --{s} {folder / 'raw' / s}" for s in tiny_runs.SIZES)
            assert prepare_translation.main(words.split()) == 0
    return folder


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
def test_the_folder_is_that_of_a_joined_dictionary(folders, kind, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(binary, "CHARACTERS", 7)
    pair, expected, made = folders / f"no-{kind}", folders / kind, tmp_path / "made"
    for _ in range(2):  # the second time it is finished
        assert join_dictionaries.main([str(pair), str(made)]) == 0
    assert f"{made} is ready for training, with one dictionary of " in capsys.readouterr().out
    assert (made / "dict.de.txt").read_bytes() != (pair / "dict.de.txt").read_bytes()
    names = [path.relative_to(expected) for path in expected.rglob("*") if path.is_file()]
    assert sorted(names) == sorted(p.relative_to(made) for p in made.rglob("*") if p.is_file())
    assert len(needed_files(made)) == 15
    for name in names:
        if name.name not in ("report.txt", "preparation.json"):
            assert (made / name).read_bytes() == (expected / name).read_bytes(), name
    ours, theirs = Record.read(made), Record.read(expected)
    settings = dict(ours.settings)
    assert settings.pop("pair") and settings == theirs.settings
    assert (ours.results, ours.sha256) == (theirs.results, theirs.sha256)
    assert "The dictionaries were joined later, in one of" in (made / "report.txt").read_text()


def test_each_token_stays_itself_in_numbers_of_32_bits(folders, tmp_path):
    """Also a token whose count is 0, as in dictionaries that others made."""
    pair = Path(shutil.copytree(str(folders / "no-bpe"), str(tmp_path / "pair")))
    (pair / "preparation.json").write_text(
        json.dumps({"settings": Record.read(pair).settings})  # without digests of dictionaries
    )
    _, more = (pair / "dict.de.txt").read_text().split("\n", 1)
    (pair / "dict.de.txt").write_text("rare 0\n" + more)
    for side in ("de", "en"):
        with open(pair / f"dict.{side}.txt", "a") as file:
            file.writelines(f"{side}{number} 1\n" for number in range(40_000))
    join_dictionaries.main([str(pair), str(tmp_path / "made")])

    for side in ("de", "en"):
        name = f"valid.de-en.{side}"
        made, given = (tiny_runs.binarised(each / name) for each in (tmp_path / "made", pair))
        assert made == given and ("rare" in " ".join(made)) == (side == "de")


@pytest.mark.parametrize("option", ["--share-all-embeddings", "--copy-attention"])
def test_the_command_that_a_refusal_names_makes_the_training_start(
    folders, option, tmp_path, train_args, run_train
):
    pair = Path(shutil.copytree(str(folders / "no-bpe"), str(tmp_path / "pair")))
    words = ["transformer_ftc", str(pair), "--save-dir", str(tmp_path / "run"), "--", option]
    with pytest.raises(ConfigurationError, match=f"{option} needs one dictionary") as error:
        planning.plan(command.read_request(words))
    named = re.search("`fairseq-plugins (join-dictionaries .*)`", str(error.value))
    assert main(named[1].split()) == 0
    joined = named[1].split()[-1]
    planning.plan(command.read_request([words[0], joined, *words[2:]]))
    words = [*train_args, "--arch", "transformer_ftc", "--encoder-blocks", "1,1", option]
    run = run_train(joined, *words, "--max-update", 1, "--save-dir", tmp_path / "run")
    assert "done training" in run.output


def test_folders_that_cannot_be_joined_are_rejected(folders, tmp_path):
    tagged, damaged, other = (
        Path(shutil.copytree(str(folders / "no-bpe"), str(tmp_path / name)))
        for name in ("tagged", "damaged", "other")
    )
    record = json.loads((tagged / "preparation.json").read_text())
    record["settings"]["tag"] = "madeupword0000"
    (tagged / "preparation.json").write_text(json.dumps(record))
    with open(damaged / "train.de-en.de.bin", "r+b") as tokens:
        tokens.write(b"\1")
    (other / "preparation.json").write_text(
        json.dumps({"settings": record["settings"] | {"tag": ""}})
    )
    (other / "valid.de-en.en.idx").write_bytes(b"TNTIDX\x00\x00")
    for folder, message in (
        (folders / "bpe", "has one dictionary for both languages already"),
        (tagged, "sources with a tag"),
        (damaged, "train.de-en.de.bin is damaged"),
        (other, "valid.de-en.en.idx is not of fairseq's --dataset-impl mmap"),
        (tmp_path / "none", "none.* cannot be used"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            join_dictionaries.main([str(folder), str(tmp_path / "made")])
    assert not (tmp_path / "made").exists()
