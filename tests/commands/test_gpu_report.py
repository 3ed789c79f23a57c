"""`gpu-report`: its steps within the time, what is kept, and what the report says."""

import json
import subprocess
import sys
import time

import pytest

from fairseq_plugins.commands import gpu_report, prepare_translation
from fairseq_plugins.errors import ConfigurationError
from tests.conftest import SIZES, write_toy_text

GOAL = {"what": "a step", "against": "Transformer", "time_ratio": 0.5, "verdict": "reached"}


@pytest.fixture
def report(tmp_path, monkeypatch):
    """report(*words): runs it with fake programs; returns those that were run, by step."""
    out, started = tmp_path / "out", {}
    again = type("Again", (), {"status": {}, "stuck": set()})
    here = gpu_report.machine.describe(gpu_report.torch.device("cpu"), 1)
    (tmp_path / "dict.en.txt").write_text("a 1\n")

    def describe(**changed):
        there = {**here, "commit": "1234567", **changed}
        monkeypatch.setattr(gpu_report.machine, "describe", lambda *rest: there)

    again.describe = staticmethod(describe)
    describe()

    class Jobs:
        def __init__(self):
            self.stopped = False

        def stop(self):
            self.stopped = True

        def run(self, command, log, on_line):
            started[log.stem] = command
            if log.stem in again.stuck:
                while not self.stopped:
                    time.sleep(0.01)
                raise KeyboardInterrupt
            if log.stem == "goals":
                (out / "goals.json").write_text(json.dumps({"rows": [GOAL]}))
                on_line("noise\n")
            if log.stem in ("translation", "multi30k"):
                (out / log.stem).mkdir(exist_ok=True)
                (out / log.stem / "table.md").write_text(f"the table {log.stem}\n")
                (out / log.stem / "results.json").write_text('{"rows": [2]}')
            on_line("the end of " + log.stem + "\n")
            return again.status.get(log.stem, 0)

    def run(*words):
        started.clear()
        words = [str(tmp_path), "--out", str(out), "--cpu", *words]
        return gpu_report.main(words), dict(started)

    monkeypatch.setattr(gpu_report, "Jobs", Jobs)
    again.real = gpu_report.runs.Reproduction
    monkeypatch.setattr(gpu_report.runs, "Reproduction", lambda *given: None)  # there is no text
    again.run, again.out = staticmethod(run), out
    return again


def test_everything_is_in_the_report(report, tmp_path):
    status, started = report.run("--settings", "reduced_cpu", "--", "--max-epoch", "2")
    assert status == 0 and list(started) == ["tests", "goals", "translation"]
    assert started["tests"][3:6] == ["-q", "-m", "gpu and not slow"]
    assert "--cpu" in started["goals"]
    words = started["translation"]
    assert words[-6:] == ["--cpu", "--settings", "reduced_cpu", "--", "--max-epoch", "2"]
    assert 0 < float(words[words.index("--minutes") + 1]) <= 8
    text = (report.out / "report.md").read_text()
    assert "the end of tests" in text and "the table translation\n" in text
    assert "| a step | Transformer | - | 0.500 | - | - | reached |" in text and "noise" not in text
    written = json.loads((report.out / "report.json").read_text())
    assert written["goals_table"] == {"rows": [GOAL]}
    assert written["tables"] == {"translation": {"rows": [2]}}


def test_another_table_is_reported_beside_the_first(report):
    report.run()
    status, started = report.run("--table", "multi30k")
    assert status == 0 and list(started) == ["goals", "multi30k"]
    words = started["multi30k"]
    assert words[words.index("reproduce") + 1] == "multi30k"
    assert words[words.index("--out") + 1] == str(report.out / "multi30k")
    text = (report.out / "report.md").read_text()
    assert "the table translation\n" in text and "the table multi30k\n" in text


def test_what_failed_is_told_and_repeated_and_what_passed_is_kept(report):
    report.status = {"tests": 1}
    status, started = report.run()
    assert status == 1 and len(started) == 3
    assert "exit status 1" in (report.out / "report.md").read_text()
    report.status = {}
    assert "tests" in report.run()[1]
    status, started = report.run()
    assert status == 0 and list(started) == ["goals", "translation"]
    assert "the end of tests" in (report.out / "report.md").read_text()
    # those of another commit say nothing of this one
    report.describe(commit="7654321")
    assert "tests" in report.run()[1]


