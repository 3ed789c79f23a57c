"""The benchmark on a toy corpus: what it compares, what it counts, and what it refuses."""

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.graphs import captured_step
from fairseq_plugins.lab.benchmarks import train_step
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


def test_projection_and_loss_alone(toy_data, tmp_path):
    words = ["train-step", toy_data.bin, "--options", SIZES, "--part", "loss", "--batches", 1]
    words += ["--rounds", 1, "--warmup", 0, "--max-tokens", 300, "--arch", "transformer"]
    words += ["--arch", "transformer_ftc --criterion cross_entropy"]
    rows = measure(tmp_path, *words)["rows"]
    # forward, and the gradients of features and matrix: 16 features, 48 types, real and padded rows
    positions, rest = divmod(rows[0]["flops"], 3 * 2 * 16 * 48)
    assert rest == 0 and 200 < positions <= 300
    assert rows[1]["flop_ratio"] == 1.0


def test_captured_steps_are_captured(toy_data, tmp_path, monkeypatch):
    """With a graph for the CPU: the benchmark packs their batches."""
    monkeypatch.setattr(captured_step, "graph_class", lambda device: Tape)
    common = [
        toy_data.bin,
        "--options",
        f"{SIZES} --encoder-blocks 1,1 --dropout 0",
        "--max-tokens",
        300,
    ]
    common += ["--arch", "transformer_ftc", "--arch", "transformer_ftc --cuda-graphs"]
    same = measure(tmp_path, "gpu-part", "equality", *common, "--updates", 4)["rows"]
    assert [row["captures"] is not None for row in same] == [False, True]
    assert 1 <= same[1]["captures"] <= 3
    assert same[1]["difference"] < 1e-4
    assert max(same[1]["difference_of_losses"]) < 1e-5
    found = measure(tmp_path, "train-step", *common, "--batches", 1, "--rounds", 1, "--warmup", 0)[
        "rows"
    ]
    assert found[1]["captures"] == 1


@pytest.mark.slow
def test_what_fails_takes_no_other_figure_with_it(toy_data, tmp_path, monkeypatch):
    step_of = train_step.step_of

    def failing(trainer, part):
        def fail(batch):
            raise RuntimeError("CUDA error: an illegal memory access\nmore")

        return step_of(trainer, part) if trainer.cfg.model.encoder_layers == 1 else fail

    monkeypatch.setattr(train_step, "step_of", failing)
    words = ["train-step", toy_data.bin, "--options", SIZES, "--max-tokens", 300, "--batches", 1]
    words += ["--rounds", 1, "--warmup", 0, "--arch", "transformer --encoder-layers 1"]
    words += ["--arch", "transformer --encoder-layers 2"]
    good, bad = measure(tmp_path, *words, "--leave-out-failing")["rows"]
    assert good["time_ratio"] == 1 and bad["problem"] == "CUDA error: an illegal memory access"
    with pytest.raises(RuntimeError, match="illegal"):
        measure(tmp_path, *words)
    words = ["gpu-part", "profile", toy_data.bin, "--updates", 1, "--options", SIZES]
    words += ["--arch", "transformer --encoder-layers 1", "--arch", "no_such_architecture"]
    good, bad = measure(tmp_path, *words)["rows"]
    assert good["kernels"] > 100 and "not an architecture" in bad["problem"]
    with pytest.raises(ConfigurationError, match="not an architecture"):
        measure(tmp_path, *words[:-4], "--arch", "no_such_architecture")
