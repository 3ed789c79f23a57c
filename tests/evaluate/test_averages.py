"""Averaging: the mean is right, fairseq-generate reads it, and bad input is an error."""

import os
import re
import resource
import shutil
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from omegaconf import OmegaConf

from fairseq_plugins.cli import average as command
from fairseq_plugins.compat.checkpoints import WORDS
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate import averages


@pytest.fixture(scope="module")
def save_dir(tmp_path_factory, toy_data, run_train, train_args):
    folder = tmp_path_factory.mktemp("average")
    run_train(
        toy_data.bin, *train_args, "--save-dir", folder, "--max-epoch", 4,
        "--keep-best-checkpoints", 3, "--save-interval-updates", 4,
        "--share-decoder-input-output-embed",
    )  # fmt: skip
    return folder


def average(tmp_path, *arguments):
    output = tmp_path / "average.pt"
    words = [str(a) for a in arguments]
    command.main(["--inputs", *words, "--output", str(output)])
    return torch.load(str(output), map_location="cpu", weights_only=False)


def model(path):
    return checkpoint_utils.load_checkpoint_to_cpu(str(path))["model"]


def assert_mean(actual, paths):
    models = [model(path) for path in paths]
    assert list(actual["model"]) == list(models[0])
    for name, value in actual["model"].items():
        mean = torch.stack([m[name].double() for m in models]).mean(0)
        assert value.dtype == models[0][name].dtype
        torch.testing.assert_close(value.double(), mean, rtol=1e-6, atol=1e-7)


def test_given_checkpoints(save_dir, tmp_path, capsys):
    paths = [save_dir / "checkpoint1.pt", save_dir / "checkpoint3.pt"]
    state = average(tmp_path, *paths)
    assert_mean(state, paths)
    assert "last_optimizer_state" not in state
    newest = checkpoint_utils.load_checkpoint_to_cpu(str(paths[1]))
    assert state["optimizer_history"] == newest["optimizer_history"]
    assert f"1/2 {paths[0]}\n2/2 {paths[1]}\n" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_average_of_half_precision_is_not_rounded(dtype, tmp_path, monkeypatch):
    values = [
        torch.randn(50, generator=torch.Generator().manual_seed(n)).to(dtype) for n in range(3)
    ]
    states = {
        f"{n}.pt": {"model": {"w": w}, "cfg": OmegaConf.create({})} for n, w in enumerate(values)
    }
    monkeypatch.setattr(averages, "load", lambda path: states[path.name])
    averaged = averages.average([Path(name) for name in states], lambda line: None)["model"]["w"]
    mean = torch.stack(values).double().mean(0)
    assert averaged.dtype == torch.float32
    torch.testing.assert_close(averaged.double(), mean, rtol=1e-7, atol=1e-9)


def test_last_epochs_and_updates(save_dir, tmp_path):
    paths = [save_dir / f"checkpoint{n}.pt" for n in (3, 4)]
    for words in (("--last", 2), ("--num-epoch-checkpoints", 2)):
        assert_mean(average(tmp_path, save_dir, *words), paths)
    found = {
        int(m.group(1)): save_dir / m.group(0)
        for m in (re.fullmatch(r"checkpoint_\d+_(\d+)\.pt", name) for name in os.listdir(save_dir))
        if m
    }
    newest = sorted(found)[-3:]
    assert max(newest) >= 10  # numbers are compared as numbers
    for words in (("--last", 3, "--by", "update"), ("--num-update-checkpoints", 3)):
        assert_mean(average(tmp_path, save_dir, *words), [found[n] for n in newest])
    # a training without checkpoints of epochs
    (tmp_path / "updates").mkdir()
    for path in found.values():
        shutil.copy(str(path), str(tmp_path / "updates"))
    state = average(tmp_path, tmp_path / "updates", "--last", 3)
    assert_mean(state, [found[n] for n in newest])


@pytest.mark.parametrize("maximize", [False, True])
def test_best(save_dir, tmp_path, maximize):
    kept = {}
    for path in save_dir.glob("checkpoint.best_loss_*.pt"):
        state = torch.load(str(path), map_location="cpu", weights_only=False)
        state["cfg"]["checkpoint"]["maximize_best_checkpoint_metric"] = maximize
        torch.save(state, str(tmp_path / path.name))
        kept[float(re.search(r"loss_([\d.]+)\.pt", path.name).group(1))] = tmp_path / path.name
    assert len(kept) == 3
    best = sorted(kept, reverse=maximize)
    assert_mean(average(tmp_path, tmp_path, "--best", 2), [kept[loss] for loss in best[:2]])
    for count in (2, 3):  # all else is the best one's
        state = average(tmp_path, tmp_path, "--best", count)
        expected = torch.load(str(kept[best[0]]), map_location="cpu", weights_only=False)
        assert state["optimizer_history"] == expected["optimizer_history"]


