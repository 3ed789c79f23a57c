"""What a training cannot resume from is reported in one line."""

import shutil

import pytest
import torch

from fairseq_plugins import files
from fairseq_plugins.compat.intact_checkpoints import LOCK
from fairseq_plugins.errors import ConfigurationError
from tests.conftest import load, updates


def test_a_training_without_the_optimizers_state_does_not_begin_anew(
    run_train, toy_data, train_args, tmp_path
):
    words = [toy_data.bin, *train_args, "--save-dir", tmp_path, "--disable-validation"]
    words += ["--no-save-optimizer-state"]
    run_train(*words, "--max-update", 2)
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    with pytest.raises(ConfigurationError, match="has 2 updates but no optimizer state"):
        run_train(*words, "--max-update", 4)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before
    name = tmp_path / "checkpoint_last.pt"
    other = [*words[:-3], tmp_path / "other", *words[-2:], "--finetune-from-model", name]
    assert run_train(*other, "--max-update", 1)
    assert updates(load(tmp_path / "other")) == 1


@pytest.fixture(scope="module")
def begun(run_train, toy_data, train_args, tmp_path_factory):
    """The words of a training, and its folder, stopped within the first epoch."""
    folder = tmp_path_factory.mktemp("begun")
    words = [toy_data.bin, *train_args, "--disable-validation"]
    run_train(*words, "--save-dir", folder, "--max-update", 2)
    return words, folder


@pytest.fixture
def refused(begun, run_train, tmp_path):
    """refused(change, more words) -> the error of one line of resuming a changed checkpoint."""

    def run(change=lambda state: None, *more, data=None):
        words, folder = begun
        copy = shutil.copytree(folder, tmp_path / "run")
        state = torch.load(copy / "checkpoint_last.pt", weights_only=False)
        change(state)
        torch.save(state, copy / "checkpoint_last.pt")
        before = (copy / "checkpoint_last.pt").read_bytes()
        words = [data or words[0], *words[1:], *more, "--save-dir", copy, "--max-update", 4]
        try:
            with pytest.raises(ConfigurationError) as error:
                run_train(*words)
            assert str(error.value).isprintable() and "--reset-" in str(error.value)
            assert (copy / "checkpoint_last.pt").read_bytes() == before
            assert sorted(path.name for path in copy.iterdir()) == sorted(
                path.name for path in folder.iterdir()
            )
        finally:
            shutil.rmtree(copy)
        return str(error.value)

    return run


@pytest.mark.parametrize("size", [20, 150, 260])
def test_other_data_within_an_epoch(refused, make_toy_data, toy_data, tmp_path, size):
    """Fewer than were read, fewer, and more; the dictionaries stay."""
    data = make_toy_data(tmp_path / "data", {**toy_data.sizes, "train": size}).bin
    for path in toy_data.bin.glob("dict.*"):
        shutil.copy(path, data)
    found = refused(lambda state: None, data=data)
    assert f"epoch 1 of 203 sentences, but the training data have {size}: restore them" in found


def test_other_data_of_a_checkpoint_that_does_not_tell_their_number(
    refused, make_toy_data, toy_data, tmp_path
):
    data = make_toy_data(tmp_path / "data", {**toy_data.sizes, "train": 9}).bin
    for path in toy_data.bin.glob("dict.*"):
        shutil.copy(path, data)
    found = refused(
        lambda state: state["extra_state"]["train_iterator"].pop("sentences"), data=data
    )
    assert "now has fewer batches than were read" in found


@pytest.mark.parametrize("name", ["checkpoint_last.pt", "checkpoint_best.pt", "checkpoint7.pt"])
def test_a_folder_in_the_place_of_a_checkpoint(begun, run_train, tmp_path, name):
    words, folder = begun
    copy = shutil.copytree(folder, tmp_path / "run")
    (copy / name).unlink(missing_ok=True)
    (copy / name).mkdir()
    with pytest.raises(ConfigurationError, match=f"{name} is a folder in the place of a checkp"):
        run_train(*words, "--save-dir", copy, "--max-update", 4)
    assert not list((copy / name).iterdir())


def test_two_trainings_in_one_folder(begun, run_train, tmp_path, monkeypatch):
    words, folder = begun
    copy = shutil.copytree(folder, tmp_path / "run")
    monkeypatch.setattr(files, "PATIENCE", 0)
    before = (copy / "checkpoint_last.pt").read_bytes()
    with files.alone_in(copy, "training", name=LOCK):
        with pytest.raises(ConfigurationError, match=f"^another training is running in {copy}: "):
            run_train(*words, "--save-dir", copy, "--max-update", 4)
    assert (copy / "checkpoint_last.pt").read_bytes() == before
    (tmp_path / "mine").write_text("mine")
    (copy / "checkpoint_last.pt.tmp").symlink_to(tmp_path / "mine")
    run_train(*words, "--save-dir", copy, "--max-update", 4)  # what a killed one left
    assert (tmp_path / "mine").read_text() == "mine"
    assert updates(load(copy)) == 4
    with files.alone_in(copy, "training", name=LOCK):  # released
        pass
