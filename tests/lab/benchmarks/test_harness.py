"""Contenders take turns, operations are counted, and the conditions stand beside a figure."""

import os
import shutil
import subprocess

import pytest
import torch

from fairseq_plugins.lab.benchmarks import harness, machine
from fairseq_plugins.layers import kernels


def test_works_take_turns_and_begin_in_turn():
    calls = []
    works = [lambda item, n=name: calls.append(n + item) for name in "ab"]
    times = harness.interleave(works, ["1", "2"], 2, 1, torch.device("cpu"), "test")
    assert calls == ["a1", "b1", "a2", "b2", "b1", "a1", "b2", "a2", "a1", "b1", "a2", "b2"]
    assert [len(own) for own in times] == [4, 4]


def test_ratios_are_taken_within_a_moment():
    slow = [1.0, 10.0, 1.0]  # a machine that was busy in the middle
    rows = harness.comparison(["a", "b"], [slow, [t / 2 for t in slow]], [8, 2])
    assert rows[1]["time_ratio"] == 0.5 and rows[1]["time_ratio_quartiles"] == [0.5, 0.5]
    assert rows[1]["ratio_to_flop_limit"] == 2.0
    assert harness.comparison(["a"], [slow], [None])[0]["flop_ratio"] is None


def test_operations_are_counted_without_kernels(monkeypatch):
    """A product has two for each of its multiplications; torch cannot look into kernels."""
    product = lambda rows: torch.ones(rows, 4) @ torch.ones(4, 5)  # noqa: E731
    assert harness.count_flops(product, [3, 1]) == 2 * 4 * 20
    monkeypatch.setenv(kernels.VARIABLE, "1")
    seen = []
    harness.count_flops(lambda _: seen.append(kernels.asked()), [None])
    assert seen == [False] and os.environ[kernels.VARIABLE] == "1"


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
