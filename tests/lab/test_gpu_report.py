"""`lab.gpu_report`: prepared runs can be asked for, keep to their time, and are reported."""

import argparse
import json
import os
import re
import subprocess
import sys
import time

import pytest

from fairseq_plugins.commands import evaluate, train
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab import gpu_report
from fairseq_plugins.lab.benchmarks import contenders, prepared
from fairseq_plugins.lab.commands import benchmark, reproduce
from fairseq_plugins.lab.reproduction.tables import table_of
from tests.conftest import ROOT
from tests.lab.benchmarks.running import measure

HERE = {"device": "a GPU", "kind": "cuda", "python": "3", "torch": "2", "commit": "1234567"}
PARTS = [(run, part) for run in prepared.RUNS for part in run.parts]
NAMES = [f"{run.name}-{part.name}" for run, part in PARTS]
FIRST = [part.name for part in gpu_report.find("1").parts]


@pytest.fixture
def places(toy_data, tmp_path):
    return {**dict.fromkeys(prepared.FOLDERS, toy_data.bin), "WORK": tmp_path, "ROOT": ROOT}


@pytest.mark.parametrize("toy", [False, True])
@pytest.mark.parametrize("run, part", PARTS, ids=NAMES)
def test_every_part_can_be_asked_for(places, run, part, toy):
    name, *words = part.command(places, toy)
    assert not set(words) & set(places), "a place that is not filled"
    if name == "benchmark":
        parser = argparse.ArgumentParser()
        benchmark.find(words[0])[1](parser)
        args = parser.parse_args(words[1:])
        assert (args.cpu and args.dtype == "fp32") == toy
    elif name == "train":
        request = train.read_request(words)
        assert request.cpu == toy and "--cuda-graphs" in request.words
    elif name == "evaluate":
        assert evaluate.read_arguments(words).cpu == toy
    elif name == "reproduce":
        args = reproduce.read_arguments(words)
        assert args.cpu == toy and table_of(args.table).choose_rows(args.rows)
    else:
        assert name == "pytest" and ("--collect-only" in words) == toy


@pytest.mark.parametrize("run", prepared.RUNS, ids=lambda run: run.name)
def test_the_limits_of_a_run_fit_into_its_minutes(run):
    assert sum(part.seconds for part in run.parts) <= 8 * 60


def test_every_contender_can_be_built():
    """Architectures and options are those of fairseq-train and of this package."""
    models = {
        (re.sub(" --(plain|recorded)", "", words), part.options)
        for _, part in PARTS
        for words in part.contenders
        if "layer" not in part.words.split()
    }
    for words, options in models:
        cfg = contenders.configure(words, options, "none", "fp32", True)
        assert bool(cfg.model.cuda_graphs) == ("--cuda-graphs" in words)


def test_every_goal_has_its_contender(tmp_path):
    parts = {part.name: part for _, part in PARTS}
    for goal in prepared.GPU_GOALS[:-1]:
        assert goal["row"] in parts[goal["part"]].contenders[1:]
    trained = [run.name for run, part in PARTS if part.name == "training"]
    assert prepared.GPU_GOALS[-1]["row"] in trained
    assert {row["state"] for row in gpu_report.judge(tmp_path)} == {"not measured yet"}
    goal = prepared.GPU_GOALS[0]
    for ratio, state in ((goal["limit"], "reached"), (goal["limit"] + 0.25, "missed by 0.250")):
        (tmp_path / "1").mkdir(exist_ok=True)
        rows = [{"contender": "first", "time_ratio": 1}]
        rows.append({"contender": goal["row"], "time_ratio": ratio})
        (tmp_path / "1" / f"{goal['part']}.json").write_text(json.dumps({"rows": rows}))
        assert gpu_report.judge(tmp_path)[0]["state"] == state