def test_tests_that_are_stopped_tell_what_failed(tmp_path):
    (tmp_path / "test_two.py").write_text(
        "import os, time\n"
        "def test_one():\n    assert 1 == 2\n"
        "def test_two():\n    os.kill(os.getpid(), 15)\n    time.sleep(600)\n"
    )
    words = [sys.executable, "-c", gpu_report.PYTEST, "-q", "-p", "no:cacheprovider", "test_two.py"]
    ended = subprocess.run(words, cwd=str(tmp_path), stdout=subprocess.PIPE, timeout=300)
    assert ended.returncode != 0 and b"FAILED test_two.py::test_one" in ended.stdout


def test_without_pytest_the_tests_are_left_out_and_a_line_says_so(report, monkeypatch, capsys):
    monkeypatch.setattr(gpu_report.importlib.util, "find_spec", lambda name: None)
    status, started = report.run()
    assert status == 0 and list(started) == ["goals", "translation"]
    assert "tests: not run without pytest and pytest-timeout" in capsys.readouterr().out


def test_a_step_that_takes_too_long_leaves_time_for_the_others(report):
    report.stuck = {"goals"}
    status, started = report.run("--minutes", "0.1")
    assert status == 0 and list(started)[-1] == "translation"
    assert "stopped: its time was up" in (report.out / "report.md").read_text()


def test_what_was_stopped_gets_twice_its_time(report, monkeypatch):
    limits = {}

    def run(step, folder):
        limits[step.name] = step.seconds
        status = gpu_report.STOPPED if step.name == "goals" else "finished"
        return {"status": status, "seconds": 100.0, "command": step.command, "lines": []}

    monkeypatch.setattr(gpu_report, "run", run)
    report.run()
    assert limits["goals"] == limits["tests"] == 160
    report.run()
    assert limits["goals"] == 200
    report.run("--minutes", "4")
    assert 110 < limits["goals"] <= 120  # half of what is left: the table gets the rest


@pytest.mark.parametrize(
    "words, told", [(["--minute", "5"], "--minute 5"), (["--rowz", "ftc"], "--rowz ftc")]
)
def test_unknown_options_are_refused_before_the_first_step(report, capsys, words, told):
    with pytest.raises(SystemExit):
        report.run(*words)
    assert f"unrecognized arguments: {told}" in capsys.readouterr().err
    assert not report.out.exists()


@pytest.mark.parametrize(
    "words, told",
    [
        (["--rows", "nosuch"], "--rows nosuch is no row"),
        (["--rows", "transformer", "--", "--dropoutt", "1"], "row transformer .*--dropoutt"),
        (["--rows", "transformer", "--generate", "--lenpenn 1"], "--generate: .*--lenpenn"),
    ],
)
def test_options_of_the_table_are_refused_before_the_first_step(
    report, tmp_path, monkeypatch, words, told
):
    write_toy_text(tmp_path / "raw", SIZES)
    given = [tmp_path / "data", "--source-lang", "src", "--target-lang", "tgt", "--workers", 1]
    given += ["--vocab-size", 80, "--joined-dictionary"]
    for split in SIZES:
        given += [f"--{split}", tmp_path / "raw" / split]
    prepare_translation.main([str(word) for word in given])
    monkeypatch.setattr(gpu_report.runs, "Reproduction", report.real)
    with pytest.raises(ConfigurationError, match=told):
        gpu_report.main([str(tmp_path / "data"), "--out", str(report.out), "--cpu", *words])
    assert not report.out.exists()


def test_another_device_does_not_get_into_the_same_report(report):
    report.run()
    report.describe(device="other")
    with pytest.raises(ConfigurationError, match="has a report of a .*: choose another"):
        report.run()


def test_without_a_gpu_it_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_report.torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigurationError, match="torch sees no GPU: use --cpu"):
        gpu_report.main([str(tmp_path), "--out", str(tmp_path / "out")])
    with pytest.raises(ConfigurationError, match="has no dictionaries .* prepare-"):
        gpu_report.main([str(tmp_path), "--cpu", "--out", str(tmp_path / "out")])
    with pytest.raises(ConfigurationError, match="no such folder"):
        gpu_report.main([str(tmp_path / "no"), "--cpu", "--out", str(tmp_path / "out")])
