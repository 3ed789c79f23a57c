"""--init-from and --freeze: what is loaded, what stays fixed, and that resuming loads nothing."""

import re

import pytest
import torch

from fairseq_plugins.errors import ConfigurationError
from tests.conftest import load

FIRST_BLOCK = "encoder.layers.0"
TABLES = ("encoder.embed_tokens.weight", "decoder.output_projection.weight")


@pytest.fixture
def train(run_train, train_args, tmp_path):
    """Train a TransformerFTC of the Transformer's sizes; returns its parameters and the log."""

    def run(data, *words, updates=1, folder="run"):
        log = run_train(
            data, *train_args, "--arch", "transformer_ftc", "--encoder-blocks", "1,1",
            "--save-dir", tmp_path / folder, "--max-update", updates, *words,
        )  # fmt: skip
        return load(tmp_path / folder)["model"], log.output

    return run


def loaded(log, part):
    numbers = re.search(rf": {re.escape(part)}: ([\d,]+) of ([\d,]+) numbers", log)
    return [int(number.replace(",", "")) for number in numbers.groups()]


def test_ftc_starts_from_a_transformer(train, toy_data, tiny_checkpoint):
    # with a learning rate of 0 the first update shows the start
    given = ("--init-from", tiny_checkpoint, "--lr", 0)
    found, log = train(toy_data.bin, *given)
    before = load(tiny_checkpoint.parent)["model"]
    for name in (*TABLES, "decoder.layers.0.fc2.bias"):
        assert torch.equal(found[name], before[name]), name
    for part in ("fc1.weight", "fc2.bias"):
        ours, theirs = found[f"{FIRST_BLOCK}.ffn.{part}"], before[f"{FIRST_BLOCK}.{part}"]
        assert torch.equal(ours, theirs), part
    assert loaded(log, "encoder.layers.1")[0] < loaded(log, "encoder.layers.1")[1]


def test_what_was_loaded_is_logged_and_chosen(train, toy_data, tiny_checkpoint):
    words = ("--init-only", "encoder,decoder.layers.?", "--init-skip", "*.embed_tokens", "--lr", 0)
    found, log = train(toy_data.bin, "--init-from", tiny_checkpoint, *words)
    whole = loaded(log, FIRST_BLOCK)
    assert whole[0] == whole[1] > 0
    assert loaded(log, "encoder.embed_tokens")[0] == 0
    assert loaded(log, "decoder.output_projection")[0] == 0
    assert loaded(log, "encoder.layers.1")[0] == 0
    assert "another shape" in log and "not chosen" in log


def test_rows_follow_the_symbols(train, make_toy_data, toy_data, tiny_checkpoint, tmp_path):
    other = make_toy_data(tmp_path / "other", {"train": 40, "valid": 5}, seed=5).bin
    symbols = []
    for folder in (toy_data.bin, other):
        lines = (folder / "dict.src.txt").read_text("utf-8").splitlines()
        symbols.append(["<s>", "<pad>", "</s>", "<unk>", *(x.split(" ")[0] for x in lines)])
    assert symbols[0] != symbols[1]
    found, _ = train(other, "--init-from", tiny_checkpoint, "--lr", 0)
    before = load(tiny_checkpoint.parent)["model"]
    for row, symbol in enumerate(symbols[1]):
        if symbol in symbols[0]:
            expected = before[TABLES[0]][symbols[0].index(symbol)]
            assert torch.equal(found[TABLES[0]][row], expected), symbol


def test_frozen_parameters_stay_equal_and_training_resumes(train, toy_data, tiny_checkpoint):
    words = ("--init-from", tiny_checkpoint, "--freeze", f"{FIRST_BLOCK},*.embed_tokens")
    whole, _ = train(toy_data.bin, *words, updates=8, folder="whole")
    _, log = train(toy_data.bin, *words, updates=4)
    assert loaded(log, FIRST_BLOCK)[0]
    resumed, log = train(toy_data.bin, *words, updates=8)
    assert "numbers" not in log  # nothing is loaded again
    before = load(tiny_checkpoint.parent)["model"]
    for name, value in whole.items():
        assert torch.equal(value, resumed[name]), name
        if "embed_tokens" in name:
            assert torch.equal(value, before[name]), name
        if name.startswith(f"{FIRST_BLOCK}.ffn"):
            assert torch.equal(value, before[name.replace(".ffn", "")]), name
    name = "decoder.layers.0.fc1.weight"
    assert not torch.equal(whole[name], before[name])


@pytest.mark.parametrize(
    "words,told",
    [
        (["--init-only", "encoder.blocks"], "--init-only encoder.blocks matches no parameter"),
        (["--init-only", "encoder.layers.1.ffn.fc1"], "no parameter that fits"),
        (["--init-from", "nowhere"], "--init-from nowhere does not exist"),
        (["--init-data", "EMPTY"], "--init-data"),
        (["--freeze", "*"], "leaves no parameter to train"),
        (["--freeze", "encoder.layer"], "--freeze encoder.layer matches no parameter"),
        (["--finetune-from-model", "CHECKPOINT"], "give one"),
    ],
)
def test_mistakes_end_before_training(train, toy_data, tiny_checkpoint, tmp_path, words, told):
    places = {"EMPTY": tmp_path, "CHECKPOINT": tiny_checkpoint}
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        train(toy_data.bin, "--init-from", tiny_checkpoint, *(places.get(w, w) for w in words))
    assert not (tmp_path / "run/checkpoint_last.pt").exists()