@pytest.mark.parametrize("name", ["launch", "epoch", "baseline"])
def test_the_toy_of_each_kind(places, tmp_path, name):
    (part,) = (part for _, part in PARTS if part.name == name)
    found = measure(tmp_path, *part.command(places, True)[1:])
    assert len(found["rows"]) >= len(part.contenders) > 0 or name == "launch"
    for row in found["rows"]:
        assert "problem" not in row and ("median_seconds" in row or "figure" in row), row
    asked = [row["recordings"] for row in found["rows"] if "--cuda-graphs" in row["contender"]]
    assert asked == [0] * sum("--cuda-graphs" in words for words in part.contenders)


# ---- the report


@pytest.fixture
def report(tmp_path, monkeypatch):
    """report(*words): runs it with fake processes; returns the status, and the parts' words."""
    out, started = tmp_path / "out", {}
    again = type("Again", (), {"status": {}, "here": dict(HERE), "seconds": {}})
    again.writes, again.wall, again.bleu = True, 100, 20.0
    (tmp_path / "dict.en.txt").write_text("a 1\n")

    def run(self, words, log, seconds, triton=None):
        started[log.stem] = words
        again.seconds[log.stem] = seconds
        log.write_text(f"noise\n\n| the table of {log.stem} |\n")
        if "--json" in words and again.writes:
            rows = [{"contender": "first", "time_ratio": 1.0, "median_seconds": 0.0625}]
            log.with_suffix(".json").write_text(json.dumps({"rows": rows}))
        model = log.parent / "model"
        if words[0] == "train":
            (model / "evaluation/test-last5").mkdir(parents=True, exist_ok=True)
            (model / "train.log").write_text(f"train_wall 7 | wall 9\ntrain | wall {again.wall}\n")
        if words[0] == "evaluate":
            scores = json.dumps({"scores": {"BLEU": {"score": again.bleu}}})
            (model / "evaluation/test-last5/scores.json").write_text(scores)
        return again.status.get(log.stem, "finished")

    def start(*words):
        started.clear()
        return gpu_report.main([str(tmp_path), "--out", str(out), *words]), dict(started)

    monkeypatch.setattr(gpu_report.Processes, "run", run)
    monkeypatch.setattr(gpu_report.Processes, "describe", lambda *given: dict(again.here))
    monkeypatch.setattr("fairseq_plugins.evaluate.translation.Translations", lambda *given: None)
    again.run, again.out = staticmethod(start), out
    return again


def test_the_runs_are_listed(capsys):
    assert gpu_report.main(["--list"]) == 0
    listed = capsys.readouterr().out
    for run in prepared.RUNS:
        assert f"{run.name:3} {run.what}\n" in listed
        assert all(f" {part.name} " in listed for part in run.parts)


def test_the_next_run_comes_first_and_everything_is_in_the_report(report, capsys):
    status, started = report.run()
    assert status == 0 and list(started) == FIRST
    assert str(report.out / "1" / "launch.json") in started["launch"]
    text = (report.out / "report.md").read_text()
    assert "## Run 1: " in text and "| the table of equal_ftc |" in text and "noise" not in text
    assert "not measured yet" in text
    written = json.loads((report.out / "report.json").read_text())
    assert written["machine"] == HERE and list(written["runs"]["1"]) == FIRST
    found = written["runs"]["1"]["step_4096"]
    assert found["figures"]["rows"][0]["time_ratio"] == 1.0 and "noise" in found["log"]
    assert "| the table of step_512 |" in capsys.readouterr().out  # of this run
    assert list(report.run()[1]) == ["epoch", "profile", "profile_32768"]


def test_a_toy_size_reaches_no_goal(report):
    report.here["kind"] = "cpu"
    assert report.run("--toy")[0] == 0
    goals = json.loads((report.out / "report.json").read_text())["goals"]
    assert {goal["state"] for goal in goals} == {"not measured: a toy size on a CPU"}


def test_what_failed_is_told_and_repeated_and_what_passed_is_kept(report):
    report.status = {"equal_ftc": "failed with exit status 1", "step_512": gpu_report.STOPPED}
    status, started = report.run()
    assert status == 1 and list(started) == FIRST
    assert "equal_ftc: failed with exit status 1" in (report.out / "report.md").read_text()
    report.status = {}
    status, started = report.run("--run", "1")
    assert status == 0 and list(started) == ["equal_ftc", "step_512"]
    assert list(report.run("--run", "1", "--part", "launch")[1]) == ["launch"]
    # those of another commit say nothing of this one
    report.here["commit"] = "7654321"
    assert list(report.run()[1]) == FIRST


