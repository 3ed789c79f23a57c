"""Goals and README's ratios are judged, compared with stored ones, and kept."""

import argparse
import json

import pytest
import torch

from fairseq_plugins.lab.benchmarks import machine, prepared, speed
from fairseq_plugins.lab.benchmarks.prepared import Part
from fairseq_plugins.lab.commands import benchmark
from fairseq_plugins.options.arguments import read
from fairseq_plugins.system import cpu
from tests.lab.benchmarks.running import measure, refused

ONE, TWO = [headline["what"] for headline in prepared.HEADLINES[:2]]


@pytest.mark.parametrize(
    "parts, judged", [(prepared.GOALS, prepared.JUDGED), (prepared.SPEED, prepared.HEADLINES)]
)
def test_every_ratio_has_a_measurement_that_can_be_asked_for(tmp_path, parts, judged):
    assert {each["in"] for each in judged} == set(parts)
    assert len({each["what"] for each in judged}) == len(judged)
    for name, part in parts.items():
        _, command, *words = part.command({"DATA": tmp_path, "FOLDER": tmp_path})
        args = read(benchmark.find(command)[1], words, command, None)
        lengths = getattr(args, "lengths", None) or getattr(args, "values", None) or "0"
        rows, count = len(lengths.split(",")) * len(part.contenders), len(part.contenders)
        for each in (each for each in judged if each["in"] == name):
            row, against = each["row"], each.get("against", 0)
            if parts is prepared.GOALS:  # the first contender of each length is the baseline
                assert row < rows and row % count > 0
                assert each.get("memory", False) <= (command in ("memory", "growth"))
            else:
                assert row != against and max(row, against) < count


def figure(ratio, low, high):
    return {"ratio": ratio, "quartiles": [low, high]}


@pytest.mark.parametrize(
    "found, stored, verdict",
    [
        (figure(0.8, 0.7, 0.9), figure(0.7, 0.65, 0.7), "as stored"),  # within its own spread
        (figure(0.8, 0.8, 0.8), figure(0.7, 0.6, 0.75), "as stored"),  # within the stored one
        (figure(0.72, 0.72, 0.72), figure(0.7, 0.7, 0.7), "as stored"),  # runs differ by as much
        (figure(0.8, 0.8, 0.8), figure(0.7, 0.7, 0.71), "worse: 0.800, stored 0.700, spread 0.040"),
        (figure(0.5, 0.5, 0.5), figure(0.7, 0.7, 0.71), "better: 0.500, stored 0.700"),
        (figure(0.5, 0.5, 0.5), None, "recorded"),
        (None, figure(0.7, 0.7, 0.71), "not measured"),
    ],
)
def test_a_ratio_is_worse_beyond_the_spread(found, stored, verdict):
    row = speed.compare("step", found, stored)
    assert row["verdict"].startswith(verdict)
    assert row["worse"] == verdict.startswith("worse")


@pytest.fixture
def fake(monkeypatch):
    """`Part.measure` that writes `times`; `asked` has the contenders of each measurement."""
    fake = argparse.Namespace(times=[1.0, 0.7, 0.4], asked={}, fails=(), stops=(), least=0)

    def measured(self, places, path, more):
        fake.asked[self.name] = [word for word in self.command(places) if word[:6] == "export"]
        if self.name in fake.stops:
            raise KeyboardInterrupt
        if self.name in fake.fails:
            return False
        rows = [{"seconds": [own, own], "time_ratio": own} for own in fake.times]
        where = machine.describe(torch.device("cpu"), 1)
        found = {"rows": rows[: max(len(self.contenders), fake.least)], "machine": where}
        path.write_text(json.dumps({**found, prepared.DEFINITION: self.definition}))
        return True

    monkeypatch.setattr(Part, "measure", measured)
    monkeypatch.setattr(speed, "_write_data", lambda folder: None)
    monkeypatch.setattr(cpu, "has_bf16", lambda: True)
    return fake


@pytest.fixture
def run(tmp_path, fake):
    """run(words..., times) -> the rows of `benchmark speed` with these times."""

    def go(*words, times, call=measure, only=("training_step",)):
        fake.times = times
        words = ["speed", "--out", tmp_path, "--stored", tmp_path / "stored", *words]
        words += ["--only", *only]
        return call(tmp_path, *words)["rows"] if call is measure else call(*words)

    return go


def stored_in(folder):
    (path,) = folder.glob("*.json")
    return {what: each["ratio"] for what, each in json.loads(path.read_text())["figures"].items()}


def test_a_run_that_is_worse_fails_and_changes_no_stored_figure(run, tmp_path, capsys):
    rows = run(times=[1.0, 0.7, 0.4])
    assert [row["verdict"] for row in rows] == ["recorded", "recorded"]
    assert stored_in(tmp_path / "stored") == {ONE: 0.7, TWO: 0.4}
    assert [row["verdict"] for row in run(times=[2.0, 1.4, 0.8])] == ["as stored"] * 2
    said = run(times=[1.0, 0.9, 0.4], call=refused)
    assert ONE in said and TWO not in said and "0.900, stored 0.700" in said and "--record" in said
    assert "| 0.900 |" in capsys.readouterr().out
    assert stored_in(tmp_path / "stored") == {ONE: 0.7, TWO: 0.4}
    run("--record", times=[1.0, 0.9, 0.4])
    assert stored_in(tmp_path / "stored") == {ONE: 0.9, TWO: 0.4}


def test_a_run_that_is_stopped_keeps_what_it_measured(run, fake, tmp_path):
    fake.stops = ["mscffn"]
    with pytest.raises(KeyboardInterrupt):
        run(times=[1.0, 0.7, 0.4], only=["training_step", "mscffn"])
    assert stored_in(tmp_path / "stored") == {ONE: 0.7, TWO: 0.4}


# ---- goals


@pytest.fixture
def ask(tmp_path, fake):
    """ask() -> the rows of `benchmark goals`."""
    fake.times, fake.least = [1.0, 0.8, 0.7, 0.6, 0.5, 0.4], 4  # some goals are of a second length
    words = ["goals", tmp_path, "--cpu", "--out", tmp_path / "goals"]
    return lambda *more: measure(tmp_path, *words, *more)["rows"]


def test_goals_are_judged_and_what_is_there_is_kept(fake, ask, tmp_path, capsys):
    fake.fails = ["loss"]
    rows = {row["what"]: row for row in ask("--plot", tmp_path / "plot.svg")}
    assert rows["FTC 2x3 training step, fused loss, fast path"]["verdict"] == "reached"
    assert rows["MSCFFN 768/3072, 12 subspaces"]["verdict"] == "missed by 0.470"
    assert rows["FTC 2x3 step, plain path"]["verdict"] == ""
    failed = "not measured: it failed; rerun to repeat it"
    assert rows["projection and loss, fused"]["verdict"] == failed
    fake.asked.clear()
    fake.fails = ()
    ask()
    assert list(fake.asked) == ["loss"]
    # figures of another machine, or of a measurement that is defined otherwise, are not kept
    path = tmp_path / "goals" / "loss.json"
    for name, other in (("machine", "machine"), (prepared.DEFINITION, "definition")):
        path.write_text(json.dumps({**json.loads(path.read_text()), name: {"torch": "1.12"}}))
        ask()
        assert list(fake.asked) == ["loss"]
        said = capsys.readouterr().err
        assert "loss.json has another " in said and said.count("measuring again") == 1, other
