"""What a training asks of the machine, in one process; tests/test_distributed.py has several."""

import argparse
import pickle
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from fairseq.distributed import utils as distributed_utils

from fairseq_plugins import compat
from fairseq_plugins.compat.distributed import Launch, _join
from fairseq_plugins.system import cpu

compat.apply()


def test_amp_without_a_gpu_says_that_it_does_nothing(toy_data, tmp_path, run_train, train_args):
    words = [toy_data.bin, *train_args, "--cpu", "--max-update", 2, "--no-save"]
    plain = run_train(*words, "--save-dir", tmp_path).output
    amp = run_train(*words, "--save-dir", tmp_path, "--amp").output
    assert "--amp has no effect without a GPU" in amp
    assert "--amp" not in plain
    losses = [re.findall(r"train_inner .*? loss=([\d.]+)", text) for text in (plain, amp)]
    assert losses[0] == losses[1] and len(losses[0]) == 2


@pytest.mark.parametrize("supported", [True, False])
def test_one_line_says_where_bf16_is_emulated(
    supported, toy_data, tmp_path, run_train, train_args, monkeypatch
):
    monkeypatch.setattr(cpu, "has_bf16", lambda: supported)
    words = [toy_data.bin, *train_args, "--cpu", "--bf16", "--max-update", 2, "--no-save"]
    output = run_train(*words, "--save-dir", tmp_path).output
    assert output.count("--bf16 is slow here") == (0 if supported else 1)
    assert "done training" in output


def test_process_groups_end_with_the_training(monkeypatch, tmp_path):
    """Without this, gloo's threads sometimes abort the interpreter at its exit."""
    from torch import distributed as dist

    def join(cfg):
        store = "file://{}".format(tmp_path / "store")
        dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
        return 0

    monkeypatch.setattr(distributed_utils, "distributed_init", join)
    monkeypatch.setattr(distributed_utils, "get_global_group", lambda: None)
    cfg = argparse.Namespace(
        distributed_training=argparse.Namespace(device_id=0, distributed_rank=0),
        common=argparse.Namespace(cpu=True, tpu=False),
    )
    during = []
    distributed_utils.distributed_main(0, lambda cfg: during.append(dist.is_initialized()), cfg, {})
    assert during == [True] and not dist.is_initialized()


@pytest.mark.parametrize("init, spawns", [("tcp://a:1", True), ("tcp://a:1", False), (None, True)])
def test_srun_with_a_process_for_each_machine_leaves_fairseq_its_gpus(monkeypatch, init, spawns):
    """16 GPUs on two machines, named on the command line: fairseq starts 8 processes on each."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    given = {"distributed_world_size": 16, "distributed_rank": 8, "device_id": 0}
    options = SimpleNamespace(
        **given, distributed_init_method=init, distributed_port=-1,
        distributed_no_spawn=not spawns,
    )  # fmt: skip
    _join(Launch(rank=1, local_rank=0, world_size=2), options, on_cpu=False)
    found = {name: getattr(options, name) for name in given}
    joined = {"distributed_world_size": 2, "distributed_rank": 1, "device_id": 0}
    assert found == (given if spawns else joined)


def test_a_spawned_process_finds_the_repairs():
    """It unpickles what fairseq gives it to run, before it reads --user-dir."""
    given = pickle.dumps(distributed_utils.distributed_main)
    code = f"import pickle; main = pickle.loads({given!r}); from fairseq.distributed import utils; "
    code += "assert main is utils.distributed_main; print(main)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "main_of_a_process" in done.stdout


def test_one_process_of_torchrun_trains_on_a_cpu(
    toy_data, train_args, tmp_path, run_train, monkeypatch
):
    variables = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "localhost"}
    for name, value in {**variables, "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    words = ["--cpu", "--max-update", 1, "--save-dir", tmp_path]
    assert "num_updates 1" in run_train(toy_data.bin, *train_args, *words).output