def test_a_part_that_always_fails_does_not_hold_up_the_next_runs(report, tmp_path, capsys):
    """Nor does one that is too slow, or cannot run. Trainings that were stopped go on first."""
    report.status = {"equal_ftc": "failed with exit status 1", "step_512": gpu_report.STOPPED}
    assert report.run()[0] == 1
    assert list(report.run()[1]) == ["epoch", "profile", "profile_32768"]
    report.status["short"] = gpu_report.STOPPED
    assert [list(report.run()[1]) for _ in range(2)] == [["short"], ["short"]]
    report.status = {"tests": "failed with exit status 1"}
    made = []
    with pytest.raises(ConfigurationError) as error:
        for _ in prepared.RUNS:
            made.append(list(report.run()[1]))
    ran = [name for parts in made for name in parts]
    assert "mscffn" in ran and "table3" in ran and "few_pairs" in ran and ran.count("tests") == 1
    assert "multi30k" not in ran and "generation" in ran and "step_documents" not in ran
    assert str(error.value) == (
        "no run is left, but these did not finish: 1 (equal_ftc: failed with exit status 1), "
        "1 (step_512: stopped: its time was up), 3t (tests: failed with exit status 1): "
        "repeat with --run"
    )
    # what can run from now on, or did not run with this commit, comes next
    assert list(report.run("--summaries", str(tmp_path))[1]) == ["step_documents"]
    report.here["commit"] = "7654321"
    assert "equal_ftc" in report.run()[1]


def test_a_test_waits_for_the_whole_training(report):
    training = {"training": gpu_report.STOPPED}
    report.status, words = dict(training), ("--run", "2a")
    assert list(report.run(*words)[1]) == ["training"]
    written = json.loads((report.out / "report.json").read_text())["runs"]["2a"]
    assert written["test"]["status"] == "training is not finished"
    assert not report.run(*words, "--part", "test")[1]
    report.status = {}
    assert list(report.run(*words)[1]) == ["training", "test"]
    assert not report.run(*words)[1]
    # a training that goes on leaves nothing of the earlier test
    report.status, report.bleu = dict(training), 30.0
    assert list(report.run(*words, "--part", "training")[1]) == ["training"]
    assert "test" not in json.loads((report.out / "report.json").read_text())["runs"]["2a"]
    assert not (report.out / "2a/test.json").exists()
    report.status = {}
    assert list(report.run(*words)[1]) == ["training", "test"]
    written = json.loads((report.out / "report.json").read_text())["runs"]["2a"]
    assert written["test"]["figures"]["rows"][0]["bleu"] == 30.0


@pytest.mark.parametrize("part", ["training", "test"])
@pytest.mark.parametrize("content", [None, "{", "noise"])
def test_a_part_without_figures_failed(report, monkeypatch, part, content):
    fake = gpu_report.Processes.run

    def run(self, words, log, *given):
        status = fake(self, words, log, *given)
        if log.stem == part:
            name = "train.log" if part == "training" else "evaluation/test-last5/scores.json"
            path = log.parent / "model" / name
            path.unlink() if content is None else path.write_text(content)
        return status

    monkeypatch.setattr(gpu_report.Processes, "run", run)
    assert report.run("--run", "2a")[0] == 1
    written = json.loads((report.out / "report.json").read_text())["runs"]["2a"][part]
    assert written["status"] == "failed: no figures" and written["figures"] is None


def test_figures_are_not_those_of_an_earlier_commit(report):
    report.run("--run", "1", "--part", "step_4096")
    report.here["commit"], report.status = "7654321", {"step_4096": "failed with exit status 1"}
    figures = report.out / "1/step_4096.json"
    assert figures.exists()
    report.writes = False
    report.run("--run", "1", "--part", "step_4096")
    written = json.loads((report.out / "report.json").read_text())["runs"]["1"]
    assert not figures.exists() and written["step_4096"]["figures"] is None


