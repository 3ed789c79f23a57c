"""Train by a plan in this process, or in several that torchrun starts; resume earlier runs."""

import contextlib
import json
import os
import re
import shlex
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from fairseq_plugins.errors import TERMINATED, ConfigurationError, killed_by
from fairseq_plugins.files import alone_in
from fairseq_plugins.train import fairseq_train
from fairseq_plugins.train.fairseq_train import ENOUGH
from fairseq_plugins.train.log import logged_to, tell
from fairseq_plugins.train.request import Plan
from fairseq_plugins.train.run_folder import SHARING, Run
from fairseq_plugins.train.supervise import of_cpu

LOST = re.compile("Connection (closed|reset) by peer")


def train(todo: Plan, say: Callable[[str], None] = tell) -> bool:
    """Train or resume, unless the training is finished; returns whether anything was trained.

    Args:
        todo: from `planning.plan`.
        say: called with each line about the training.

    Raises:
        ConfigurationError: the folder is in use, or holds another training, or training failed.
        SystemExit: with `TERMINATED`, if the training was asked to end and has saved its state.
    """
    run = Run(todo.save_dir)
    run.folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        if todo.nodes == 1:  # on a shared file system, one machine's lock would exclude the others
            stack.enter_context(alone_in(run.folder, "training"))
        before = run.check_same(todo.settings)
        for line in todo.summary:
            say(line)
        if before and run.reached(todo.end):
            say(f"kept: training is finished; {todo.longer}")
            return False
        if before.get(SHARING, todo.settings[SHARING]) != todo.settings[SHARING]:
            say(
                f"earlier updates were {before[SHARING]}. fairseq resumes within an epoch by "
                "counting batches: if their size changed, this epoch reads some sentences twice or "
                "not at all"
            )
        run.store(todo.settings)
        log = run.log(todo.nodes)
        started = time.monotonic()
        _run(todo, todo.words, log)
        run.store(todo.settings, todo.end)
        say(f"trained in {time.monotonic() - started:.0f} s; the log is {log}")
    return True


def rehearse(todo: Plan) -> None:
    """Describe what `train` would do, and make some updates in a temporary folder to estimate the
    time.

    Raises:
        ConfigurationError: the folder holds another training, or training would fail.
    """
    before = Run(todo.save_dir).check_same(todo.settings)
    for line in todo.summary:
        tell(line)
    if before:
        done = "is finished" if Run(todo.save_dir).reached(todo.end) else "resumes"
        tell(f"{todo.save_dir} has checkpoints: the training {done}")
    with tempfile.TemporaryDirectory(prefix="train-dry-run-") as folder:
        words = ["--save-dir", folder, "--restore-file", "checkpoint_last.pt", "--no-save"]
        words += ["--disable-validation", "--log-interval", "1", "--log-file", f"{folder}/log"]
        for option in ("--tensorboard-logdir", "--wandb-project", "--aim-repo"):
            words += [option, ""]
        _run(todo, [*todo.words, *words], Path(folder) / "train.log", dry_run=True)
    tell(f"command: {shlex.join(todo.command)}")


def _run(todo: Plan, words: list[str], log: Path, dry_run: bool = False) -> None:
    """Run fairseq-train with these arguments, and write its output to the log.

    Raises:
        ConfigurationError: it failed; the log has all of the error.
        SystemExit: it was asked to end.
    """
    if todo.threads is not None:
        os.environ.update(of_cpu(todo.threads))
        if torch.get_num_threads() != todo.threads:  # the environment was set by a wrong guess
            torch.set_num_threads(todo.threads)
    with logged_to(log) as say:
        print(f"\n# {time.strftime('%Y-%m-%d %H:%M:%S')} {os.uname().nodename}")
        print(f"# {shlex.join(todo.command)}")
        try:
            if todo.processes * todo.nodes == 1:
                fairseq_train.run(words, say, dry_run)
            else:
                _run_several(todo, words, dry_run)
        except Exception as error:
            if isinstance(error, ConfigurationError):
                print(f"error: {error}")
            else:
                traceback.print_exc()
            why = _last_line(traceback.format_exception_only(error))
            how = f"would fail: {why}" if dry_run else f"failed: {why}; its log is {log}"
            raise ConfigurationError(f"{todo.name}: training {how}") from None


def _run_several(todo: Plan, words: Sequence[str], dry_run: bool) -> None:
    """Run the processes of this machine with torchrun."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    how = json.dumps({"dry_run": dry_run, "shares": todo.shares})
    module = ["-m", fairseq_train.__name__, how]
    # the store that torchrun shares with its processes is not told to machines that join again
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    try:
        run.run(run.parse_args([*todo.launcher, *module, *words]))
    except ChildFailedError as error:
        codes = {failure.exitcode for failure in error.failures.values()}
        if TERMINATED in codes:
            raise SystemExit(TERMINATED) from None
        if not (dry_run and ENOUGH in codes):
            print(error)
            raise ConfigurationError(_first_failure(error.failures)) from None
    except SignalException as error:
        raise SystemExit(128 + error.sigval) from None


def _first_failure(failures: dict[int, Any]) -> str:
    """Why the processes of a machine failed; most of them only report losing another one."""
    for rank, failure in sorted(failures.items()):
        if failure.exitcode < 0 and failure.exitcode != -signal.SIGTERM:  # torchrun ends the others
            return f"process {rank} was {killed_by(-failure.exitcode)}"
    told = []
    for _, failure in sorted(failures.items(), key=lambda each: each[1].timestamp):
        message = failure.message
        told.append(_last_line([message["message"] if isinstance(message, dict) else message]))
    return next((line for line in told if not LOST.search(line)), told[0])


def _last_line(parts: Sequence[str]) -> str:
    """The last line of an error, without the name of ours."""
    line = "".join(parts).strip().splitlines()[-1]
    return re.sub(rf"^(fairseq_plugins[\w.]+|{ConfigurationError.__name__}): ", "", line)
