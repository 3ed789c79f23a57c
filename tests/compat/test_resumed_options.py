"""Options of a training that resumes count, or it is said that they do not."""

import re
import shutil

import pytest
import torch

from fairseq_plugins import files
from fairseq_plugins.compat import one_training, resumed_options
from fairseq_plugins.errors import ConfigurationError


def state_of(folder, name="checkpoint_last.pt"):
    return torch.load(str(folder / name), map_location="cpu", weights_only=False)


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
    assert state_of(tmp_path / "other")["optimizer_history"][-1]["num_updates"] == 1


def test_the_optimizers_options_of_the_checkpoint_are_told(
    run_train, toy_data, train_args, tmp_path
):
    words = [toy_data.bin, *train_args, "--save-dir", tmp_path, "--disable-validation"]
    run_train(*words, "--max-update", 1)
    more = ["--weight-decay", 0.25, "--max-update"]
    told = "the checkpoint's weight_decay 0.0 is used, but 0.25 is ignored"
    assert told in run_train(*words, *more, 2).output
    assert "is ignored" not in run_train(*words, "--max-update", 3).output
    change = ["--optimizer-overrides", "{'weight_decay': 0.25}"]
    assert "is ignored" not in run_train(*words, *more, 4, *change).output
    groups = state_of(tmp_path)["last_optimizer_state"]["param_groups"]
    assert {group["weight_decay"] for group in groups} == {0.25}


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
        state = state_of(copy)
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


def test_another_optimizer_or_criterion(refused):
    assert "with another --optimizer (FairseqAdam, not SGD)" in refused(
        lambda state: None, "--optimizer", "sgd"
    )
    found = refused(lambda state: None, "--criterion", "label_smoothed_cross_entropy_rdrop")
    assert "with another --criterion (LabelSmoothedCrossEntropyCriterion, not " in found


@pytest.mark.parametrize(
    "change, told",
    [
        (lambda saved: saved["state"][3].pop("exp_avg_sq"), "parameter 3 has no exp_avg_sq"),
        (lambda saved: saved["param_groups"][0]["params"].pop(), r"has \d+ parameters, but the"),
        (lambda saved: saved.update(param_groups=[]), "has 0 parameters, but the model has"),
        (lambda saved: saved.pop("state"), "the optimizer's state is damaged"),
        (
            lambda saved: saved["state"][2].update(exp_avg=torch.zeros(2, 2)),
            r"exp_avg of parameter 2 has size \(2, 2\), but the parameter has",
        ),
    ],
)
def test_an_altered_state_of_the_optimizer(refused, change, told):
    assert re.search(told, refused(lambda state: change(state["last_optimizer_state"])))


@pytest.mark.parametrize(
    "states",
    [
        [{"momentum_buffer": None}, {"momentum_buffer": torch.ones(2, 3)}],
        [{"exp_avg_sq": torch.ones(2, 3)}, {"exp_avg_sq_row": 0, "exp_avg_sq_col": 0}],
    ],
)
def test_states_that_differ_by_parameter(states):
    """SGD's without momentum, as older releases of torch stored it; Adafactor's halves."""
    groups = [{"params": [torch.ones(2, 3)] * 2}]
    saved = {"param_groups": [{"params": [0, 1]}], "state": dict(enumerate(states))}
    resumed_options._check_state(groups, saved)


def test_parameters_without_a_state_are_told(begun, run_train, tmp_path):
    words, folder = begun
    copy = shutil.copytree(folder, tmp_path / "run")
    state = state_of(copy)
    for number in (1, 4):
        del state["last_optimizer_state"]["state"][number]
    torch.save(state, copy / "checkpoint_last.pt")
    output = run_train(*words, "--save-dir", copy, "--max-update", 3).output
    assert "2 of " in output and "parameters have no optimizer state in the chec" in output


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
    monkeypatch.setattr(one_training, "PATIENCE", 0)
    before = (copy / "checkpoint_last.pt").read_bytes()
    with open(copy / one_training.LOCK, "w") as other:
        files.lock(other, copy, "training")
        with pytest.raises(ConfigurationError, match=f"^another training is running in {copy}: "):
            run_train(*words, "--save-dir", copy, "--max-update", 4)
    assert (copy / "checkpoint_last.pt").read_bytes() == before
    (tmp_path / "mine").write_text("mine")
    (copy / "checkpoint_last.pt.tmp").symlink_to(tmp_path / "mine")
    run_train(*words, "--save-dir", copy, "--max-update", 4)  # what a killed one left
    assert (tmp_path / "mine").read_text() == "mine"
    assert state_of(copy)["optimizer_history"][-1]["num_updates"] == 4
    assert not (copy / one_training.LOCK).exists()
