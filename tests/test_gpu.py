"""fairseq's commands on a GPU: training, resuming and searching as on the CPU."""

import json
import re

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
FTC = "--arch transformer_ftc --encoder-blocks 1,1"
MODELS = {
    "ftc": FTC,
    "all three ideas": f"{FTC} --encoder-token-mixer fastformer --encoder-ffn mscffn"
    " --decoder-ffn mscffn --mscffn-subspaces 4",
    "fairseq's transformer": "--arch transformer",
}
PRECISIONS = {"fp32": 1e-3, "bf16": 0.02, "fp16": 0.02}  # with the tolerance of a loss
UPDATES = 8


@pytest.fixture
def losses(toy_data, run_train, train_args, tmp_path):
    """Train without dropout; returns the loss of each update that was made."""

    def train(words, updates=UPDATES, folder="run"):
        options = "--dropout 0 --log-format json --criterion label_smoothed_cross_entropy_fused"
        options += " --distributed-world-size 1"  # not one process for each GPU
        output = run_train(
            *(toy_data.bin, *train_args, *options.split(), *words.split()),
            *("--max-update", updates, "--save-dir", tmp_path / folder),
        ).output
        lines = re.findall(r"train_inner \| (\{.*\})", output)
        return [float(json.loads(line)["loss"]) for line in lines]

    return train


def precision(name):
    """The option; a scale of 4 overflows in no update, which would be left out."""
    return {"fp32": "", "bf16": " --bf16", "fp16": " --fp16 --fp16-init-scale 4"}[name]


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("model", MODELS)
def test_training_has_the_losses_of_the_cpu(losses, model, name):
    expected = losses(MODELS[model] + " --cpu", folder="cpu")
    found = losses(MODELS[model] + precision(name))
    assert len(expected) == UPDATES and expected[-1] < 0.98 * expected[0]
    assert found == pytest.approx(expected, rel=PRECISIONS[name])


@pytest.mark.parametrize("name", PRECISIONS)
def test_a_resumed_training_goes_on(losses, name):
    words = FTC + precision(name)
    whole = losses(words)
    half = losses(words, UPDATES // 2, "resumed")
    rest = losses(words, UPDATES, "resumed")
    assert len(half) == len(rest) == UPDATES // 2
    assert half + rest == pytest.approx(whole, rel=PRECISIONS[name] / 2)


@pytest.mark.parametrize("model", MODELS)
def test_the_search_finds_what_the_cpu_finds(losses, toy_data, run_generate, tmp_path, model):
    losses(MODELS[model] + " --cpu", 40)
    command = [toy_data.bin, "--path", tmp_path / "run" / "checkpoint_last.pt", "--nbest", "3"]
    here, cpu = (
        re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", run_generate(*command, *more).output, re.M)
        for more in ([], ["--cpu"])
    )
    assert len(cpu) == 3 * toy_data.sizes["test"]
    assert sorted((number, text) for number, _, text in here) == sorted(
        (number, text) for number, _, text in cpu
    )
    scores = [sorted(float(score) for _, score, _ in found) for found in (here, cpu)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)
