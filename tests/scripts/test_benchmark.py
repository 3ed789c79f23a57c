"""The benchmark on a toy corpus: what it compares, and what it counts."""

import json

from scripts import benchmark

SIZES = (
    "--encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2"
    " --decoder-embed-dim 16 --decoder-ffn-embed-dim 32 --decoder-attention-heads 2"
    " --decoder-layers 1"
)


def test_training_steps_side_by_side(toy_data, tmp_path, capsys):
    out = tmp_path / "figures.json"
    words = ["train-step", str(toy_data.bin), "--model", SIZES, "--cpu", "--json", str(out)]
    for model in ("transformer", "transformer_ftc", "transformer_ftc --encoder-ffn mscffn"):
        words += ["--arch", model]
    words += ["--batches", "2", "--rounds", "2", "--warmup", "0", "--max-tokens", "300"]
    assert benchmark.main(words) == 0

    baseline, compressed, crossed = json.loads(out.read_text())
    assert baseline["time_ratio"] == 1.0 and baseline["flop_ratio"] == 1.0
    assert 0 < compressed["time_ratio"] and 0 < crossed["time_ratio"]
    # half the positions and features in half of the layers
    assert compressed["flop_ratio"] < 1 and compressed["parameters"] < baseline["parameters"]
    printed = capsys.readouterr().out
    assert "| `transformer_ftc --encoder-ffn mscffn` |" in printed