def test_the_goal_of_whole_trainings_is_judged(report):
    def judged():
        goals = json.loads((report.out / "report.json").read_text())["goals"]
        return goals[-1]["time_ratio"], goals[-1]["state"]

    report.wall, report.bleu = 400, 30.0
    report.run("--run", "2a")
    assert judged() == (None, "not measured yet")
    report.wall, report.bleu = 300, 30.5
    report.run("--run", "2b")
    assert judged() == (0.75, "reached")
    for wall, bleu, state in (
        (360, 30.0, "missed by 0.100"),
        (300, 29.5, "missed: BLEU 29.50 is below 30.00"),
    ):
        report.wall, report.bleu = wall, bleu
        report.here["commit"] += "0"
        report.run("--run", "2b")
        assert judged()[1] == state
    report.status = {"training": gpu_report.STOPPED}
    report.run("--run", "2b", "--part", "training")
    assert judged() == (None, "not measured yet")


def test_a_table_whose_time_was_up_is_not_finished(report, tmp_path):
    words = ("--run", "2", "--work", str(tmp_path / "work"))
    table = tmp_path / "work/2/table"
    table.mkdir(parents=True)
    for unfinished, told in ((["ftc"], gpu_report.STOPPED), ([], "finished")):
        (table / "results.json").write_text(json.dumps({"unfinished": unfinished}))
        _, started = report.run(*words)
        assert list(started) == ["short"]
        written = json.loads((report.out / "report.json").read_text())["runs"]["2"]
        assert written["short"]["status"] == told


def test_an_interrupted_part_is_in_the_report(report):
    report.status = {"equal_ftc": gpu_report.INTERRUPTED}
    with pytest.raises(KeyboardInterrupt):
        report.run()
    written = json.loads((report.out / "report.json").read_text())["runs"]["1"]
    assert written["equal_ftc"]["status"] == "interrupted" and "step_4096" not in written


def test_a_part_gets_no_more_than_is_left(report, monkeypatch):
    report.run("--minutes", "0.5")
    assert report.seconds["launch"] <= 30 and max(report.seconds.values()) <= 30
    status, started = report.run("--run", "3a", "--minutes", "0.1", "--part", "mscffn")
    assert 0 < report.seconds["mscffn"] <= 6
    monkeypatch.setattr(gpu_report, "LEAST", 60.0)
    status, started = report.run("--run", "3a", "--minutes", "0.1", "--part", "summaries")
    assert not started and "no time was left" in (report.out / "report.md").read_text()


def test_a_part_that_earlier_ones_left_too_little_time_is_the_next(report):
    report.status = dict.fromkeys(("launch", "equal_ftc"), gpu_report.STOPPED)
    report.run("--minutes", "0.4")
    written = json.loads((report.out / "report.json").read_text())["runs"]["1"]
    assert written["equal_ftc"]["status"] == "no time was left"
    # the first one had all the time there is
    assert list(report.run("--minutes", "0.4")[1]) == ["equal_ftc"]
    assert "equal_ftc" not in report.run("--minutes", "0.4")[1]


def test_what_cannot_run_says_what_it_needs(report, tmp_path, capsys):
    _, started = report.run("--run", "5")
    assert "step_documents" not in started
    assert "step_documents: needs --summaries DIR" in capsys.readouterr().out
    _, started = report.run("--run", "5", "--summaries", str(tmp_path))
    assert list(started) == ["step_documents"] and str(tmp_path) in started["step_documents"]


@pytest.mark.parametrize(
    "words, told",
    [
        (["--run", "9"], "--run 9 is unknown: give one of 1, 1b, 2, 2a, "),
        (
            ["--run", "2a", "--part", "equal_ftc"],
            "--part equal_ftc is not in run 2a: give one of training, test",
        ),
    ],
)
def test_unknown_names_are_refused(report, words, told):
    with pytest.raises(ConfigurationError, match=f"^{told}"):
        report.run(*words)


