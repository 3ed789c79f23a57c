"""The benchmark on a toy corpus: what it compares, what it counts, and what it refuses."""

import pytest

from fairseq_plugins.graphs import captured_step
from tests.lab.benchmarks.running import SIZES, measure
from tests.tape import Tape


def test_training_steps_side_by_side(toy_data, tmp_path, capsys):
    words = ["train-step", toy_data.bin, "--options", SIZES]
    for model in ("transformer", "transformer_ftc --bf16 --criterion cross_entropy"):
        words += ["--arch", model]
    words += ["--batches", 2, "--rounds", 2, "--warmup", 0, "--max-tokens", 300]
    words += ["--plot", tmp_path / "plot.svg"]
    found = measure(tmp_path, *words)

    assert found["machine"]["threads"] == 1 and found["machine"]["torch"]
    assert found["arguments"]["max_tokens"] == 300
    baseline, compressed = found["rows"]
    assert baseline["time_ratio"] == 1.0 and baseline["flop_ratio"] == 1.0
    assert len(compressed["seconds"]) == 4 and min(compressed["seconds"]) > 0
    # half the positions and features in half of the layers
    assert compressed["flop_ratio"] < 1 and compressed["parameters"] < baseline["parameters"]
    assert compressed["ratio_to_flop_limit"] == pytest.approx(
        compressed["time_ratio"] / compressed["flop_ratio"]
    )
    assert "| `transformer_ftc --bf16" in capsys.readouterr().out
    assert "operations" in (tmp_path / "plot.svg").read_text()


def test_captured_steps_are_captured(toy_data, tmp_path, monkeypatch):
    """With a graph for the CPU: the benchmark packs their batches."""
    monkeypatch.setattr(captured_step, "graph_class", lambda device: Tape)
    options = f"{SIZES} --encoder-blocks 1,1 --dropout 0"
    common = [toy_data.bin, "--options", options, "--max-tokens", 300]
    common += ["--arch", "transformer_ftc", "--arch", "transformer_ftc --cuda-graphs"]
    same = measure(tmp_path, "gpu-part", "equality", *common, "--updates", 4)["rows"]
    assert [row["captures"] is not None for row in same] == [False, True]
    assert 1 <= same[1]["captures"] <= 3
    assert same[1]["difference"] < 1e-4
    assert max(same[1]["difference_of_losses"]) < 1e-5
    words = ["--batches", 1, "--rounds", 1, "--warmup", 0]
    found = measure(tmp_path, "train-step", *common, *words)["rows"]
    assert found[1]["captures"] == 1
