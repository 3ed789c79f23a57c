"""Each item of fairseq_plugins/compat.py, through fairseq's own functions and commands."""

import argparse
import io
import os
import pickle
import re
import shutil
import subprocess
import sys
import zipfile
from collections import OrderedDict, defaultdict

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.data import data_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.trainer import Trainer

from fairseq_plugins import compat

compat.apply()

safe_loading = pytest.mark.skipif(
    not hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"),
    reason="this torch unpickles anything: checkpoints are refused from torch 2.6 on",
)


def test_applying_twice_changes_nothing_and_prints_nothing(capsys):
    places = [
        (checkpoint_utils, "load_checkpoint_to_cpu"),
        (PathManager, "copy"),
        (data_utils, "batch_by_size"),
        (options, "parse_args_and_arch"),
        (distributed_utils, "call_main"),
        (distributed_utils, "all_gather_list"),
        (Trainer, "__init__"),
    ]
    before = [getattr(owner, name) for owner, name in places]
    assert all(hasattr(function, "mended_by") for function in before)
    compat.apply()
    assert [getattr(owner, name) for owner, name in places] == before
    assert capsys.readouterr() == ("", "")


class Call:
    """Pickles as a call of `function`, the way a malicious checkpoint does."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def planted(checkpoint, folder, call):
    """A copy of `checkpoint` that holds `call`."""
    state = torch.load(str(checkpoint), map_location="cpu")
    state["extra_state"]["planted"] = call
    path = folder / "planted.pt"
    torch.save(state, str(path))
    return path


def touch_with(how, path):
    if how == "os.system":
        return Call(os.system, "touch {}".format(path))
    if how == "subprocess":
        return Call(subprocess.check_call, ["touch", str(path)])
    return Call(eval, "open({!r}, 'w').close()".format(str(path)))


@safe_loading
@pytest.mark.parametrize("how", ["os.system", "subprocess", "eval"])
def test_planted_call_is_refused_and_not_run(
    how, tmp_path, tiny_checkpoint, toy_data, run_generate
):
    touched = tmp_path / "touched"
    path = planted(tiny_checkpoint, tmp_path, touch_with(how, touched))
    with pytest.raises(pickle.UnpicklingError) as error:
        run_generate(toy_data.bin, "--path", path)
    assert not touched.exists()
    message = str(error.value)
    assert "\n" not in message and str(path) in message and "may be malicious" in message
    assert {"os.system": "system", "subprocess": "check_call", "eval": "eval"}[how] in message
    # the same file does run its call where nothing stops it
    torch.load(str(path), map_location="cpu", weights_only=False)
    assert touched.exists()


@safe_loading
def test_training_does_not_resume_from_a_planted_call(
    tmp_path, tiny_checkpoint, toy_data, run_train, train_args
):
    touched = tmp_path / "touched"
    planted(tiny_checkpoint, tmp_path, touch_with("os.system", touched)).rename(
        tmp_path / "checkpoint_last.pt"
    )
    with pytest.raises(pickle.UnpicklingError, match="may be malicious"):
        run_train(toy_data.bin, *train_args, "--save-dir", tmp_path, "--max-update", 8)
    assert not touched.exists()


def numpy_values():
    return {
        "scalars": [np.float64(0.5), np.float32(0.5), np.int64(3), np.bool_(True)],
        "array": np.arange(6, dtype=np.int64).reshape(2, 3),
        "floats": np.linspace(0, 1, 5),
    }


def assert_same_numpy_values(values):
    expected = numpy_values()
    assert values["scalars"] == expected["scalars"]
    for name in ("array", "floats"):
        assert values[name].dtype == expected[name].dtype
        assert np.array_equal(values[name], expected[name])


def test_types_of_fairseq_checkpoints_are_read(tmp_path):
    state = {
        "args": argparse.Namespace(arch="transformer", lr=[0.1]),
        "model": OrderedDict(weight=torch.ones(2)),
        "optimizer_history": [{"lr_scheduler_state": {}, "num_updates": 3, "optimizer_name": ""}],
        "extra_state": {"train_iterator": {"epoch": 1}, "meters": numpy_values()},
        "last_optimizer_state": {"state": {0: {"step": 3}}, "cache": defaultdict(dict)},
    }
    torch.save(state, str(tmp_path / "checkpoint.pt"))
    with open(str(tmp_path / "checkpoint.pt"), "rb") as file:
        read = torch.load(file, map_location="cpu")
    assert read["args"].lr == [0.1]
    assert read["last_optimizer_state"] == state["last_optimizer_state"]
    assert_same_numpy_values(read["extra_state"]["meters"])


@pytest.mark.parametrize("module", ["numpy.core", "numpy._core"])
def test_numpy_values_written_by_numpy_1_and_2_are_read(module, tmp_path):
    if module == "numpy._core" and int(np.__version__.split(".")[0]) < 2:
        pytest.skip("numpy 1 has no numpy._core")
    written = io.BytesIO()
    torch.save(numpy_values(), written)
    renamed = tmp_path / "renamed.pt"
    with zipfile.ZipFile(written) as source, zipfile.ZipFile(str(renamed), "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("data.pkl"):
                content, count = re.subn(
                    rb"numpy\.(_core|core)\.multiarray", module.encode() + b".multiarray", content
                )
                assert count > 0
            target.writestr(name, content)
    assert_same_numpy_values(torch.load(str(renamed), map_location="cpu"))


def test_what_rank_0_sends_to_the_others_on_resuming_is_read(tiny_checkpoint):
    state = checkpoint_utils.load_checkpoint_to_cpu(str(tiny_checkpoint))
    tensors = []
    sent = io.BytesIO()
    torch.save(distributed_utils._split_tensors_from_obj(state, tensors), sent)
    sent.seek(0)
    received = distributed_utils._put_tensors_in_obj(torch.load(sent), tensors)
    assert len(tensors) > 0
    assert str(received["cfg"]) == str(state["cfg"])
    assert list(received["model"]) == list(state["model"])
    assert all(torch.equal(received["model"][k], v) for k, v in state["model"].items())


def test_fused_copies_of_0_12_2_are_dropped(tmp_path, tiny_checkpoint):
    state = torch.load(str(tiny_checkpoint), map_location="cpu")
    own = OrderedDict(checkpoint_utils.load_checkpoint_to_cpu(str(tiny_checkpoint))["model"])
    layer = "encoder.layers.0."
    projections = [own[layer + "self_attn.{}_proj.weight".format(name)] for name in "qkv"]
    state["model"][layer + "in_proj_weight"] = torch.cat(projections)
    state["model"][layer + "in_proj_bias"] = torch.zeros(len(state["model"]))
    for name in ("fc1", "fc2"):
        state["model"][layer + name + "_weight"] = own[layer + name + ".weight"]
        state["model"][layer + name + "_bias"] = own[layer + name + ".bias"]
    state["model"]["encoder.other.in_proj_weight"] = torch.ones(1)
    torch.save(state, str(tmp_path / "old.pt"))
    read = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "old.pt"))["model"]
    assert set(read) == set(own) | {"encoder.other.in_proj_weight"}


def test_interrupted_copy_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    source, target = tmp_path / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"
    source.write_bytes(b"new" * 1000)
    target.write_bytes(b"old")

    def copy_half(src, dst, **kwargs):
        with open(dst, "wb") as file:
            file.write(open(src, "rb").read()[:1000])
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(shutil, "copyfile", copy_half)
        with pytest.raises(KeyboardInterrupt):
            PathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_bytes() == b"old"
    assert PathManager.copy(str(source), str(target), overwrite=True)
    assert target.read_bytes() == source.read_bytes()
    assert sorted(os.listdir(str(tmp_path))) == ["checkpoint1.pt", "checkpoint_last.pt"]
