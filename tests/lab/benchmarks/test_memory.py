"""Peak memory in fresh processes, and how time and memory grow."""

import argparse
from types import SimpleNamespace

import pytest
import torch

from fairseq_plugins.lab.benchmarks import growth, memory, peak_memory, workloads
from tests.lab.benchmarks.test_train_step import SIZES, measure, refused


def test_what_a_feed_forward_network_keeps(tmp_path):
    words = ["memory", "--dim", 48, "--tokens", 8192, "--lengths", 64, "--contender", "ffn"]
    (row,) = measure(tmp_path, *words)["rows"]
    assert row["problem"] == "" and row["parameters"] == 2 * 4 * 48 * 48 + 5 * 48
    # its input and the inner layer, in fp32
    assert row["kept_bytes"] == 8192 * (48 + 4 * 48) * 4
    assert row["peak_ratio"] == row["kept_ratio"] == 1.0 and row["peak_bytes"] > 0
    # at its peak there are also the gradients of the output and of the inner layer
    assert row["allocated_bytes"] > row["kept_bytes"] - 8192 * 48 * 4


def test_memory_grows_with_length_where_weights_are_kept(tmp_path):
    """Dropout on the attention weights needs all of them; the additive attention has few."""
    words = ["memory", "--dim", 32, "--heads", 4, "--dropout", 0.1, "--tokens", 2048]
    words += ["--contender", "sdpa", "--contender", "fastformer"]
    plot = tmp_path / "plot.svg"
    rows = measure(tmp_path, *words, "--lengths", "64,512", "--plot", plot)["rows"]
    short, _, long, additive = rows
    assert long["kept_bytes"] > 4 * short["kept_bytes"]
    assert long["allocated_bytes"] > 3 * short["allocated_bytes"]
    assert additive["kept_ratio"] < 0.2
    assert additive["allocated_bytes"] < 0.5 * long["allocated_bytes"]
    assert additive["peak_bytes"] > 0  # of the process, with what else it touches
    assert "fastformer" in plot.read_text()


def test_what_does_not_fit_is_said(tmp_path):
    words = ["memory", "--dim", 32, "--heads", 8, "--dropout", 0.1, "--tokens", 4096]
    words += ["--contender", "sdpa", "--contender", "fastformer"]
    # a GPU build of torch alone has more than half a GiB; the weights, 0.5 GiB, are held twice
    words += ["--lengths", 4096, "--memory-limit", 1]
    softmax, additive = measure(tmp_path, *words)["rows"]
    assert softmax["problem"] == "does not fit in 1 GiB" and softmax["peak_bytes"] is None
    assert additive["problem"] == "" and additive["peak_ratio"] is None


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


