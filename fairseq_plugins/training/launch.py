"""Run the planned fairseq-train command, or resume an earlier run of it."""

import contextlib
import shlex
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from fairseq_plugins.errors import STATE_SAVED, TERMINATED
from fairseq_plugins.fairseq_program import words_of
from fairseq_plugins.run_folder import PRECISION, SHARING, Run
from fairseq_plugins.training.jobs import JobFailed, Jobs, failure_in
from fairseq_plugins.training.log_lines import EPOCH, REPORT, SKIPPED, Progress, in_words
from fairseq_plugins.training.process import Planned
from fairseq_plugins.training.request import Plan

# a rehearsal makes this many updates, or fewer if they take longer than this many seconds,
# and ignores the first ones
UPDATES, SECONDS, FIRST = 43, 20.0, 3
RECORDED = 143  # updates with --cuda-graphs: most of them have a shape that was recorded before


def train(
    todo: Plan,
    jobs: Jobs,
    say: Callable[[str], None] = print,
    seconds: float = 0,
    planned: Planned | None = None,
) -> bool:
    """Train or resume, unless the training is finished; returns whether anything was trained.

    Args:
        todo: from `planning.plan`.
        jobs: runs the programs.
        say: called with each line of progress.
        seconds: the shortest time between two lines about training steps.
        planned: the process that made the plan, which trains if it can.

    Raises:
        ConfigurationError: the folder is in use, or holds another training.
        JobFailed: fairseq-train failed, or was asked to stop.
    """
    run = Run(todo.save_dir)
    run.folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        # on a shared file system, one machine's lock would exclude the others
        lock = stack.enter_context(run.lock("training")) if todo.nodes == 1 else None
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
        stored = dict(todo.settings)
        if before and PRECISION not in before:  # an older release did not store it
            del stored[PRECISION]
        run.store(stored)
        log = run.log(todo.nodes)
        progress = Progress(
            lambda text: say("  " + text),
            int(todo.end["max_update"]),
            float(todo.end["stop_time_hours"]),
            seconds,
        )
        saved = []  # torchrun's exit status does not show it

        def read(line: str) -> None:
            progress.line(line)
            if STATE_SAVED in line:
                saved.append(line)

        saved_state = f"its state is saved in {run.folder}: rerun to resume"
        run.mark_unfinished()
        started = time.monotonic()
        before_it = log.stat().st_size if log.exists() else 0
        try:
            status = _run(todo, todo.command, jobs, log, read, lock, planned)
        except KeyboardInterrupt:
            written = log.read_bytes()[before_it:] if log.exists() else b""
            if STATE_SAVED in written.decode("utf-8", "replace"):
                say(saved_state)
            raise
        if status != 0 and (saved or status == TERMINATED):
            how = saved_state if todo.saves else "nothing is saved (--no-save)"
            raise JobFailed(f"{todo.name}: stopped by SIGTERM, {how}")
        if status != 0:
            raise JobFailed(
                f"{todo.name}: training failed: {failure_in(log, status)}; its log is {log}"
            )
        run.mark_finished(todo.end)
        say(f"trained in {time.monotonic() - started:.0f} s; the log is {log}")
    return True


def _run(
    todo: Plan,
    command: list[str],
    jobs: Jobs,
    log: Path,
    on_line: Callable[[str], None],
    lock: IO[str] | None = None,
    planned: Planned | None = None,
) -> int:
    """Run a command of the plan: in the process that planned it, or in a new one."""
    if planned is not None:
        if todo.alone and planned.environment == jobs.environment(todo.threads):
            planned.begin(command[1 + len(words_of("train")) :], lock)  # what follows the program
            return jobs.run(command, log, on_line, begun=planned.process)
        planned.dismiss()
        jobs.end(planned.process)
    return jobs.run(command, log, on_line, lock, todo.threads)


class _Rehearsed(Exception):
    """Raised when enough updates were measured."""


