"""The command plot: pictures of runs, sweeps and benchmarks, and wrong inputs."""

import json
import re

import pytest

from fairseq_plugins import cli
from fairseq_plugins.train import history

pytest.importorskip("matplotlib", minversion="3.7")
TRAINED = {"update": 10, "stats": {"loss": 5.0, "nll_loss": 4.0}, "hours": 0.25}
VALID = {"update": 20, "subset": "valid", "stats": {"nll_loss": 3.0, "bleu": 12.0}, "hours": 0.5}


def texts(picture):
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text("utf-8"))


def lines(picture):
    return picture.read_text("utf-8").count('id="line2d_')


def run(folder, *reports):
    folder.mkdir(parents=True)
    for report in reports:
        history.add(folder, **report)
    return str(folder)


def test_curves_of_runs(tmp_path):
    with_bleu = run(tmp_path / "a" / "run", TRAINED, VALID)
    without = run(tmp_path / "b" / "run", TRAINED)
    pictures = tmp_path / "both.svg", tmp_path / "one.svg", tmp_path / "one.png"
    assert cli.main(["plot", with_bleu, without, "--out", str(pictures[0])]) == 0
    shown = texts(pictures[0])
    assert {with_bleu, without, "updates", "hours of training", "BLEU, validation set"} <= {*shown}
    assert cli.main(["plot", without, "--out", str(pictures[1])]) == 0
    assert "run" in texts(pictures[1]) and "BLEU, validation set" not in texts(pictures[1])
    assert lines(pictures[0]) > lines(pictures[1])
    assert cli.main(["plot", without, "--out", str(pictures[2])]) == 0
    assert pictures[2].read_bytes().startswith(b"\x89PNG")


def test_results_of_a_sweep_and_a_benchmark(tmp_path):
    scored = [{"scoring": {"scores": {"BLEU": {"score": score}}}} for score in (30, 32)]
    sweep = {"title": "Windows", "metrics": ["BLEU"], "rows": [{"labels": ["ftc"], "runs": scored}]}
    timed = [
        {"contender": "a", "time_ratio": 1, "time_ratio_quartiles": [1, 1]},
        {"contender": "b", "time_ratio": 0.5, "time_ratio_quartiles": [0.4, 0.6]},
    ]
    expected = {"ftc", "Windows"}, {"a", "b", "layer: ratio to a"}
    for results, names in zip((sweep, {"command": "layer", "rows": timed}), expected):
        (tmp_path / "r.json").write_text(json.dumps(results))
        assert cli.main(["plot", str(tmp_path / "r.json"), "--out", str(tmp_path / "p.svg")]) == 0
        assert names <= {*texts(tmp_path / "p.svg")}