def test_a_gpu_s_whole_memory_is_the_limit(monkeypatch):
    found = SimpleNamespace(total_memory=80 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    for device, given, limit in (("cpu", None, 6), ("cuda", None, 80), ("cuda", 7, 7)):
        args = argparse.Namespace(memory_limit=given, patience=1)
        memory.set_limit(args, torch.device(device))
        assert args.memory_limit == limit


def test_growth_of_whole_models(tmp_path):
    plot = tmp_path / "plot.svg"
    words = ["growth", "--options", SIZES, "--values", "64,16", "--tokens", 128, "--rounds", 2]
    words += ["--what", "training", "--clock", "processor", "--plot", plot]
    words += ["--contender", "transformer", "--contender", "transformer_ftc"]
    found = measure(tmp_path, *words)
    rows = found["rows"]
    assert [row["value"] for row in rows] == [16, 16, 64, 64]
    assert {row["what"] for row in rows} == {"training"}
    assert [row["time_ratio"] for row in rows[::2]] == [1.0, 1.0]
    for row in rows:
        assert row["problem"] == "" and row["peak_bytes"] > 0 and row["median_seconds"] > 0
        assert row["rounds"] == 2
    assert rows[1]["flop_ratio"] < 1 and found["arguments"]["clock"] == "processor"
    drawn = plot.read_text()
    assert "training step" in drawn and "peak, MiB" in drawn and "inference" not in drawn


def test_steps_that_take_too_long_are_left_out_with_the_reason(tmp_path):
    words = ["growth", "--options", SIZES, "--values", "8,16", "--tokens", 16, "--part", "encoder"]
    words += ["--what", "forward", "--contender", "transformer", "--longest-step", 1e-9]
    tried, not_tried = measure(tmp_path, *words)["rows"]
    assert tried["problem"].startswith("a step takes") and "seconds" not in tried
    assert not_tried["problem"] == tried["problem"] and "peak_bytes" not in not_tried


def test_an_interrupted_run_shows_what_it_has(tmp_path, monkeypatch):
    def point(args, device, value, what, before, left_out):
        if before:
            raise KeyboardInterrupt
        return [{"value": value, "what": what, "contender": "transformer", "problem": ""}]

    monkeypatch.setattr(growth, "point", point)
    words = ["growth", "--values", "8,16", "--tokens", 16, "--contender", "transformer"]
    found = measure(tmp_path, *words)
    assert [row["value"] for row in found["rows"]] == [8, 8]  # training and inference
    assert "interrupted" in found["notes"][-1]


def test_values_that_are_not_asked_for_again_stay_in_the_file(tmp_path, monkeypatch):
    smaller = []

    def point(args, device, value, what, before, left_out):
        smaller.append([row["value"] for row in before])
        return [{"value": value, "what": what, "contender": "transformer", "problem": ""}]

    monkeypatch.setattr(growth, "point", point)
    words = ["growth", "--what", "training", "--tokens", 64, "--contender", "transformer"]
    for values in ("8,32", "16", "32,64"):
        found = measure(tmp_path, *words, "--values", values)
    assert [row["value"] for row in found["rows"]] == [8, 16, 32, 64]
    assert smaller == [[], [8], [8], [8, 16, 32]]


def test_an_interrupt_ends_the_measuring_process(monkeypatch):
    """It took as long as its step before."""
    started = []

    class Process:
        def __init__(self, **options):
            started.append(self)
            self.done = []

        def __getattr__(self, name):
            return lambda: self.done.append(name)

    class Pipe:
        def close(self):
            pass

        def poll(self, seconds):
            raise KeyboardInterrupt

    context = argparse.Namespace(
        set_forkserver_preload=lambda names: None,
        Pipe=lambda duplex: (Pipe(), Pipe()),
        Process=Process,
    )
    monkeypatch.setattr(peak_memory.multiprocessing, "get_context", lambda kind: context)
    with pytest.raises(KeyboardInterrupt):
        peak_memory.measure("transformer", argparse.Namespace(device="cpu"), 1, 1.0)
    assert started[0].done == ["start", "terminate", "join"]


def test_depth_and_width_reach_the_model():
    def sized(axis, words, value):
        return growth.sized(argparse.Namespace(axis=axis, options=""), words, value)

    assert sized("length", "transformer", 7) == "transformer"
    assert sized("depth", "transformer", 5).split()[1:] == [
        "--encoder-layers", "5", "--decoder-layers", "5",
    ]  # fmt: skip
    assert "--encoder-layers 5 --encoder-blocks 3,2" in sized("depth", "transformer_ftc", 5)
    assert "--encoder-blocks 2,2,1" in sized("depth", "transformer_ftc --encoder-blocks 1,1,1", 5)
    assert "--encoder-embed-dim 64 --encoder-ffn-embed-dim 256" in sized("width", "transformer", 64)


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["memory", "--contender", "ffn", "--memory-limit", "0.1"], "--memory-limit 0.1"),
        (["memory", "--contender", "ffn", "--patience", "0"], "--patience 0:"),
        (["memory", "--contender", "mscffn --subspaces 7"], "--mscffn-subspaces 7 must be even"),
        (["growth", "--values", "64", "--tokens", "32", "--contender", "transformer"], "--tokens"),
        (
            ["growth", "--axis", "depth", "--values", "1", "--length", "0", "--contender", "ffn"],
            "--length 0: must be at least 1",
        ),
        (
            ["growth", "--axis", "depth", "--values", "1", "--contender", "transformer_ftc"],
            "`transformer_ftc` has 2 blocks",
        ),
    ],
)
def test_mistakes_are_errors_of_one_line(words, complaint):
    assert complaint in refused(*words)