def test_a_full_disk_is_an_error_of_one_line_and_leaves_nothing(tmp_path):
    state = {"model": {"weight": torch.zeros(1000, 1000)}}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: .*/average.pt.$"):  # see `cli.run`
            averages.save(state, tmp_path / "average.pt")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_the_average_s_folder_is_made_or_refused_before_the_work(save_dir, tmp_path, monkeypatch):
    words = ["--inputs", str(save_dir), "--last", "2", "--output"]
    command.main([*words, str(tmp_path / "new" / "folder" / "average.pt")])
    assert (tmp_path / "new" / "folder" / "average.pt").is_file()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    command.main([*words, str(tmp_path / "link")])
    assert (tmp_path / "link").is_symlink() and model(tmp_path / "file")
    monkeypatch.setattr(averages, "average", lambda paths: pytest.fail("too early"))
    for output, told in (
        (tmp_path, "is a folder: give a file$"),
        (tmp_path / "file" / "a.pt", "is not a folder"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            command.main([*words, str(output)])


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["{dir}/checkpoint9.pt"], r"checkpoint9.pt: no such file"),
        (["{dir}"], r"is a folder: choose checkpoints.*--last K or --best K"),
        (["{dir}", "--last", "9"], r"--last 9: .* has 4 checkpoints of this kind"),
        (["{dir}", "--best", "4"], r"--best 4: .* has 3 .* as --keep-best-checkpoints allows"),
        (["{dir}", "--best", "2", "--by", "update"], r"--by update needs --last: add it"),
        (["{dir}", "--last", "0"], r"--last 0: must be at least 1"),
        (["{dir}/checkpoint1.pt", "--last", "1"], r"choose from one folder"),
    ],
)
def test_clear_errors(arguments, message, save_dir, tmp_path):
    arguments = [argument.format(dir=save_dir) for argument in arguments]
    with pytest.raises(ConfigurationError, match=message):
        average(tmp_path, *arguments)
    assert not (tmp_path / "average.pt").exists()


def test_a_checkpoint_is_not_replaced_by_its_average(save_dir, tmp_path):
    path = tmp_path / "average.pt"  # where `average` writes
    path.write_bytes((save_dir / "checkpoint1.pt").read_bytes())
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="--output .* is one of the checkpoints"):
        average(tmp_path, save_dir / "checkpoint3.pt", tmp_path / ".." / tmp_path.name / path.name)
    assert path.read_bytes() == before


def changed(path, folder, change):
    state = torch.load(str(path), map_location="cpu", weights_only=False)
    change(state)
    torch.save(state, str(folder / "changed.pt"))
    return folder / "changed.pt"


def test_different_models_are_refused(save_dir, tmp_path):
    first, name = save_dir / "checkpoint1.pt", "encoder.layer_norm.weight"
    name = next(iter(model(first)))
    more = changed(first, tmp_path, lambda state: state["model"].update(extra=torch.ones(1)))
    with pytest.raises(ConfigurationError, match=r"extra is missing in .* and \(1,\) in .*changed"):
        average(tmp_path, first, more)
    with pytest.raises(ConfigurationError, match=r"extra is \(1,\) in .*changed.* and missing in"):
        average(tmp_path, more, first)
    wide = changed(first, tmp_path, lambda state: state["model"].update({name: torch.ones(2, 3)}))
    with pytest.raises(ConfigurationError, match=rf"{name} is .* in .*checkpoint1.pt and \(2, 3\)"):
        average(tmp_path, first, wide)
    name = min(
        name for name in torch.load(first, weights_only=False)[WORDS] if name.startswith("dict.")
    )
    other = changed(first, tmp_path, lambda state: state[WORDS].update({name: "0"}))
    with pytest.raises(
        ConfigurationError, match=f"^{name} of .*checkpoint1.pt is not that of .*ch"
    ):
        average(tmp_path, first, other)
    older = save_dir / "checkpoint2.pt"
    state = torch.load(older, weights_only=False)
    torch.save({**state, WORDS: {}}, str(tmp_path / "older.pt"))
    with pytest.raises(ConfigurationError, match=f"^{name} of {first} is not that of {other}:"):
        average(tmp_path, tmp_path / "older.pt", first, other)
