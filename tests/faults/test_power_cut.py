"""Checkpoints damaged by a power cut or disk: the newest intact one is used, with a warning."""

import errno
import os
import random
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_plugins import files
from fairseq_plugins.compat.intact_checkpoints import find_damage
from fairseq_plugins.errors import ConfigurationError
from tests.conftest import load, updates
from tests.faults.training import DAMAGE, Killed, difference, flip, train

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="processes are forked")

LAST = "checkpoint_last.pt"


@pytest.fixture(scope="module")
def words(corpus, train_args):
    return [
        corpus.bin, *train_args, "--max-tokens", 100, "--max-epoch", 2, "--save-interval-updates",
        3, "--keep-interval-updates", 3, "--disable-validation",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def expected(words, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert train(words, folder).status == [0]
    return load(folder)


@pytest.fixture(scope="module")
def killed(words, expected, tmp_path_factory):
    """A folder of checkpoints_<epoch>_<update>.pt, checkpoint1.pt, and checkpoint_last.pt."""
    folder = tmp_path_factory.mktemp("killed")
    run = train(words, folder, kill=Killed(updates(expected) - 1))
    assert run.status == [9]
    return folder


@pytest.fixture
def folder(killed, tmp_path):
    return Path(shutil.copytree(killed, tmp_path / "killed"))


def numbered(folder):
    """The checkpoints within an epoch, the newest first."""
    paths = folder.glob("checkpoint_*_*.pt")
    return sorted(paths, key=lambda path: int(path.stem.split("_")[2]), reverse=True)


def flip_in_a_parameter(path):
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda record: record.file_size)
        content[content.find(archive.read(largest)) + largest.file_size // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    "how",
    [
        how if how in ("cut", "missing") else pytest.param(how, marks=pytest.mark.slow)
        for how in (*DAMAGE, "flipped bit")
    ],
)
def test_the_newest_intact_checkpoint_is_used(how, words, expected, folder):
    last = folder / LAST
    if how == "flipped bit":
        flip_in_a_parameter(last)
    else:
        DAMAGE[how](last)
    newest = numbered(folder)[0]
    run = train(words, folder)
    assert run.status == [0], run.output
    assert f"resuming from the newest intact one, {newest.name}" in run.output
    assert f"{last} is {'missing' if how == 'missing' else 'damaged'}" in run.output
    assert f"Loaded checkpoint {newest}" in run.output
    assert difference(load(folder), expected) == ""


def test_damaged_checkpoints_are_skipped(words, expected, folder):
    checkpoints = numbered(folder)
    for path in [folder / LAST, *checkpoints]:
        DAMAGE["zeroed middle"](path)
    run = train(words, folder)
    assert run.status == [0], run.output
    assert "resuming from the newest intact one, checkpoint1.pt" in run.output
    assert difference(load(folder), expected) == ""


@pytest.mark.slow
def test_the_best_checkpoint_is_used_if_it_is_the_newest(words, expected, folder):
    (folder / LAST).rename(folder / "checkpoint_best.pt")
    newest = numbered(folder)[0]
    assert updates(load(folder, newest.name)) == updates(load(folder, "checkpoint_best.pt"))
    newest.unlink()
    run = train(words, folder)
    assert "resuming from the newest intact one, checkpoint_best.pt" in run.output
    assert difference(load(folder), expected) == ""


@pytest.mark.slow
def test_all_processes_use_the_same_checkpoint(words, tmp_path):
    assert train(words, tmp_path / "whole", processes=2).status == [0, 0]
    folder = tmp_path / "killed"
    assert 9 in train(words, folder, processes=2, kill=Killed(7, rank=1)).status
    DAMAGE["cut"](folder / LAST)
    run = train(words, folder, processes=2)
    assert run.status == [0, 0], run.output
    assert "resuming from the newest intact one, checkpoint_2_6.pt" in run.output
    assert difference(load(folder), load(tmp_path / "whole")) == ""
    assert "newest intact" not in (folder / "output.1").read_text()


def content(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.pt")}


@pytest.mark.slow
def test_a_stopped_finetuning_does_not_start_over(words, expected, folder, killed):
    (folder / LAST).unlink()
    run = train([*words, "--finetune-from-model", killed / "checkpoint1.pt"], folder)
    assert run.status == [0], run.output
    assert "loading pretrained model" not in run.output
    assert difference(load(folder), expected) == ""


def test_restore_file_that_cannot_be_used_is_refused(words, killed, tmp_path):
    missing = tmp_path / "missing.pt"
    run = train([*words, "--restore-file", missing], tmp_path / "new")
    assert run.status == [1]
    assert f"--restore-file {missing} does not exist" in run.output.splitlines()[-1]
    damaged = tmp_path / "damaged.pt"
    shutil.copyfile(killed / LAST, damaged)
    DAMAGE["zeroed middle"](damaged)
    for option in ("--restore-file", "--finetune-from-model"):
        run = train([*words, option, damaged], tmp_path / "new")
        assert run.status == [1]
        last_line = run.output.splitlines()[-1]
        assert f"checkpoint {damaged} cannot be read: it is damaged" in last_line
        assert "CRC-32" in last_line


@pytest.fixture
def refuse_to_open(monkeypatch):
    """refuse_to_open(path): for this process and its children, as with another user's file."""

    def refuse(path):
        def open_another(file, *words, open=open, **options):
            if str(file) == str(path):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return open(file, *words, **options)

        for module in ("builtins", "io"):
            monkeypatch.setattr(module + ".open", open_another)

    return refuse


@pytest.mark.parametrize(
    "damaged, missing, processes",
    [(True, False, 2), (False, False, 1), (False, True, 2), (True, True, 1)],
)
def test_without_a_checkpoint_that_can_be_used_nothing_starts_or_changes(
    damaged, missing, processes, words, folder, refuse_to_open, monkeypatch
):
    """All are damaged; or the newest cannot be opened, and training would replace it."""
    for path in folder.glob("*.pt") if damaged else ():
        DAMAGE["cut"](path)
    path = numbered(folder)[0] if missing and not damaged else folder / LAST
    if missing:
        (folder / LAST).unlink()
    before = content(folder)
    if not damaged:
        refuse_to_open(path)
    run = train(words, folder, processes)
    monkeypatch.undo()
    assert 1 in run.status and set(run.status) <= {1, 9}  # the other may be ended with it
    (line,) = [line for line in run.output.splitlines() if line.startswith("error: ")]
    if damaged:
        assert str(path) in line and "choose another --save-dir" in line
    else:
        assert line.startswith(f"error: {path} cannot be read: Permission denied: make it readable")
    assert content(folder) == before


def test_a_flipped_bit_is_found_or_changes_nothing(killed, tmp_path):
    """All but a few bits of an archive are read: the rest is dates and padding."""
    generator = random.Random(1)
    path, expected, found = tmp_path / LAST, load(killed), 0
    for _ in range(100):
        shutil.copyfile(killed / LAST, path)
        flip(path, generator)
        if find_damage(str(path)):
            found += 1
            continue
        try:
            state = load(tmp_path)
        except ConfigurationError:
            continue
        assert difference(state, expected) == ""
    assert found > 50


def test_the_disk_is_full_for_a_moment(killed, tmp_path, monkeypatch):
    """fairseq writes again, into the same open file."""
    state = load(killed)
    path, save, failures = tmp_path / LAST, torch.save, []

    def fail_first(state, file):
        if not failures:
            failures.append(file.write(b"more than " * 10**6))
            raise OSError(errno.ENOSPC, "No space left on device")
        save(state, file)

    monkeypatch.setattr(torch, "save", fail_first)
    monkeypatch.setattr("fairseq.checkpoint_utils.time.sleep", lambda seconds: None)
    checkpoint_utils.torch_persistent_save(state, str(path))
    assert len(failures) == 1 and find_damage(str(path)) == ""
    assert difference(load(tmp_path), state) == ""


def test_old_checkpoints_without_checksums_are_loaded(killed, tmp_path):
    state = torch.load(killed / LAST, weights_only=False)
    torch.save(state, tmp_path / LAST, _use_new_zipfile_serialization=False)
    assert find_damage(str(tmp_path / LAST)) == ""
    assert difference(load(tmp_path), load(killed)) == ""


@pytest.fixture
def done(monkeypatch):
    """A list of the fsync and rename calls, in order; both are also executed."""
    steps = []
    fsync, rename, replace = os.fsync, os.rename, os.replace

    def write_out(descriptor):
        steps.append(("write out", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def name(function):
        def named(source, target):
            steps.append(("rename", str(source)))
            function(source, target)

        return named

    monkeypatch.setattr(os, "fsync", write_out)
    monkeypatch.setattr(os, "rename", name(rename))
    monkeypatch.setattr(os, "replace", name(replace))
    return steps


def test_checkpoints_are_on_the_disk_before_they_are_renamed(tmp_path, done):
    first, last = str(tmp_path / "checkpoint1.pt"), str(tmp_path / LAST)
    checkpoint_utils.torch_persistent_save({"model": 1}, first)
    PathManager.copy(first, last, overwrite=True)
    assert done == [
        step
        for path in (first, last)
        for step in (
            ("write out", path + ".tmp"), ("rename", path + ".tmp"), ("write out", str(tmp_path))
        )
    ]  # fmt: skip
    assert torch.load(last, weights_only=False) == {"model": 1}


def test_settings_of_recipes_are_on_the_disk_before_they_are_renamed(tmp_path, done):
    files.write_json(tmp_path / "settings.json", {"lr": 1})
    (first, part), (second, renamed) = done
    assert (first, second, part) == ("write out", "rename", renamed)
    assert files.read_json(tmp_path / "settings.json") == {"lr": 1}
