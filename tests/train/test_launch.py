"""Trainings by recipe: locking, resuming and failures."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from fairseq_plugins import files
from fairseq_plugins.errors import TERMINATED, ConfigurationError
from fairseq_plugins.train import launch, progress
from fairseq_plugins.train.run_folder import Run
from tests.conftest import ROOT, TINY_TRANSFORMER, find_free_port, load, updates
from tests.here import rehearse, train
from tests.train.conftest import BY_LOSS, plan, value

TINY = [
    *TINY_TRANSFORMER[2:],  # without --arch
    *"--encoder-blocks 1,1 --dropout 0 --log-interval 1 --no-epoch-checkpoints".split(),
    *("--num-workers", "0"),
]


@pytest.fixture
def by_loss(tmp_path):
    """The recipes choose by BLEU, whose beam search makes these short trainings long."""
    path = tmp_path / "by_loss.yaml"
    path.write_text(BY_LOSS)
    return ["--settings", str(path)]


def start(data, save_dir, *words, environment=None):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    environment.update(PYTHONWARNINGS="ignore", PYTHONPATH=str(ROOT))
    command = [sys.executable, "-m", "fairseq_plugins", "train", "transformer_ftc", data]
    command += ["--save-dir", save_dir, "--cpu"]
    return subprocess.Popen(
        [str(word) for word in (*command, *words)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "limits, told",
    [
        (["--max-update", 50], "for 50 updates, .* per update, measured over 4; an epoch has"),
        (["--max-epoch", 3], "time: about .* for [1-9].* updates, without validation"),
        (["--max-update", 2], "time: not estimated, as training ends within 3 updates"),
        (["--max-update", 0], "time: not estimated, as no option sets the number"),
    ],
)
def test_a_dry_run_measures_and_writes_nothing(
    toy_data, tmp_path, by_loss, monkeypatch, capsys, limits, told
):
    monkeypatch.setattr(progress, "UPDATES", 7)
    run = tmp_path / "run"
    words = [*by_loss, "--", *TINY, "--max-tokens", 800, "--log-interval", 9, *limits]
    words += ["--log-file", run]
    todo = plan(toy_data.bin, "--save-dir", run, "--cpu", *words)
    rehearse(todo)
    *summary, parameters, time_needed, command = capsys.readouterr().out.splitlines()
    assert summary == todo.summary and re.fullmatch(r"parameters: \d,\d+", parameters)
    assert re.search(told, time_needed)
    assert command == "command: " + shlex.join(todo.command)
    assert not run.exists()


@pytest.fixture
def trained(toy_data, tmp_path, monkeypatch):
    """trained(words) resumes a finished training of 4 updates; what fairseq-train was given."""
    save_dir, commands = tmp_path / "run", []
    words = ["--", *TINY, "--max-tokens", 800, "--warmup-updates", 2]

    def run(todo, words, log):
        commands.append(words)
        (save_dir / "checkpoint_last.pt").touch()

    monkeypatch.setattr(launch, "_run", run)

    def resume(*more, data=toy_data.bin):
        said = []
        todo = plan(data, "--save-dir", save_dir, "--cpu", *words, *more)
        launch.train(todo, said.append)
        return "\n".join(said)

    resume("--max-update", 4)
    resume.commands, resume.save_dir = commands, save_dir
    resume.longer = plan(toy_data.bin, "--save-dir", save_dir, "--cpu", *words, "--max-update", 9)
    return resume


def test_a_finished_training_is_kept(trained):
    for most in ("4", "3"):
        said = trained("--max-update", most, "--log-interval", "7")
        assert "kept: training is finished" in said
    assert len(trained.commands) == 1
    assert "kept" not in trained("--max-update", "5") and len(trained.commands) == 2
    (trained.save_dir / "checkpoint_last.pt").unlink()
    assert "kept" not in trained("--max-update", "5") and len(trained.commands) == 3


def test_a_finished_training_that_goes_on_is_not_finished(trained, monkeypatch):
    """Broken off, it holds more updates than the shorter command asked for: nothing is kept."""
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(launch, "_run", mock.Mock(side_effect=SystemExit(TERMINATED)))
        launch.train(trained.longer, lambda line: None)
    assert "kept" not in trained("--max-update", "4")
    assert "kept" in trained("--max-update", "4")


@pytest.mark.parametrize("place", ["other/checkpoint_best.pt", "pretrained.pt"])
def test_a_rerun_resumes_and_does_not_read_where_it_began_again(trained, place):
    """fairseq reads --restore-file of another folder, or of the current one, at every start."""
    begin = ["--restore-file", place, "--reset-optimizer"]
    shutil.rmtree(str(trained.save_dir))
    for most in ("5", "6"):
        trained("--max-update", most, *begin)
    first, again = trained.commands[-2:]
    assert value(first, "--restore-file") == begin[1] and "--reset-optimizer" in first
    assert value(again, "--restore-file") == "checkpoint_last.pt"
    assert "--reset-optimizer" not in again
    # an earlier checkpoint of the folder itself is a wish to go back
    back = ["--restore-file", str(trained.save_dir / "checkpoint1.pt"), "--reset-meters"]
    trained("--max-update", "7", *back)
    assert value(trained.commands[-1], "--restore-file") == back[1]
    assert "--reset-meters" in trained.commands[-1]


def test_a_folder_holds_one_training(trained, toy_data, tmp_path):
    for others, message in (
        (["--lr", "1"], r"other settings \(--lr was \[0.0005\], is \[1.0\]\)"),
        (["--update-freq", "4"], "--max-tokens x --update-freq was 800, is 3200"),
        (["--quantization-config-path", "x"], "--quantization-config-path was None, is x"),
        (["--seed", "2"], "--seed was 1, is 2"),
        (["--lr", "1", "--seed", "2"], "1 more"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            trained("--max-update", "6", *others)
    other = Path(shutil.copytree(str(toy_data.bin), str(tmp_path / "other")))
    with open(other / "dict.src.txt", "a") as dictionary:
        dictionary.write("more 1\n")
    with pytest.raises(ConfigurationError, match="a training with other data"):
        trained(data=other)
    other = Path(shutil.copytree(str(toy_data.bin), str(tmp_path / "tokens")))
    content = bytearray((other / "train.src-tgt.tgt.bin").read_bytes())
    content[0] ^= 1  # as many tokens, of another word
    (other / "train.src-tgt.tgt.bin").write_bytes(content)
    with pytest.raises(ConfigurationError, match="a training with other data"):
        trained(data=other)
    # how a batch is shared, and what is validated, may change
    said = trained("--max-update", "6", "--max-tokens", "400", "--update-freq", "2", "--eval-bleu")
    assert "earlier updates were 800 tokens x 1 process(es) x update-freq 1" in said
    assert "some sentences twice" in said
    (trained.save_dir / "settings.json").unlink()
    with pytest.raises(ConfigurationError, match="checkpoints but no settings of a recipe"):
        trained("--max-update", "6")


def test_a_folder_can_be_moved_with_the_checkpoint_that_it_began_with(toy_data, tmp_path):
    def begun(folder, at):
        return plan(toy_data.bin, "--save-dir", folder, "--", "--finetune-from-model", at).settings

    here, there = tmp_path / "a" / "run", tmp_path / "b" / "run"
    name = "first/checkpoint_best.pt"
    assert begun(here, here / name)["finetune_from_model"] == name
    there.mkdir(parents=True)
    (there / "checkpoint_last.pt").touch()
    Run(there).store(begun(here, here / name))
    Run(there).check_same(begun(there, there / name))
    for other in (tmp_path / "checkpoint_best.pt", there / "checkpoint_best.pt"):
        with pytest.raises(ConfigurationError, match="--finetune-from-model was"):
            Run(there).check_same(begun(there, other))


def test_a_schedule_that_ends_with_the_training_has_one_length(trained):
    words = ["--lr-scheduler", "cosine", "--max-update"]
    shutil.rmtree(str(trained.save_dir))
    trained(*words, "4")
    assert "finished; its learning-rate schedule has ended" in trained(*words, "4")
    with pytest.raises(ConfigurationError, match="--max-update was 4, is 6"):
        trained(*words, "6")
    shutil.rmtree(str(trained.save_dir))
    trained.commands.clear()
    for length in ("4", "6"):
        trained(*words, length, "--lr-period-updates", "9")
    assert len(trained.commands) == 2


@pytest.mark.parametrize("content", ["", '{"lr": [0.0', "[1]", '"x"'])
def test_damaged_files_of_a_folder(trained, content):
    (trained.save_dir / "settings.json").write_text(content)
    with pytest.raises(ConfigurationError, match="settings.json is damaged, .* restore it, or"):
        trained("--max-update", "4")


CLOSED = "Connection closed by peer"


@pytest.mark.parametrize(
    "failures, expected",
    [
        ({0: (1, "ValueError: a"), 1: (1, "OSError: b")}, "ValueError: a"),
        ({0: (1, "ConfigurationError: --lr 1: no")}, "--lr 1: no"),
        ({0: (1, "fairseq_plugins.compat.data_files.MissingData: no x")}, "no x"),
        ({0: (1, "RuntimeError: a\nmore\nlast")}, "last"),
        ({0: (1, f"RuntimeError: [gloo/x] {CLOSED}"), 1: (1, "OSError: b")}, "OSError: b"),
        ({0: (1, "RuntimeError: Connection reset by peer")}, "RuntimeError: Connection reset"),
        (
            {0: (1, f"RuntimeError: {CLOSED}"), 1: (-9, "Signal 9")},
            "process 1 was killed by SIGKILL",
        ),
        ({0: (1, "ValueError: a"), 1: (-15, "Signal 15 received")}, "ValueError: a"),
    ],
)
def test_why_several_processes_failed(failures, expected):
    """As torchrun tells; most processes only lose another one."""
    found = {
        rank: SimpleNamespace(exitcode=code, message={"message": message}, timestamp=rank)
        for rank, (code, message) in failures.items()
    }
    assert launch._first_failure(found).startswith(expected)


def test_failure_says_why_and_the_folder_can_be_used_again(toy_data, tmp_path):
    words = ["--save-dir", tmp_path, "--cpu", "--", *TINY, "--max-update", 1]
    todo = plan(toy_data.bin, *words, "--encoder-attention-heads", 3)
    message = "^transformer_ftc: training failed: --encoder-attention-heads 3 does not divide"
    with pytest.raises(ConfigurationError, match=message) as error:
        train(todo, lambda line: None)
    log = tmp_path / "train.log"
    assert str(error.value).endswith(f"; its log is {log}")
    assert "\n" not in str(error.value)
    # fairseq-train ends with that line
    assert log.read_text().splitlines()[-1].startswith("error: --encoder-attention-heads 3")
    assert "Traceback" not in log.read_text()
    # nothing was trained: other settings may
    Run(tmp_path).check_same(plan(toy_data.bin, *words).settings)


@pytest.mark.slow
def test_one_training_at_a_time_which_saves_when_it_is_terminated(toy_data, tmp_path, by_loss):
    """As a cluster or `timeout` ends it: nothing since the last checkpoint is lost."""
    words = [*by_loss, "--", *TINY, "--max-update", 100000, "--save-interval", 100000]
    words += ["--validate-interval", 100000]
    process = start(toy_data.bin, tmp_path, *words)
    log = tmp_path / "train.log"
    while not (log.exists() and "num_updates=6," in log.read_text()):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    if sys.platform == "linux":  # what starts a training imports neither torch nor fairseq
        assert "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text()
    with pytest.raises(ConfigurationError, match="another training is running"):
        with files.alone_in(tmp_path, "training", patience=0):
            pass
    assert not (tmp_path / "checkpoint_last.pt").exists()
    process.terminate()
    output, _ = process.communicate(timeout=1200)
    assert process.returncode == 128 + signal.SIGTERM and output.endswith("stopped\n"), output
    assert updates(load(tmp_path)) >= 6
    with files.alone_in(tmp_path, "training", patience=1200):
        pass  # the training held the lock as long as it lived


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_a_killed_process_is_named(toy_data, tmp_path, by_loss):
    """As the kernel kills one when memory is short; torchrun ends the other."""
    words = ["--processes", 2, *by_loss, "--", *TINY, "--max-tokens", 400, "--max-update", 100000]
    process = start(toy_data.bin, tmp_path, *words)
    log = tmp_path / "train.log"
    while not (log.exists() and "num_updates=3," in log.read_text()):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)

    _, _, *ranks = family(process.pid)  # the command, the training, and its processes
    assert len(ranks) == 2
    os.kill(ranks[1], signal.SIGKILL)
    output, _ = process.communicate(timeout=1200)
    killed = "process 1 was killed by SIGKILL, probably for lack of memory; its log is"
    assert process.returncode == 1 and killed in output.splitlines()[-1], output
    assert "Traceback" not in output and not Path(f"/proc/{ranks[0]}").exists()


def begin_two(data, folder, *words, of_first=None, of_second):
    """Two "machines" of one process each, the first of which is HOST.

    Args:
        of_first, of_second: variables of the environment of each, see `lost_machine`.

    Returns:
        The process of the first, and a function that starts the second (again).
    """
    port = find_free_port()
    words = [data, folder, "--user-dir", LOST_MACHINE, "--rendezvous", f"localhost:{port}", *words]
    first = start(*words, environment=of_first)
    with contextlib.closing(socket.socket()) as asked:
        while asked.connect_ex(("localhost", port)):  # it holds what they share
            assert first.poll() is None
            time.sleep(0.1)
    second = start(*words, environment=of_second)
    second.communicate(timeout=1200)
    assert second.returncode == -signal.SIGKILL
    return first, lambda: start(*words)


def ended(*processes):
    """What processes print, of which each must end well."""
    outputs = [process.communicate(timeout=1200)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), outputs
    return outputs


LOST_MACHINE = ROOT / "tests" / "train" / "lost_machine"
UPDATES = [*TINY, "--max-tokens", 400, "--max-update", 30, "--warmup-updates", 2]
UPDATES += ["--save-interval-updates", 10, "--validate-interval-updates", 1000]


@pytest.fixture(scope="module")
def unbroken(toy_data, tmp_path_factory):
    """The parameters of an unbroken training of two processes."""
    folder = tmp_path_factory.mktemp("unbroken")
    (folder / "by_loss.yaml").write_text(BY_LOSS)
    words = ["--processes", 2, "--settings", folder / "by_loss.yaml", "--", *UPDATES]
    ended(start(toy_data.bin, folder / "run", *words))
    return load(folder / "run")["model"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("update", [0, 3, 10, 15, 29])
def test_a_machine_that_is_lost_and_joins_again_changes_no_parameter(
    toy_data, tmp_path, by_loss, unbroken, update
):
    """At the start, before the first checkpoint, while it is written, after it, at the end."""
    words = ["--nodes", 2, *by_loss, "--", *UPDATES]
    first, again = begin_two(toy_data.bin, tmp_path, *words, of_second={"LOST_AT": str(update)})
    ended(first, again())
    found = load(tmp_path)["model"]
    assert all(torch.equal(found[name], value) for name, value in unbroken.items())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("joins", [False, True])
def test_a_machine_goes_on_alone_with_the_same_batch(toy_data, tmp_path, by_loss, unbroken, joins):
    """Also until the other joins: the parameters differ by the order of additions only."""
    words = ["--nodes", "1:2", *by_loss, "--", *UPDATES]
    first, again = begin_two(
        *(toy_data.bin, tmp_path, *words),
        of_first={"ALONE_UNTIL": "25"} if joins else {},
        of_second={"LOST_AT": "15"},
    )
    output, machines = "", [first]
    if joins:
        while "1 of 2 machines train" not in output:
            line = first.stdout.readline()
            assert line, output
            output += line
        machines.append(again())
    output += ended(*machines)[0]
    two = ("2", "200 tokens x 2 process(es) x update-freq 1 = 400")
    one = ("1", "200 tokens x 1 process(es) x update-freq 2 = 400")
    told = re.findall(r"(\d) of 2 machines train; an update: (.*)", output)
    assert told == [two, one, two][: 2 + joins]
    found = load(tmp_path)["model"]
    for name, expected in unbroken.items():
        torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-6)


def family(process):
    """The ids of a process and of all that it started, directly or not."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *(each for child in map(int, children) for each in family(child))]
