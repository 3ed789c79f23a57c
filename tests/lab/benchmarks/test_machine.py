"""The conditions that stand beside a figure."""

import os
import shutil
import subprocess

import pytest

from fairseq_plugins.lab.benchmarks import machine


def test_without_a_checkout_the_files_themselves_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    code = tmp_path / "fairseq_plugins" / "a.py"
    code.parent.mkdir()
    code.write_text("x = 1\n")
    before = machine.commit()
    assert before.startswith("unknown, files ") and machine.commit() == before
    code.write_text("x = 2\n")
    assert machine.commit() != before


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_files_that_differ_from_the_commit_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")  # such as signed commits
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # git before 2.32
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):  # of a hook that runs the tests
        monkeypatch.delenv(name, raising=False)

    def git(*words):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, stdout=subprocess.DEVNULL)

    monkeypatch.setattr(machine, "ROOT", tmp_path)
    code = tmp_path / "fairseq_plugins" / "a.py"
    code.parent.mkdir()
    code.write_text("x = 1\n")
    git("init", "-q")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "Begin")
    (tmp_path / "notes").write_text("")  # not of the package
    clean = machine.commit()
    assert len(clean) == 10
    code.write_text("x = 2\n")
    changed = machine.commit()
    assert changed.startswith(clean + "+") and machine.commit() == changed
    code.write_text("x = 3\n")
    assert machine.commit() not in (changed, clean)
    code.write_text("x = 1\n")
    assert machine.commit() == clean
    (code.parent / "b.py").write_text("")
    assert machine.commit().startswith(clean + "+")
