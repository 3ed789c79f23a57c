"""Several processes on a machine without GPUs: real processes, one training.

One process that adds up the gradients of two batches (--update-freq 2) sees the batches that two
processes share, so every loss and every parameter must be equal, up to the order of additions.
"""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from fairseq.dataclass.configs import FairseqConfig
from fairseq.distributed import utils as distributed_utils
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.translation import TranslationTask
from omegaconf import OmegaConf

from fairseq_plugins.errors import STATE_SAVED, TERMINATED, ConfigurationError
from fairseq_plugins.graphs import captured_step
from tests.conftest import find_free_port, load, updates
from tests.tape import Tape
from tests.train.conftest import gpus

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="these processes are for machines without a GPU"
)

TRAIN = [sys.executable, "-W", "ignore", "-m", "fairseq_cli.train"]
TORCHRUN = [
    sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--nproc_per_node", "2",
    "--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0", "-m",
]  # fmt: skip

TORCHRUN_OF_TWO = [
    {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2} for rank in range(2)
]
FTC = "--arch transformer_ftc --encoder-blocks 1,1 --encoder-ffn switch --decoder-ffn switch"
ARCHITECTURES = {"transformer": [], "transformer_ftc": FTC.split()}


@pytest.fixture(scope="module")
def words(request, toy_data, train_args):
    """A command line of five batches an epoch: the third update has one batch for two processes."""
    return [
        toy_data.bin, "--user-dir", "fairseq_plugins", *train_args, *ARCHITECTURES[request.param],
        "--dropout", 0, "--optimizer", "sgd", "--lr", 0.5, "--momentum", 0.9, "--max-tokens", 4000,
        "--batch-size", 48, "--num-workers", 0, "--no-epoch-checkpoints",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def one_process(words, tmp_path_factory, run_train):
    """Output and parameters of one process after four updates."""
    folder = tmp_path_factory.mktemp("one")
    output = run_train(*words, "--update-freq", 2, "--max-update", 4, "--save-dir", folder).output
    return output, parameters(folder)


def parameters(folder, name="checkpoint_last.pt"):
    state = load(folder, name)
    assert updates(state) == 4
    return state["model"]


def run_together(words, tmp_path, environments, run, status=0):
    """`run` in processes with these variables, which exit with `status`; their outputs.

    They are forked from this process, which has imported fairseq already.
    """

    def work(rank, environment):
        os.environ.update({name: str(value) for name, value in environment.items()})
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a training in this process had its own
        (tmp_path / f"output.{rank}").write_text(run(*words).output)

    fork = multiprocessing.get_context("fork")
    port = {"MASTER_ADDR": "localhost", "MASTER_PORT": find_free_port()}
    processes = [
        fork.Process(target=work, args=(rank, {**environment, **port}))
        for rank, environment in enumerate(environments)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [status] * len(processes)
    outputs = [tmp_path / f"output.{rank}" for rank in range(len(processes))]
    return [path.read_text() for path in outputs if status == 0]


def losses(output, kind):
    """The losses logged for every update ("train_inner") or every validation ("valid")."""
    return [float(x) for x in re.findall(kind + r" \| .*?\bloss[= ]([\d.]+)", output)]


def assert_same_training(output, actual, one_process):
    expected_output, expected = one_process
    for kind, count in (("train_inner", 4), ("valid", 2)):
        assert len(losses(expected_output, kind)) == count
        assert losses(output, kind) == pytest.approx(losses(expected_output, kind), abs=0.0011)
    assert list(actual) == list(expected)
    for name in expected:
        torch.testing.assert_close(actual[name], expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("words", ["transformer_ftc"], indirect=True)
def test_srun_equals_one_process(words, one_process, tmp_path, run_train):
    words = [*words, "--save-dir", tmp_path, "--max-update", 4]
    slurm = [
        {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_STEP_NUM_TASKS": 2}
        for rank in range(2)
    ]
    first, second = run_together(words, tmp_path, slurm, run_train)
    assert losses(second, "train_inner") == []  # rank 1 is silent
    assert_same_training(first, parameters(tmp_path), one_process)


@pytest.mark.parametrize("words", ["transformer"], indirect=True)
@pytest.mark.parametrize("able", ["0 and 1", "0"])
def test_processes_that_replay_captured_steps_equal_one_without(
    words, one_process, tmp_path, run_train, monkeypatch, able
):
    """Either all of them replay, or none: they exchange gradients in different ways."""
    monkeypatch.setattr(
        captured_step, "graph_class", lambda device: Tape if os.environ["RANK"] in able else None
    )
    words = [*words, "--cuda-graphs", "--save-dir", tmp_path, "--max-update", 4]
    outputs = run_together(words, tmp_path, TORCHRUN_OF_TWO, run_train)
    assert ("replayed" in outputs[0]) == (able == "0 and 1")
    told = "steps are not captured (--cuda-graphs): rank 1: it needs a GPU"
    assert (told in outputs[0]) == (able == "0")
    assert_same_training(outputs[0], parameters(tmp_path), one_process)


@pytest.mark.parametrize("words", ["transformer_ftc"], indirect=True)
def test_a_process_with_fewer_batches_in_an_update(words, tmp_path, run_train):
    """Seven batches an epoch: in its last update one process has two and the other has one."""
    words = [*words, "--batch-size", 32, "--required-batch-size-multiple", 1]
    words += ["--max-update", 4, "--save-dir"]
    whole = run_train(*words, tmp_path / "one", "--update-freq", 4).output
    shared = tmp_path / "two"
    shared.mkdir()
    words += [shared, "--update-freq", 2]
    outputs = run_together(words, shared, TORCHRUN_OF_TWO, run_train)
    assert_same_training(outputs[0], parameters(shared), (whole, parameters(tmp_path / "one")))


@pytest.mark.parametrize("words", ["transformer_ftc"], indirect=True)
@pytest.mark.parametrize(
    "owner, name, call, done",
    [
        (FairseqTask, "train_step", 2, 2),
        (FairseqTask, "train_step", 3, 3),  # the last of epoch 1, after which a validation is due
        (TranslationTask, "valid_step", 1, 3),
    ],
)
def test_one_process_that_gets_sigterm_stops_all(
    words, one_process, tmp_path, run_train, monkeypatch, owner, name, call, done
):
    """They save after the same update, and go on as if they had not been stopped."""
    original, calls = getattr(owner, name), []

    def with_a_signal(*args, **kwargs):
        calls.append(0)
        if len(calls) == call and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*args, **kwargs)

    words = [*words, "--save-dir", tmp_path, "--max-update", 4, "--log-format", "simple"]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, with_a_signal)
        run_together(words, tmp_path, TORCHRUN_OF_TWO, run_train, TERMINATED)
    assert updates(load(tmp_path)) == done
    output = run_together(words, tmp_path, TORCHRUN_OF_TWO, run_train)[0]
    assert len(losses(output, "valid")) == 2  # after epoch 1 and at the end, none left out
    assert losses(output, "valid") == pytest.approx(losses(one_process[0], "valid"), abs=0.0011)
    actual, expected = parameters(tmp_path), one_process[1]
    for parameter in expected:
        torch.testing.assert_close(actual[parameter], expected[parameter], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("words, start", [
    ("transformer", TRAIN), ("transformer_ftc", [*TORCHRUN, "fairseq_cli.train"]),
], indirect=["words"])  # fmt: skip
def test_real_processes_equal_one_and_save_when_their_parent_gets_sigterm(
    words, start, one_process, tmp_path, run_train
):
    """With torchrun after resuming. fairseq-train exits with its processes' status."""
    alone, log = start is TRAIN, tmp_path / "log"
    words = [*words, "--save-dir", tmp_path, "--save-interval-updates", 4, "--max-update"]
    output = "" if alone else run_together([*words, 2], tmp_path, TORCHRUN_OF_TWO, run_train)[0]
    words += [10**6, *(["--distributed-world-size", 2] if alone else [])]
    with open(log, "w") as file:
        process = subprocess.Popen(
            [str(word) for word in [*start, *words]],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    while "num_updates=5" not in log.read_text():
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    process.terminate()
    status = process.wait()
    printed = log.read_text()
    assert status == TERMINATED if alone else status != 0, printed
    assert STATE_SAVED in printed
    saved = re.findall(r"Saved checkpoint .* @ (\d+) updates", printed)
    assert updates(load(tmp_path)) == int(saved[-1]) >= 5

    assert alone or "(epoch 1 @ 2 updates)" in printed
    # the first of them validates once more, before it stops after two updates
    printed = re.sub(r"valid \| .*", "", output) + printed.split("num_updates=5")[0]
    printed = printed[: printed.rindex("train_inner")]
    saved = parameters(tmp_path, "checkpoint_2_4.pt")
    assert_same_training(printed, saved, one_process)


def test_validation_by_two_processes(toy_data, tiny_checkpoint, tmp_path, run_validate):
    """Two batches: fairseq-validate cannot leave a process without one."""
    words = [
        toy_data.bin, "--path", tiny_checkpoint, "--batch-size", 16, "--no-progress-bar",
        "--log-format", "simple",
    ]  # fmt: skip
    (expected,) = losses(run_validate(*words).output, "valid")
    outputs = run_together(words, tmp_path, TORCHRUN_OF_TWO, run_validate)
    found = losses("".join(outputs), "valid")
    assert found and found == pytest.approx([expected] * len(found), abs=0.0011)


@pytest.mark.parametrize(
    "environment",
    [{"RANK": "1", "WORLD_SIZE": "2"}, {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}],
    ids=["torchrun", "srun"],
)
def test_training_alone_beside_others_is_refused(
    environment, toy_data, train_args, tmp_path, run_train, monkeypatch
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match="process 1 of 2, but each would train separately"):
        run_train(toy_data.bin, *train_args, "--save-dir", tmp_path, "--max-update", 1)
    assert not list(tmp_path.glob("*.pt"))


def launched_config(monkeypatch, meeting_point=None, **environment):
    """What becomes of fairseq's defaults in a process with these variables."""
    for name, value in environment.items():
        monkeypatch.setenv(name, str(value))
    cfg = OmegaConf.structured(FairseqConfig(model=None))
    distributed = cfg.distributed_training
    distributed.distributed_init_method = meeting_point
    distributed.distributed_world_size = 1  # by default the number of GPUs
    seen = []
    monkeypatch.setattr(distributed_utils, "distributed_main", lambda *args: seen.append(args[0]))
    distributed_utils.call_main(cfg, main=None)
    assert seen == [distributed.device_id]
    return distributed


@pytest.mark.parametrize("count, local", [(1, 0), (2, 1)])
def test_a_process_takes_the_gpu_of_its_position_on_its_node(monkeypatch, count, local):
    gpus(monkeypatch, count)
    torchrun = {"RANK": 3, "LOCAL_RANK": local, "WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": count}
    distributed = launched_config(monkeypatch, **torchrun, MASTER_ADDR="a", MASTER_PORT=1)
    assert (distributed.distributed_rank, distributed.distributed_world_size) == (3, 4)
    assert (distributed.device_id, distributed.distributed_init_method) == (local, "env://")
    assert (distributed.distributed_backend, distributed.ddp_backend) == ("nccl", "pytorch_ddp")


@pytest.mark.parametrize("status", [TERMINATED, 1])
def test_processes_that_fairseq_starts_for_gpus_end_with_their_status(monkeypatch, status):
    """Those that saved their state make the command exit like one training that did."""
    gpus(monkeypatch, 2)

    def spawn(fn, args, nprocs, join):
        assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, before)
        raise exited("", 0, 0, exit_code=status)

    monkeypatch.setattr(torch.multiprocessing, "spawn", spawn)
    before = signal.getsignal(signal.SIGTERM)
    exited = torch.multiprocessing.ProcessExitedException
    with pytest.raises(SystemExit if status == TERMINATED else exited) as error:
        launched_config(monkeypatch, "tcp://localhost:1")
    assert getattr(error.value, "code", status) == status
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_killed_process_is_named_and_not_what_another_says_of_it(monkeypatch):
    gpus(monkeypatch, 2)

    class Context:
        processes = [SimpleNamespace(exitcode=1), SimpleNamespace(exitcode=-signal.SIGKILL)]

        def join(self):
            raise torch.multiprocessing.ProcessRaisedException("gloo: closed by peer", 0, 12)

    monkeypatch.setattr(torch.multiprocessing, "spawn", lambda *args, **kwargs: Context())
    with pytest.raises(ConfigurationError, match="^process 1 of 2 was killed by SIGKILL, probably"):
        launched_config(monkeypatch, "tcp://localhost:1")
    Context.processes[1].exitcode = -signal.SIGTERM  # as torch ends the others
    with pytest.raises(torch.multiprocessing.ProcessRaisedException, match="gloo"):
        launched_config(monkeypatch, "tcp://localhost:1")


def test_more_processes_than_gpus_are_refused(monkeypatch):
    gpus(monkeypatch, 1)
    torchrun = {"RANK": 1, "LOCAL_RANK": 1, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    with pytest.raises(ConfigurationError, match=r"2 processes .* 1 GPU.*--nproc_per_node 1"):
        launched_config(monkeypatch, **torchrun, MASTER_ADDR="a", MASTER_PORT=1)