class _Rehearsal:
    """What the log says of the first updates.

    Args:
        most: the number of updates.

    Attributes:
        told: lines of progress, without those on updates; some repeat.
        times: of each report, in seconds, and the update.
        per_epoch: updates of an epoch; 0 until it is known.

    Raises:
        JobFailed: none of the first batches fits into memory.
    """

    def __init__(self, most: int = UPDATES) -> None:
        self.most = most
        self.told: list[str] = []
        self.times: list[tuple[float, int]] = []
        self.per_epoch = 0

    def line(self, text: str) -> None:
        report, epoch = REPORT.search(text), EPOCH.search(text)
        if report is None:
            Progress(self.told.append, 0).line(text)
            if self.told.count(SKIPPED) >= self.most and not self.times:
                raise JobFailed(
                    f"none of {self.most} batches fits into the GPU's memory: give a small "
                    "--tokens-per-process"
                )
            return
        self.per_epoch = int(epoch[1]) if epoch else self.per_epoch
        self.times.append((time.monotonic(), int(report[1])))
        times = self.times[FIRST - 1 :]
        enough = len(times) > 1 and times[-1][0] - times[0][0] > SECONDS
        if enough or len(self.times) >= self.most:
            raise _Rehearsed

    def estimate(self, todo: Plan) -> str:
        """The estimated time of all updates, or why there is no estimate."""
        times = self.times[FIRST - 1 :]
        if len(times) < 2:
            return f"time: not estimated, as training ends within {FIRST} updates"
        (begun, first), (end, last) = times[0], times[-1]
        each = (end - begun) / (last - first)
        if is_recorded(todo):  # the median leaves out the updates that record a shape
            each = statistics.median(
                (later - time) / (number - before)
                for (time, before), (later, number) in zip(times, times[1:])
            )
        limits = [int(todo.end["max_update"]), int(todo.end["max_epoch"]) * self.per_epoch]
        limits.append(int(3600 * float(todo.end["stop_time_hours"]) / each))
        updates = min((limit for limit in limits if limit > 0), default=0)
        how = f"{each:.2g} s per update, measured over {last - first}"
        if not updates:
            return f"time: not estimated, as no option sets the number of updates ({how})"
        return (
            f"time: about {in_words(each * updates)} for {updates:,} updates, without validation "
            f"and checkpoints ({how}; an epoch has {self.per_epoch:,})"
        )


def is_recorded(todo: Plan) -> bool:
    """Whether steps are recorded, if the GPU and the model can."""
    return "--cuda-graphs" in todo.command


def rehearse(
    todo: Plan,
    jobs: Jobs,
    say: Callable[[str], None] = print,
    planned: Planned | None = None,
) -> None:
    """Describe what `train` would do, and make some updates in a temporary folder to estimate the
    time.

    Raises:
        ConfigurationError: the folder holds another training.
        JobFailed: fairseq-train failed.
    """
    seen = _Rehearsal(RECORDED if is_recorded(todo) else UPDATES)
    before = Run(todo.save_dir).check_same(todo.settings)
    for line in todo.summary:
        say(line)
    if before:
        done = "is finished" if Run(todo.save_dir).reached(todo.end) else "resumes"
        say(f"{todo.save_dir} has checkpoints: the training {done}")
    with tempfile.TemporaryDirectory(prefix="train-dry-run-") as folder:
        words = ["--save-dir", folder, "--restore-file", "checkpoint_last.pt", "--no-save"]
        words += ["--disable-validation", "--log-interval", "1", "--log-file", f"{folder}/log"]
        for option in ("--tensorboard-logdir", "--wandb-project", "--aim-repo"):
            words += [option, ""]
        log = Path(folder) / "train.log"
        with contextlib.suppress(_Rehearsed):
            status = _run(todo, [*todo.command, *words], jobs, log, seen.line, planned=planned)
            if status != 0:
                raise JobFailed(f"{todo.name}: training would fail: {failure_in(log, status)}")
    for line in [
        *dict.fromkeys(seen.told),
        seen.estimate(todo),
        f"command: {shlex.join(todo.command)}",
    ]:
        say(line)
