"""Time and memory on random input: what is counted, what is left out, and what a rerun keeps."""

import json

import pytest

from fairseq_plugins.lab.benchmarks import random_input as measured
from fairseq_plugins.lab.benchmarks import workloads
from tests.lab.benchmarks.running import SIZES, measure

LAYER = ["layer", "--rounds", 1, "--warmup", 0]


def test_operations_are_those_of_the_equations(tmp_path):
    words = [*LAYER, "--what", "forward", "--dim", 48, "--heads", 4, "--tokens", 64]
    names = ["ffn", "mscffn", "ffn --inner 96", "sdpa", "softmax", "fastformer-plain"]
    for name in names:
        words += ["--contender", name]
    rows = measure(tmp_path, *words, "--lengths", "16,64")["rows"]
    assert [row["contender"] for row in rows] == names + names
    d, tokens = 48, 64
    for length, own in ((16, rows[:6]), (64, rows[6:])):
        attention = 4 * d * d + 2 * length * d
        multiply_adds = [8 * d * d, 2.25 * d * d, 4 * d * d, attention, attention, 3 * d * d]
        assert [row["value"] for row in own] == [length] * 6
        assert [row["flops"] for row in own] == [2 * tokens * count for count in multiply_adds]
        assert own[0]["time_ratio"] == 1.0
        limit = own[1]["ratio_to_flop_limit"]
        assert limit == pytest.approx(own[1]["time_ratio"] * 8 / 2.25)


def test_backward_is_counted_with_what_it_computes_again(tmp_path):
    """A copy has no operations; a summary has a score and a sum for each head and feature."""
    words = [*LAYER, "--dim", 48, "--heads", 4, "--tokens", 64, "--lengths", 32]
    for name in ("ffn", "sdpa", "copy", "summaries"):
        words += ["--contender", name]
    ffn, sdpa, copy, summaries = measure(tmp_path, *words)["rows"]
    assert ffn["flops"] == 3 * 2 * 64 * 8 * 48 * 48
    # the fused attention computes its scores once more
    assert sdpa["flops"] == 2 * 64 * (3 * 4 * 48 * 48 + (2 + 5) * 32 * 48)
    assert (copy["flops"], summaries["flops"]) == (0, 3 * 2 * 64 * 2 * 4 * 48)
    assert copy["parameters"] == 0 and summaries["parameters"] == 4 * 48


def test_a_step_that_runs_out_of_memory_is_no_figure(monkeypatch):
    """fairseq skips such a step, and resets a GPU's peak after each: both would give figures."""
    setting = workloads.Setting("model", "training", 4, 2, 4, "fp32", "cpu", 1, SIZES, {}, 32)
    workload = workloads.build("transformer", setting)
    assert workload.trainer.cuda_env is None

    def fail(*arguments, **named):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(workload.trainer.task, "train_step", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        workload.step()


@pytest.mark.slow
def test_growth_of_whole_models(tmp_path):
    plot = tmp_path / "plot.svg"
    words = ["growth", "--options", SIZES, "--values", "16", "--tokens", 64, "--rounds", 2]
    words += ["--what", "training", "--clock", "processor", "--plot", plot]
    words += ["--contender", "transformer", "--contender", "transformer_ftc"]
    found = measure(tmp_path, *words)
    rows = found["rows"]
    assert [(row["value"], row["what"]) for row in rows] == [(16, "training")] * 2
    for row in rows:
        assert row["problem"] == "" and row["peak_bytes"] > 0 and row["median_seconds"] > 0
        assert row["rounds"] == 2
    assert rows[0]["time_ratio"] == 1.0 and rows[1]["flop_ratio"] < 1
    assert found["arguments"]["clock"] == "processor"
    drawn = plot.read_text()
    assert "training step" in drawn and "peak, MiB" in drawn and "inference" not in drawn


@pytest.mark.slow
def test_steps_that_take_too_long_are_left_out_with_the_reason(tmp_path):
    words = ["growth", "--options", SIZES, "--values", "8,16", "--tokens", 16, "--part", "encoder"]
    words += ["--what", "forward", "--contender", "transformer", "--longest-step", 1e-9]
    tried, not_tried = measure(tmp_path, *words)["rows"]
    assert tried["problem"].startswith("a step takes") and "seconds" not in tried
    assert not_tried["problem"] == tried["problem"] and "peak_bytes" not in not_tried


def test_a_rerun_keeps_what_was_measured(tmp_path, monkeypatch):
    points, words = [], ["growth", "--what", "training", "--contender", "transformer", "--tokens"]

    def point(args, device, value, what, before, left_out):
        points.append(value)
        if value == 666:
            raise KeyboardInterrupt
        row = {"value": value, "what": what, "contender": "transformer", "median_seconds": 0.5}
        row.update(problem=left_out.get(("transformer", what), ""), seconds=[0.5, 0.6, 0.7])
        if value > 4000:
            row["problem"] = left_out["transformer", what] = "does not fit"
            del row["median_seconds"]
        return [row]

    def asked(tokens, values):
        points.clear()
        rows = measure(tmp_path, *words, tokens, "--values", values)["rows"]
        return points, [row["value"] for row in rows]

    monkeypatch.setattr(measured, "point", point)
    assert asked(9000, "8") == ([8], [8])
    assert asked(9000, "8,32") == ([32], [8, 32])
    # an interrupted run has written what it has, and what is not asked for again stays in the file
    assert asked(9000, "16,666") == ([16, 666], [8, 16, 32])
    # why a contender is left out is kept too
    assert asked(9000, "4096") == ([4096], [8, 16, 32, 4096])
    rows = measure(tmp_path, *words, 9000, "--values", "4096,8192")["rows"]
    assert rows[-1]["problem"] == "does not fit"
    # with another setting, or on another commit, nothing is kept
    assert asked(32, "8") == ([8], [8])
    path = tmp_path / "figures.json"
    path.write_text(
        path.read_text().replace(json.loads(path.read_text())["machine"]["commit"], "x")
    )
    assert asked(32, "8") == ([8], [8])
