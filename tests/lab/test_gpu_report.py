"""`gpu-report`: prepared runs can be asked for, keep to their time, and are reported."""

import json
import re

import pytest

from fairseq_plugins.cli import train
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate.request import EvaluationRequest
from fairseq_plugins.lab.benchmarks import contenders, prepared
from fairseq_plugins.lab.commands import benchmark, gpu_report, reproduce
from fairseq_plugins.lab.reproduction.tables import table_of
from fairseq_plugins.options.arguments import read
from fairseq_plugins.train.jobs import lines_of
from tests.conftest import ROOT
from tests.lab.benchmarks.running import measure

HERE = {"device": "a GPU", "kind": "cuda", "python": "3", "torch": "2", "commit": "1234567"}
PARTS = [(run, part) for run in prepared.RUNS for part in run.parts]
NAMES = [f"{run.name}-{part.name}" for run, part in PARTS]
LOG = """# a training
2026-01-01 10:00:00 | INFO | fairseq_cli.train | ...
2026-01-01 10:00:03 | INFO | fairseq.trainer | begin training epoch 1
2026-01-01 10:00:05 | INFO | train_inner | epoch 001: 5 / 9 loss=1, train_wall=2, wall=9
2026-01-01 10:00:14 | INFO | fairseq_cli.train | begin validation on "valid" subset
2026-01-01 10:00:20 | INFO | valid | epoch 001 | valid on 'valid' subset | bleu 20
2026-01-01 10:00:21 | INFO | fairseq.checkpoint_utils | Saved ... (writing took 0.5 seconds)
2026-01-01 10:00:21 | INFO | train | epoch 001 | loss 1 | train_wall 7 | wall 18
2026-01-01 10:00:21 | INFO | fairseq.trainer | begin training epoch 10
"""
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
        args = read(benchmark.find(words[0])[1], words[1:], words[0], None)
        assert (args.cpu and args.dtype == "fp32") == toy
    elif name == "train":
        request = train.read_request(words)
        assert request.cpu == toy and "--cuda-graphs" in request.words
    elif name == "evaluate":
        assert read(EvaluationRequest, words, "evaluate", None).cpu == toy
    elif name == "reproduce":
        args = read(reproduce.Reproduce, words, "reproduce", None)
        assert args.cpu == toy and table_of(args.table).choose_rows(args.rows)
    else:
        assert name == "pytest" and ("--collect-only" in words) == toy


@pytest.mark.slow
def test_every_contender_can_be_built():
    """Architectures and options are those of fairseq-train and of this package."""
    models = {
        (re.sub(" --(plain|captured)", "", words), part.options)
        for _, part in PARTS
        for words in part.contenders
        if "layer" not in part.words.split()
    }
    for words, options in models:
        cfg = contenders.configure(words, options, "none", "fp32", True)
        assert bool(cfg.model.cuda_graphs) == ("--cuda-graphs" in words)


@pytest.mark.parametrize(
    "name",
    ["launch", *(pytest.param(name, marks=pytest.mark.slow) for name in ("epoch", "baseline"))],
)
def test_the_toy_of_each_kind(places, tmp_path, name):
    (part,) = (part for _, part in PARTS if part.name == name)
    found = measure(tmp_path, *part.command(places, True)[1:])
    assert len(found["rows"]) >= len(part.contenders) > 0 or name == "launch"
    for row in found["rows"]:
        assert "problem" not in row and ("median_seconds" in row or "figure" in row), row
    asked = [row["captures"] for row in found["rows"] if "--cuda-graphs" in row["contender"]]
    assert asked == [0] * sum("--cuda-graphs" in words for words in part.contenders)


# ---- the report


class Report:
    """Runs with fake processes: `run(*words)` returns the exit status and the parts' words."""

    def __init__(self, data, monkeypatch):
        self.data, self.out, self.started = data, data / "out", {}
        self.status, self.here, self.seconds = {}, dict(HERE), {}
        self.writes, self.wall, self.bleu = True, 100, 20.0
        (data / "dict.en.txt").write_text("a 1\n")
        monkeypatch.setattr(gpu_report, "run_words", self.process)
        monkeypatch.setattr(gpu_report, "describe", lambda toy: dict(self.here))
        monkeypatch.setattr("fairseq_plugins.evaluate.translation.Translations", lambda *given: 0)

    def process(self, words, log, seconds, triton=None):
        self.started[log.stem], self.seconds[log.stem] = words, seconds
        log.write_text(f"noise\n\n| the table of {log.stem} |\n")
        if "--json" in words and self.writes:
            rows = [{"contender": "first", "time_ratio": 1.0, "median_seconds": 0.0625}]
            log.with_suffix(".json").write_text(json.dumps({"rows": rows}))
        model = log.parent / "model"
        if words[0] == "train":
            (model / "evaluation/test-last5").mkdir(parents=True, exist_ok=True)
            (model / "train.log").write_text(LOG + f"train | wall {self.wall}\n")
        if words[0] == "evaluate":
            scores = json.dumps({"scores": {"BLEU": {"score": self.bleu}}})
            (model / "evaluation/test-last5/scores.json").write_text(scores)
        return self.status.get(log.stem, "finished")

    def run(self, *words):
        self.started = {}
        status = gpu_report.main([str(self.data), "--out", str(self.out), *words])
        return status, self.started

    def parts(self, *words):
        return list(self.run(*words)[1])

    def written(self, run=None):
        whole = json.loads((self.out / "report.json").read_text())
        return whole["runs"][run] if run else whole

    @property
    def page(self):
        return (self.out / "report.md").read_text()


