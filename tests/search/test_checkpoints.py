"""Find the checkpoints of trainings."""

import shutil
from argparse import Namespace
from unittest import mock

import pytest
import torch

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.pretrained import find_checkpoint
from fairseq_plugins.search.checkpoints import check_parts, load_models, options_in


def test_the_best_checkpoint_is_taken(tmp_path):
    torch.save({}, str(tmp_path / "checkpoint_last.pt"))
    assert find_checkpoint(tmp_path).name == "checkpoint_last.pt"
    torch.save({}, str(tmp_path / "checkpoint_best.pt"))
    assert find_checkpoint(tmp_path).name == "checkpoint_best.pt"
    assert find_checkpoint(tmp_path / "checkpoint_last.pt").name == "checkpoint_last.pt"


def test_options_of_a_task_are_read_from_every_form():
    options = {"source_lang": "de"}
    for stored in (options, Namespace(**options)):
        assert options_in({"cfg": {"task": stored}}, "task")["source_lang"] == "de"
    stored = {"cfg": None, "args": Namespace(**options)}
    assert options_in(stored, "task")["source_lang"] == "de"


@pytest.mark.parametrize(
    ("model", "task", "told"),
    [
        ({"_name": "other"}, {}, "--arch other"),
        ({"arch": "other"}, {}, "--arch other"),
        ({"encoder_token_mixer": "other"}, {}, "--encoder-token-mixer other"),
        ({"decoder_ffn": "other"}, {}, "--decoder-ffn other"),
        ({}, {"_name": "other"}, "--task other"),
    ],
)
def test_parts_of_another_user_dir_are_told_in_one_line(model, task, told):
    with pytest.raises(ConfigurationError, match=f"^m has {told}, which is .* with --user-dir$"):
        check_parts("m", model, task)


def test_data_is_found_from_another_working_directory(
    tiny_checkpoint, toy_data, tmp_path, monkeypatch
):
    state = torch.load(tiny_checkpoint, weights_only=False)
    state["cfg"]["task"]["data"] = "data/toy"
    checkpoint = tmp_path / "project" / "runs" / "x" / "checkpoint_best.pt"
    checkpoint.parent.mkdir(parents=True)
    torch.save(state, checkpoint)
    with pytest.raises(ConfigurationError, match="data/toy, which is missing: give"):
        load_models([str(checkpoint)], None)
    shutil.copytree(toy_data.bin, tmp_path / "data" / "toy")  # the farther one is not reached
    data = shutil.copytree(toy_data.bin, tmp_path / "project" / "data" / "toy")
    found, _, task = load_models([str(checkpoint)], None)
    assert found == data and task.cfg.data == str(data)
    for other in (b"other 1\n", b"\xff 1\n"):  # not the words of the training, not UTF-8
        (data / "dict.src.txt").write_bytes(other)
        assert load_models([str(checkpoint)], None)[0] == tmp_path / "data" / "toy"
    (data / "bpe.codes").touch()
    unreadable = mock.Mock(side_effect=ConfigurationError("bpe.codes cannot be read"))
    monkeypatch.setattr("fairseq_plugins.data.prepared_folder.digest", unreadable)
    assert load_models([str(checkpoint)], None)[0] == tmp_path / "data" / "toy"


def test_options_without_effect_are_told_in_training_only(tiny_checkpoint, caplog):
    load_models([str(tiny_checkpoint)], None, overrides={"bigbird_block": 3})
    assert not caplog.records
