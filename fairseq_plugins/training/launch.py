"""Run the planned fairseq-train command, or go on where an earlier run of it ended."""

import contextlib
import platform
import time
from typing import Callable

from fairseq_plugins.compat import stopping
from fairseq_plugins.errors import flag
from fairseq_plugins.training import settings
from fairseq_plugins.training.jobs import JobFailed, Jobs, alone_in, failure_in
from fairseq_plugins.training.planning import Plan
from fairseq_plugins.training.progress import Progress


def advice_to_go_on(todo: Plan) -> str:
    """What the user may change to train on where this plan ended."""
    if 0 < settings.schedule_end(todo.given) <= todo.end["max_update"]:
        return "its learning rate has ended; to train longer, choose another folder"
    limits = ("max_update", "max_epoch", "stop_time_hours", "patience")
    names = [flag(name) for name in limits if todo.end[name] > 0]
    ways = [f"a larger {' or '.join(names)}"] if names else []
    ways += ["a smaller --stop-min-lr"] if todo.end["stop_min_lr"] >= 0 else []
    return f"train longer with {', or '.join(ways)}"


def train(todo: Plan, jobs: Jobs, say: Callable[[str], None] = print, seconds: float = 0) -> bool:
    """Train or resume, unless the training is finished; returns whether anything was trained.

    Args:
        todo: from `planning.plan`.
        jobs: runs the programs.
        say: called with each line of progress.
        seconds: the shortest time between two lines about training steps.

    Raises:
        ConfigurationError: the folder is in use, or holds another training.
        JobFailed: fairseq-train failed, or was asked to stop.
    """
    save_dir, sharing = todo.save_dir, settings.SHARING
    save_dir.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        # on a shared file system, the lock of one machine would exclude the others
        lock = stack.enter_context(alone_in(save_dir, "training")) if todo.nodes == 1 else None
        before = settings.check_same(save_dir, todo.settings)
        for line in todo.summary:
            say(line)
        if before and settings.reached(save_dir, todo.end):
            say(f"kept: training is finished; {advice_to_go_on(todo)}")
            return False
        if before.get(sharing, todo.settings[sharing]) != todo.settings[sharing]:
            say(
                f"before, an update was {before[sharing]}. fairseq resumes within an epoch by the "
                "number of batches: if they have another size now, this epoch reads some sentences "
                "twice or not at all"
            )
        stored = dict(todo.settings)
        if before and settings.PRECISION not in before:  # an older release did not store it
            del stored[settings.PRECISION]
        settings.store(save_dir, stored)
        log = save_dir / ("train.log" if todo.nodes == 1 else f"train.{platform.node()}.log")
        progress = Progress(
            lambda text: say("  " + text),
            int(todo.end["max_update"]),
            float(todo.end["stop_time_hours"]),
            seconds,
        )
        saved = []  # torchrun's status does not tell

        def read(line: str) -> None:
            progress.line(line)
            if stopping.SAVED in line:
                saved.append(line)

        settings.mark_unfinished(save_dir)
        started = time.monotonic()
        status = jobs.run(todo.command, log, read, lock, todo.threads)
        if status != 0 and (saved or status == stopping.STATUS):
            how = "its state is saved: rerun to resume"
            if todo.given.no_save:
                how = "nothing is saved (--no-save)"
            raise JobFailed(f"{todo.name}: stopped by SIGTERM, {how}")
        if status != 0:
            raise JobFailed(
                f"{todo.name}: training failed: {failure_in(log, status)}; its log is {log}"
            )
        settings.mark_finished(save_dir, todo.end)
        say(f"trained in {time.monotonic() - started:.0f} s; the log is {log}")
    return True
