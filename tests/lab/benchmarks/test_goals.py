"""The table of goals: every row has its measurement, and an interrupted run goes on."""

import argparse
import json
import subprocess
from pathlib import Path

import pytest
import torch

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.benchmarks import goals
from fairseq_plugins.lab.commands import benchmark
from tests.lab.benchmarks.test_train_step import measure, refused


def test_every_goal_has_a_measurement_that_can_be_asked_for(tmp_path):
    assert {goal.measurement for goal in goals.GOALS} == set(goals.MEASUREMENTS)
    for name, measurement in goals.MEASUREMENTS.items():
        command, *words = measurement.command(tmp_path)
        parser = argparse.ArgumentParser()
        benchmark.find(command).add_arguments(parser)
        args = parser.parse_args(words)
        lengths = len(getattr(args, "lengths", None) or getattr(args, "values", None) or [0])
        rows = lengths * len(measurement.contenders)
        own = [goal for goal in goals.GOALS if goal.measurement == name]
        # the first contender of each length is the baseline
        assert all(0 < g.row < rows and g.row % len(measurement.contenders) > 0 for g in own)
        assert all(g.memory <= (command in ("memory", "growth")) for g in own)


def test_a_gpu_has_goals_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(goals.machine, "choose_device", lambda args: torch.device("cuda"))
    with pytest.raises(ConfigurationError, match="add --cpu: lab.gpu_report"):
        benchmark.main(["goals", str(tmp_path), "--out", str(tmp_path / "out")])


@pytest.fixture
def small(monkeypatch):
    """Two measurements of a moment, and their goals."""
    layer = "layer --dim 24 --heads 2 --tokens 16 --lengths 8 --rounds 1 --warmup 0"
    memory = "memory --dim 24 --tokens 16 --lengths 8"
    contenders = ["ffn", "mscffn"]
    measurements = {
        "time": goals.Measurement(layer, contenders),
        "peak": goals.Measurement(memory, contenders),
    }
    monkeypatch.setattr(goals, "MEASUREMENTS", measurements)
    table = [
        goals.Goal("a", "b", "time", 1, 1e6),
        goals.Goal("c", "d", "time", 1, 1e-6),
        goals.Goal("e", "f", "peak", 1, None, True),
    ]
    monkeypatch.setattr(goals, "GOALS", table)
    return measurements


def test_goals_are_judged_and_what_is_there_is_kept(small, tmp_path, capsys, monkeypatch):
    out, real = tmp_path / "goals", subprocess.run

    def real_time(command, **rest):  # a measurement is real here alone: each takes seconds
        if "memory" not in command:
            return real(command, **rest)
        where = goals.machine.describe(torch.device("cpu"), 1)
        peak = {"machine": where, "rows": [{}, {"peak_ratio": 0.5}]}
        Path(command[command.index("--json") + 1]).write_text(json.dumps(peak))
        return subprocess.CompletedProcess(command, 0, "")

    monkeypatch.setattr(goals.subprocess, "run", real_time)
    words = ["goals", tmp_path, "--cpu", "--out", out, "--plot", tmp_path / "plot.svg"]
    first, second, third = measure(tmp_path, *words)["rows"]
    assert first["verdict"] == "reached" and first["time_ratio"] > 0
    assert second["verdict"] == "missed by {:.3f}".format(second["time_ratio"] - 1e-6)
    assert third["what"] == "e" and third["goal"] is None
    assert "[1/2] time" in capsys.readouterr().err
    assert "| 8 | `mscffn` |" in (out / "time.md").read_text()

    figures = json.loads((out / "time.json").read_text())
    figures["rows"][1]["time_ratio"] = 0.25
    (out / "time.json").write_text(json.dumps(figures))
    assert measure(tmp_path, *words)["rows"][0]["time_ratio"] == 0.25
    assert "[1/2]" not in capsys.readouterr().err

    def run(command, **rest):
        if "--json" not in command:  # git
            return real(command, **rest)
        fresh = {**figures, "arguments": {}, "machine": machine}
        fresh["rows"] = [{}, {"time_ratio": 0.5}]
        Path(command[command.index("--json") + 1]).write_text(json.dumps(fresh))
        return subprocess.CompletedProcess(command, 0, "")

    monkeypatch.setattr(goals.subprocess, "run", run)
    machine = dict(figures["machine"])
    figures["arguments"]["clock"] = "processor"
    figures["machine"]["torch"] = "1.12"
    (out / "time.json").write_text(json.dumps(figures))
    assert measure(tmp_path, *words)["rows"][0]["time_ratio"] == 0.5
    said = capsys.readouterr().err
    assert "time.json has another clock, torch: measuring again" in said and "[1/2] time" in said

    more = small["time"].words.replace("--rounds 1", "--rounds 2")
    small["time"] = small["time"]._replace(words=more)
    measure(tmp_path, *words)
    said = capsys.readouterr().err
    assert "time.json has another definition: measuring again" in said and "[2/2]" not in said


def test_a_measurement_that_fails_is_named_and_repeated(small, tmp_path, capsys, monkeypatch):
    real = subprocess.run

    def run_without_memory(command, **options):
        if "--json" not in command:  # git
            return real(command, **options)
        if "memory" not in command:
            return subprocess.CompletedProcess(command, 1, "")
        path = Path(command[command.index("--json") + 1])
        path.write_text(json.dumps({"machine": {"commit": "1"}, "rows": [{}, {}]}))
        return subprocess.CompletedProcess(command, 0, "")

    monkeypatch.setattr(goals.subprocess, "run", run_without_memory)
    words = ["goals", tmp_path, "--cpu", "--out", tmp_path / "goals"]
    first, _, third = measure(tmp_path, *words)["rows"]
    assert first["verdict"] == "not measured: it failed; rerun to repeat it"
    assert "failed" not in third["verdict"] and (tmp_path / "goals" / "peak.json").exists()
    assert "time failed, see above" in capsys.readouterr().err
    monkeypatch.setattr(
        goals.subprocess, "run", lambda command, **rest: subprocess.CompletedProcess(command, 1, "")
    )
    measure(tmp_path, *words)
    assert "[1/2] time" in capsys.readouterr().err


def test_the_table_so_far_is_written_after_each_measurement(small, tmp_path, monkeypatch):
    table, real = tmp_path / "goals.json", subprocess.run

    def run(command, **rest):
        if "memory" in command:
            raise KeyboardInterrupt
        if "--json" not in command:  # git
            return real(command, **rest)
        figures = {"machine": {"commit": "1"}, "rows": [{}, {"time_ratio": 0.25}]}
        Path(command[command.index("--json") + 1]).write_text(json.dumps(figures))
        return subprocess.CompletedProcess(command, 0, "")

    monkeypatch.setattr(goals.subprocess, "run", run)
    with pytest.raises(KeyboardInterrupt):
        benchmark.main(
            ["goals", str(tmp_path), "--cpu", "--out", str(tmp_path / "out"), "--json", str(table)]
        )
    first, _, third = json.loads(table.read_text())["rows"]
    assert first["time_ratio"] == 0.25
    assert third["verdict"] == "not measured: its turn has not come yet"


def test_one_number_type_for_all_is_refused(tmp_path):
    assert "remove it" in refused("goals", tmp_path, "--out", tmp_path, "--dtype", "bf16")