@pytest.fixture
def report(tmp_path, monkeypatch):
    return Report(tmp_path, monkeypatch)


def test_the_next_run_comes_first_and_everything_is_in_the_report(report, capsys):
    status, started = report.run()
    assert status == 0 and list(started) == FIRST
    assert str(report.out / "1" / "generation.json") in started["generation"]
    assert "| the table of generation_128 |" in report.page and "noise" not in report.page
    written = report.written()
    assert written["machine"] == HERE and list(written["runs"]["1"]) == FIRST
    found = written["runs"]["1"]["generation"]
    assert found["figures"]["rows"][0]["time_ratio"] == 1.0 and "noise" in found["log"]
    assert "| the table of generation_512 |" in capsys.readouterr().out  # of this run
    assert report.parts() == ["training", "test"]
    assert "\ntransformer: 100 s: start 3 s, steps 7 s, " in report.page
    report.here["kind"] = "cpu"  # a toy size reaches no goal
    report.run("--toy")
    states = {goal["state"] for goal in report.written()["goals"]}
    assert states == {"not measured: a toy size on a CPU"}


def test_a_part_that_always_fails_does_not_hold_up_the_next_runs(report, tmp_path):
    """Nor does one that is too slow, or cannot run. Trainings that were stopped go on first."""
    failed = "failed with exit status 1"
    report.status = {"generation": failed, "generation_512": gpu_report.STOPPED}
    status, started = report.run()
    assert status == 1 and list(started) == FIRST
    assert "generation: failed with exit status 1" in report.page
    report.status["training"] = gpu_report.STOPPED
    assert [report.parts() for _ in range(2)] == [["training"], ["training"]]
    report.status = {"tests": failed}
    ran = []
    with pytest.raises(ConfigurationError, match=r"no run is left.* 1 \(generation: failed with"):
        for _ in prepared.RUNS:
            ran += report.parts()
    assert "mscffn" in ran and "table3" in ran and "few_pairs" in ran and ran.count("tests") == 1
    assert "multi30k" not in ran and ran.count("training") == 8 and "step_documents" not in ran
    # what can run from now on, or failed and is asked for, or did not run with this commit
    assert report.parts("--summaries", str(tmp_path)) == ["step_documents"]
    assert report.parts("--run", "1") == ["generation", "generation_512"]
    assert report.parts("--run", "4", "--part", "launch") == ["launch"]
    report.here["commit"] = "7654321"
    assert report.parts() == FIRST


def test_the_seconds_of_a_training_are_divided():
    found = gpu_report.times_of(LOG)
    assert found == {"start": 3, "steps": 7, "validation": 6, "checkpoints": 0.5, "rest": 4.5}


def test_figures_are_not_those_of_an_earlier_commit(report):
    words, figures = ("--run", "4", "--part", "step_4096"), report.out / "4/step_4096.json"
    report.run(*words)
    assert figures.exists()
    report.here["commit"], report.status = "7654321", {"step_4096": "failed with exit status 1"}
    report.writes = False
    report.run(*words)
    assert not figures.exists() and report.written("4")["step_4096"]["figures"] is None


@pytest.mark.parametrize(
    "program, seconds, status, last",
    [
        ("print('said')", 60, "finished", ["said"]),
        ("raise RuntimeError('why')", 60, "failed with exit status 1", ["RuntimeError: why"]),
        ("import os; os.kill(os.getpid(), 11)", 60, "failed with exit status -11", []),
        ("import time; time.sleep(600)", 0.1, gpu_report.STOPPED, []),
    ],
)
def test_a_process_ends_in_time_and_its_log_says_how(
    tmp_path, monkeypatch, program, seconds, status, last
):
    """`start` and `end` are those of trainings."""
    monkeypatch.setattr(gpu_report, "PYTEST", "import sys; exec(sys.argv[1])")
    log = tmp_path / "log"
    assert gpu_report.run_words(["pytest", program], log, seconds) == status
    assert gpu_report.summarize(lines_of(log))[-1:] == last
