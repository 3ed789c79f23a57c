"""Beam search side by side: lengths are forced, and contenders do the same work."""

import argparse

import pytest
import torch

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.benchmarks import generate
from fairseq_plugins.search.torch_backend import generator
from tests.lab.benchmarks.running import SIZES, measure
from tests.tape import Tape

SMALL = ["--batch-size", 4, "--batches", 2, "--rounds", 1, "--warmup", 0, "--beam", 2]


def test_models_and_checkpoints_side_by_side(toy_data, tiny_checkpoint, tmp_path):
    words = ["generate", toy_data.bin, *SMALL, "--options", SIZES]
    for contender in ("transformer", "transformer_ftc", str(tiny_checkpoint)):
        words += ["--contender", contender]
    baseline, compressed, trained = measure(tmp_path, *words)["rows"]
    assert baseline["speed"] == baseline["time_ratio"] == baseline["flop_ratio"] == 1.0
    assert compressed["flop_ratio"] < 1
    assert compressed["speed"] == pytest.approx(1 / compressed["time_ratio"])
    assert trained["sentences_a_second"] == pytest.approx(8 / sum(trained["seconds"]))


@pytest.mark.parametrize("words", [[], ["--plain"], ["--captured"]])
def test_every_hypothesis_has_the_length_of_the_longest_reference(toy_data, words, monkeypatch):
    replays = []
    monkeypatch.setattr(
        Tape, "replay", lambda self, replay=Tape.replay: replays.append(replay(self))
    )
    monkeypatch.setattr(generator, "graph_class", lambda device: Tape)
    args = argparse.Namespace(
        data=toy_data.bin, options=SIZES, dtype="fp32", beam=2, free_length=False,
        subset="test", batch_size=4, batches=2,
    )  # fmt: skip
    cpu = torch.device("cpu")
    task, model = generate.load("transformer_ftc", args, cpu)
    batches = generate.load_batches(task, model, args, cpu)
    search = generate.searcher(task, model, args, batches, words)
    for number, batch in enumerate(batches):
        longest = batch["target"].size(1)  # with </s>
        for sentence in search(number):
            assert [len(hypothesis["tokens"]) for hypothesis in sentence] == [longest] * 2
    assert bool(replays) == (words == ["--captured"])


@pytest.mark.parametrize("kind", ["export", "ctranslate2"])
def test_a_training_in_the_place_of_an_export_is_kept(tmp_path, kind):
    checkpoint = tmp_path / "full" / "checkpoint_last.pt"
    checkpoint.parent.mkdir()
    checkpoint.touch()
    words = f"transformer_ftc --encoder-blocks 1,1 {SIZES}"
    with pytest.raises(ConfigurationError, match="full holds checkpoints, which are kept: choose"):
        generate.write_untrained(f"{kind}:{tmp_path}/full", words, tmp_path)
    assert checkpoint.exists()
