"""Checkpoints are read as data."""

import io
import pickle
import random
from collections import OrderedDict
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from fairseq_plugins import compat
from fairseq_plugins.compat import checkpoints
from fairseq_plugins.compat.checkpoints import WORDS
from fairseq_plugins.errors import ConfigurationError

compat.apply()


def saved(value, zipped=True):
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


MODEL = {"model": {}, "optimizer_history": [], "extra_state": {}}
DAMAGED = {
    "cut": lambda content: content[: len(content) // 2],
    "without its end": lambda content: content[:-30],
    "zeros": lambda content: bytes(len(content)),
    "zeros at the start": lambda content: bytes(1000) + content[1000:],
    "zeros in the middle": lambda content: content[:2000] + bytes(4000) + content[6000:],
    "random": lambda content: random.Random(1).getrandbits(40000).to_bytes(5000, "big"),
    "empty": b"",
    "one byte": b"\x80",
    "HTML": b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
    "text": b"a checkpoint\n" * 99,
    "old pickle": pickle.dumps({"model": {}}),
    "weights alone": saved({"weight": torch.ones(2)}),
    "model alone": saved({"model": {"weight": torch.ones(2)}}),
    "list": saved([1, 2]),
    "array of history": saved({"model": {}, "optimizer_history": torch.ones(3), "epoch": 1}),
    "text of words": saved({"model": {}, "best_loss": 1, "epoch": 1, WORDS: "x"}),
    "list of weights": saved({**MODEL, "model": [1]}),
    "no history": saved(MODEL),
    "options of another kind": saved({**MODEL, "optimizer_history": [{}], "cfg": {}, "args": 1}),
    "old format, cut": saved({"model": torch.ones(99)}, False)[:-99],
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_files_are_told_in_one_line(kind, tmp_path, tiny_checkpoint):
    path, content = tmp_path / "damaged.pt", DAMAGED[kind]
    path.write_bytes(content(tiny_checkpoint.read_bytes()) if callable(content) else content)
    with pytest.raises(ConfigurationError) as error:
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    message = str(error.value)
    assert "\n" not in message and message.startswith(f"checkpoint {path} ")
    assert "use another" in message.lower() and "weights_only" not in message
    # the reader itself, where no check of the archive comes first
    if kind not in ("no history", "options of another kind"):
        with open(str(path), "rb") as file, pytest.raises(ConfigurationError) as error:
            checkpoints.read_checkpoint(file, map_location="cpu")
        message = str(error.value)
        assert "\n" not in message and "weights_only" not in message
        assert message.startswith(f"checkpoint {path} cannot be read")


def test_a_folder_is_no_checkpoint(tmp_path, toy_data, run_generate):
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        run_generate(toy_data.bin, "--path", tmp_path)


def test_what_rank_0_sends_to_the_others_on_resuming_is_read(tiny_checkpoint):
    state = checkpoint_utils.load_checkpoint_to_cpu(str(tiny_checkpoint))
    tensors = []
    sent = io.BytesIO()
    torch.save(distributed_utils._split_tensors_from_obj(state, tensors), sent)
    sent.seek(0)
    read = distributed_utils.torch.load(sent, map_location="cpu")
    received = distributed_utils._put_tensors_in_obj(read, tensors)
    assert len(tensors) > 0
    assert str(received["cfg"]) == str(state["cfg"])
    assert list(received["model"]) == list(state["model"])
    assert all(torch.equal(received["model"][k], v) for k, v in state["model"].items())


def test_fused_copies_of_0_12_2_are_dropped(tmp_path, tiny_checkpoint):
    state = torch.load(str(tiny_checkpoint), map_location="cpu", weights_only=False)
    own = OrderedDict(checkpoint_utils.load_checkpoint_to_cpu(str(tiny_checkpoint))["model"])
    layer = "encoder.layers.0."
    projections = [own[layer + f"self_attn.{name}_proj.weight"] for name in "qkv"]
    state["model"][layer + "in_proj_weight"] = torch.cat(projections)
    state["model"][layer + "in_proj_bias"] = torch.zeros(len(state["model"]))
    for name in ("fc1", "fc2"):
        state["model"][layer + name + "_weight"] = own[layer + name + ".weight"]
        state["model"][layer + name + "_bias"] = own[layer + name + ".bias"]
    state["model"]["encoder.other.in_proj_weight"] = torch.ones(1)
    torch.save(state, str(tmp_path / "old.pt"))
    read = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "old.pt"))["model"]
    assert set(read) == set(own) | {"encoder.other.in_proj_weight"}


@pytest.mark.parametrize("asynchronously", [False, True])
def test_an_old_checkpoint_last_goes_when_the_new_one_is_written(
    asynchronously, tmp_path, monkeypatch
):
    """With --no-last-checkpoints, a rerun would resume from it."""
    last = tmp_path / "checkpoint_last.pt"
    last.touch()
    options = SimpleNamespace(
        no_last_checkpoints=True, write_checkpoints_asynchronously=asynchronously
    )
    trainer = SimpleNamespace(
        cfg=SimpleNamespace(checkpoint=options, dataset=SimpleNamespace(disable_validation=True)),
        task=None, checkpoint_suffix="", should_save_checkpoint_on_current_rank=True,
        state_dict=lambda: {"extra_state": {}},
    )  # fmt: skip
    monkeypatch.setattr(checkpoint_utils, "torch_persistent_save", lambda *args, **kwargs: None)
    Trainer.save_checkpoint(trainer, str(tmp_path / "checkpoint1.pt"), {})
    assert last.exists() == asynchronously
