"""torch.load with fairseq's types: what it reads, and what it refuses."""

import argparse
import io
import os
import pickle
import re
import subprocess
import sys
import tarfile
import zipfile
from collections import OrderedDict, defaultdict

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary

from fairseq_plugins import compat
from fairseq_plugins.compat import unpickling
from tests.conftest import ROOT

compat.apply()


load = unpickling.load


class Call:
    """Pickles as a call of `function`, the way a malicious checkpoint does."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def saved(value, **options):
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


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


@pytest.mark.parametrize("zipped", [True, False])
def test_types_of_fairseq_checkpoints_are_read(zipped):
    state = {
        "args": argparse.Namespace(arch="transformer", lr=[0.1]),
        "model": OrderedDict(weight=torch.ones(2), half=torch.ones(2).half()),
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "optimizer_history": [{"lr_scheduler_state": {}, "num_updates": 3, "optimizer_name": ""}],
        "extra_state": {"train_iterator": {"epoch": 1}, "meters": numpy_values()},
        "last_optimizer_state": {"state": {0: {"step": 3}}, "cache": defaultdict(dict)},
        "others": (None, True, 2**70, b"bytes", {1, 2}, torch.float16, torch.Size([1])),
    }
    read = load(saved(state, _use_new_zipfile_serialization=zipped))
    assert read["args"] == state["args"] and read["others"] == state["others"]
    assert read["last_optimizer_state"] == state["last_optimizer_state"]
    assert torch.equal(read["model"]["weight"], torch.ones(2))
    assert read["model"]["half"].dtype == torch.float16
    assert torch.equal(read["parameter"], torch.ones(3))
    assert_same_numpy_values(read["extra_state"]["meters"])


def test_a_dictionary_in_the_state_of_a_task_is_read():
    """As fairseq's tasks of audio store it."""
    dictionary = Dictionary()
    dictionary.add_symbol("word")
    read = load(saved({"task_state": {"target_dictionary": dictionary}}))
    (found,) = read["task_state"].values()
    assert type(found) is Dictionary and vars(found) == vars(dictionary)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    "call",
    [
        Call(os.system, "true"),
        Call(eval, "1"),
        Call(getattr, "text", "upper"),
        Call(torch.storage._load_from_bytes, saved(1).getvalue()),
        Call(torch.load, "x"),
        Call(__import__, "os"),
    ],
    ids=lambda call: call.function.__name__,
)
def test_functions_are_refused(call, zipped):
    with pytest.raises(pickle.UnpicklingError, match="asks for"):
        load(saved({"model": call}, _use_new_zipfile_serialization=zipped))


def with_program(change, value=None):
    """What torch.save writes of `value`, its pickle replaced by `change` of it."""
    renamed = io.BytesIO()
    with zipfile.ZipFile(saved(value)) as source, zipfile.ZipFile(renamed, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, change(content) if name.endswith("data.pkl") else content)
    renamed.seek(0)
    return renamed


def test_state_of_a_class_is_not_set():
    """`Namespace.planted = 1` for all of Python, with nothing but allowed types."""
    program = b"\x80\x02cargparse\nNamespace\n(N}X\x07\0\0\0plantedK\x01sttb."  # BUILD
    program = program.replace(b"sttb", b"stb")
    with pytest.raises(pickle.UnpicklingError, match="the state of"):
        load(with_program(lambda _: program))
    assert not hasattr(argparse.Namespace, "planted")
    pickle.loads(program)  # the program does it where nothing stops it
    assert argparse.Namespace.planted == 1
    del argparse.Namespace.planted


@pytest.mark.parametrize("module", ["numpy.core", "numpy._core"])
def test_numpy_values_written_by_numpy_1_and_2_are_read(module):
    def rename(content):
        name = module.encode() + b".multiarray"
        content, count = re.subn(rb"numpy\.(_core|core)\.multiarray", name, content)
        assert count > 0
        return content

    assert_same_numpy_values(load(with_program(rename, numpy_values())))


def test_programs_of_torchscript_are_refused():
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), file)
    file.seek(0)
    with pytest.raises(ValueError, match="TorchScript"):
        load(file)


def test_tar_archives_are_refused(tmp_path):
    with tarfile.open(str(tmp_path / "old.pt"), "w", format=tarfile.PAX_FORMAT) as archive:
        for name in ("storages", "tensors", "pickle"):
            archive.addfile(tarfile.TarInfo(name))
    with open(str(tmp_path / "old.pt"), "rb") as file:
        with pytest.raises(ValueError, match="torch.save did not"):
            load(file)


def test_hostile_checkpoints_end_in_one_line():
    """Allowed names, called by REDUCE, NEWOBJ and BUILD with any arguments, in another process."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.compat.hostile", "0", "300"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr  # negative: a signal ended it
    assert int(re.search(r"; (\d+) files", ran.stdout).group(1)) > 15, ran.stdout


@pytest.mark.parametrize(
    "size, stride, offset, inside",
    [
        ((4,), (1,), 0, True), ((4,), (1,), 1, False), ((2, 2), (2, 1), 0, True),
        ((2, 2), (3, 1), 0, False), ((9, 4), (0, 1), 0, True), ((0,), (9,), 9, True),
        ((4,), (-1,), 3, False), ((1,), (1,), -1, False), ((2**62, 2**62), (0, 0), 0, False),
        ((4,), (1, 1), 0, False), ((True,), (1,), 0, False), ((1.0,), (1,), 0, False),
    ],
)  # fmt: skip
def test_a_tensor_lies_inside_its_storage(size, stride, offset, inside):
    storage = unpickling.Storage(torch.zeros(16).untyped_storage()[:16], torch.float32, 4)
    if inside:
        assert unpickling.build_tensor(storage, offset, size, stride).shape == size
    else:
        with pytest.raises(pickle.UnpicklingError, match="it builds a tensor from"):
            unpickling.build_tensor(storage, offset, size, stride)


def test_a_storage_is_as_long_as_its_record():
    """torch.load takes the length from the pickle, and reads beyond the record."""
    whole = saved({"model": torch.ones(4)})
    with zipfile.ZipFile(whole) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("data/0"))
        records = {info: archive.read(info) for info in archive.namelist()}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for info, content in records.items():
            archive.writestr(info, content[:8] if info == name else content)
    with pytest.raises(pickle.UnpicklingError, match=r"it builds a storage from \('0', 4\)"):
        load(file)