def test_another_device_does_not_get_into_the_same_report(report):
    report.run()
    report.here["device"] = "other"
    with pytest.raises(ConfigurationError, match="has a report of a .*: choose another"):
        report.run()


def test_the_text_to_score_must_be_there_before_a_training(report, tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(gpu_report.Processes, "describe", lambda *given: dict(HERE))
    with pytest.raises(ConfigurationError, match="preparation"):
        gpu_report.main([str(tmp_path), "--out", str(tmp_path / "out"), "--run", "2a"])


def test_processes_end_in_time_and_with_what_they_started(tmp_path):
    """In a program of their own, as this one has threads that forks do not get.

    The time is up as soon as the last one hangs, and not before, however busy the machine is.
    """
    (tmp_path / "program.py").write_text(
        "import multiprocessing.process, os, signal, subprocess, time\n"
        "from pathlib import Path\n"
        "from fairseq_plugins import commands\n"
        "from fairseq_plugins.lab import gpu_report\n"
        "Process, hanging = multiprocessing.process.BaseProcess, Path('hanging')\n"
        "def main(words):\n"
        "    print('said', words[0], flush=True)\n"
        "    if words[0] == 'fails': raise RuntimeError('the reason')\n"
        "    if words[0] == 'crashes': os.kill(os.getpid(), 11)\n"
        "    if words[0] == 'hangs':\n"
        "        print(subprocess.Popen(['sleep', '600']).pid, flush=True)\n"
        "        signal.signal(15, signal.SIG_IGN); hanging.touch(); time.sleep(600)\n"
        "    return 0\n"
        "def wait(process, seconds=None, join=Process.join):\n"
        "    while process.is_alive() and not hanging.exists(): time.sleep(0.01)\n"
        "    join(process, seconds and 0.1)\n"
        "commands.main, Process.join = main, wait\n"
        "for name in ('works', 'fails', 'crashes', 'hangs'):\n"
        "    print(gpu_report.Processes().run([name], Path(name + '.log'), 9.0), flush=True)\n"
    )
    begin = time.monotonic()
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=str(tmp_path), env=environment, capture_output=True,
        text=True, timeout=1200,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "finished", "failed with exit status 1", "failed with exit status -11", gpu_report.STOPPED,
    ], done.stderr  # fmt: skip
    assert "said works" in (tmp_path / "works.log").read_text()
    assert gpu_report.summarize(tmp_path / "fails.log")[-1] == "RuntimeError: the reason"
    started = int((tmp_path / "hangs.log").read_text().split()[-1])
    with pytest.raises(ProcessLookupError):
        while time.monotonic() - begin < 1200:  # until the system has noticed
            os.kill(started, 0)
            time.sleep(0.1)


def test_tests_that_are_stopped_tell_what_failed(tmp_path):
    (tmp_path / "test_two.py").write_text(
        "import os, time\n"
        "def test_one():\n    assert 1 == 2\n"
        "def test_two():\n    os.kill(os.getpid(), 15)\n    time.sleep(600)\n"
    )
    words = [sys.executable, "-c", gpu_report.PYTEST, "-q", "-p", "no:cacheprovider", "test_two.py"]
    ended = subprocess.run(words, cwd=str(tmp_path), stdout=subprocess.PIPE, timeout=1200)
    assert ended.returncode != 0 and b"FAILED test_two.py::test_one" in ended.stdout


def test_without_a_gpu_it_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "dict.en.txt").write_text("a 1\n")
    monkeypatch.setattr(gpu_report.Processes, "run", lambda *given: "finished")
    with pytest.raises(ConfigurationError, match="torch finds no GPU here: use --toy"):
        gpu_report.main([str(tmp_path), "--out", str(tmp_path / "out")])
    with pytest.raises(ConfigurationError, match="no such folder"):
        gpu_report.main([str(tmp_path / "no"), "--toy", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit):
        gpu_report.main([str(tmp_path)])
    assert "give DATA and --out, or --list" in capsys.readouterr().err
