"""Trainings that are killed, as real processes, and files that are damaged.

A training's processes are forked from this one, which has imported fairseq and read the options
already: a training of a second would otherwise spend most of its time on that.
"""

import contextlib
import errno
import functools
import io
import json
import logging
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer
from fairseq_cli import train as command

from fairseq_plugins.errors import ConfigurationError
from tests.conftest import USER_DIR, find_free_port, forget_trainings, updates

# what torch imports at the first update, once for all
torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1).step()

PATIENCE = 1200  # seconds that a training may take; it takes one or two if nothing else runs


class Killed(NamedTuple):
    """When a process is sent SIGKILL: before it begins an update, or after some seconds."""

    update: int = -1
    rank: int = 0
    seconds: float = PATIENCE


class Run(NamedTuple):
    """What one start of a training came to."""

    status: list[int]  # of each process, as waitpid tells: 0, or 9 for one that was killed
    output: str  # of the first process that ended with an error, else of rank 0


def train(
    words: Sequence[Any],
    save_dir: Path,
    processes: int = 1,
    kill: Killed | None = None,
    record: Path | None = None,
    file_size: int | None = None,
) -> Run:
    """Run fairseq-train in processes of their own, and kill one of them if asked.

    Args:
        words: options of fairseq-train, with the data.
        record: a folder for one line an update and process, see `seen`.
        file_size: bytes beyond which no file can be written, as on a full disk.
    """
    save_dir.mkdir(parents=True, exist_ok=True)
    cfg = _configuration(tuple(map(str, words)))
    meeting_point = f"tcp://localhost:{find_free_port()}"
    outputs = [save_dir / f"output.{rank}" for rank in range(processes)]
    children = []
    for rank in range(processes):
        child = os.fork()
        if child == 0:
            cfg.checkpoint.save_dir = str(save_dir)
            if processes > 1:
                place = cfg.distributed_training
                place.distributed_world_size, place.distributed_no_spawn = processes, True
                place.distributed_rank = place.device_id = rank
                place.distributed_init_method = meeting_point
            _be_a_process(cfg, rank, kill, record, outputs[rank], file_size)
        children.append(child)
    status = _wait(children, kill)
    return Run(status, outputs[status.index(1) if 1 in status else 0].read_text())


@functools.lru_cache(maxsize=1)
def _configuration(words: tuple[str, ...]) -> Any:
    """The options as fairseq-train reads them; of a training that is started again, once."""
    argv = ["fairseq-train", *words, "--user-dir", str(USER_DIR), "--num-workers", "0"]
    with mock.patch.object(sys, "argv", argv):
        return convert_namespace_to_omegaconf(
            options.parse_args_and_arch(options.get_training_parser())
        )


def _be_a_process(
    cfg: Any,
    rank: int,
    kill: Killed | None,
    record: Path | None,
    output: Path,
    file_size: int | None,
) -> None:
    """Train, and end this process."""
    epoch = 0
    step, begin = Trainer.train_step, Trainer.begin_epoch

    def begin_epoch(self: Trainer, number: int) -> None:
        nonlocal epoch
        epoch = number
        begin(self, number)

    def train_step(self: Trainer, samples: list[Any], raise_oom: bool = False) -> Any:
        update = self.get_num_updates()
        if kill is not None and (update, rank) == kill[:2]:
            os.kill(os.getpid(), signal.SIGKILL)
        # first: once the processes have met in the step, the others may end this one at any time
        if record is not None:
            ids = [i for sample in samples if sample for i in sample["id"].tolist()]
            with open(record / str(rank), "a") as file:
                file.write(json.dumps([update, epoch, ids]) + "\n")
        return step(self, samples, raise_oom)

    status = 1
    try:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open(output, "w", buffering=1))
            stack.enter_context(contextlib.redirect_stdout(file))
            stack.enter_context(contextlib.redirect_stderr(file))
            stack.enter_context(mock.patch.object(Trainer, "train_step", train_step))
            stack.enter_context(mock.patch.object(Trainer, "begin_epoch", begin_epoch))
            if file_size is not None:
                stack.enter_context(_full_disk(file_size))
            logging.root.handlers[:] = [logging.StreamHandler(file)]
            logging.root.setLevel(logging.INFO)
            forget_trainings()  # of the parent
            try:
                distributed_utils.call_main(cfg, command.main)
                status = 0
            except ConfigurationError as error:
                file.write(f"error: {error}\n")  # as the command shows it
            except BaseException:
                file.write(traceback.format_exc())
    finally:
        os._exit(status)


def _full_disk(file_size: int) -> Any:
    """No checkpoint of more than `file_size` bytes can be written; waiting for room is skipped."""
    save = torch.save

    def save_a_part(state: Any, file: Any) -> None:
        content = io.BytesIO()
        save(state, content)
        file.write(content.getvalue()[:file_size])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.object(torch, "save", save_a_part))
    stack.enter_context(mock.patch.object(time, "sleep"))
    return stack


def _wait(children: list[int], kill: Killed | None) -> list[int]:
    """The status of each; once one has failed the others, who wait for it, are killed."""
    status: dict[int, int] = {}
    begun = time.monotonic()
    while len(status) < len(children):
        for child in set(children) - set(status):
            ended, how = os.waitpid(child, os.WNOHANG)
            if ended:
                status[child] = os.WTERMSIG(how) if os.WIFSIGNALED(how) else os.WEXITSTATUS(how)
        seconds = time.monotonic() - begun
        doomed = set(children) if any(status.values()) or seconds > PATIENCE else set()
        if kill is not None and seconds > kill.seconds:
            doomed.add(children[kill.rank])
        for child in doomed - set(status):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            status[child] = int(signal.SIGKILL)
        time.sleep(0.01)
    return [status[child] for child in children]


def seen(record: Path) -> dict[int, list[int]]:
    """For each epoch the sentences that led to the parameters at the end, in order.

    What was trained after the last checkpoint before a kill was lost with it, and done again.
    """
    of_update: dict[Any, Any] = {}
    for path in sorted(record.iterdir()):
        for line in path.read_text().splitlines():
            update, epoch, ids = json.loads(line)
            of_update[path.name, update] = epoch, ids
    sentences: dict[int, list[int]] = {}
    for key in sorted(of_update):
        epoch, ids = of_update[key]
        sentences.setdefault(epoch, []).extend(ids)
    return sentences


def not_once(sentences: Sequence[int], total: int) -> dict[int, int]:
    """How often each of `total` sentences was seen, unless it was once."""
    count = Counter(sentences)
    return {i: count[i] for i in range(total) if count[i] != 1}


def difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """The first difference to the bit between two checkpoints; empty if there is none."""
    if updates(one) != updates(other):
        return f"{updates(one)} updates, and {updates(other)}"
    try:
        for what in ("model", "last_optimizer_state"):
            torch.testing.assert_close(dict(one[what]), dict(other[what]), rtol=0, atol=0)
    except AssertionError as error:
        return f"{what}: {error}"
    return ""


# Damage, as a power cut, a full disk or a bad one leave it


def _change(change: Callable[[bytearray, random.Random], bytes]) -> Callable[..., None]:
    def damage(path: Path, generator: random.Random | None = None) -> None:
        path.write_bytes(change(bytearray(path.read_bytes()), generator or random.Random(1)))

    return damage


def _flip(content: bytearray, generator: random.Random) -> bytes:
    content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    return bytes(content)


def _zero(content: bytearray, start: int, length: int) -> bytes:
    content[start : start + length] = bytes(len(content[start : start + length]))
    return bytes(content)


DAMAGE: dict[str, Callable[..., None]] = {
    "empty": _change(lambda content, generator: b""),
    "cut": _change(lambda content, generator: bytes(content[: generator.randrange(len(content))])),
    "zeroed head": _change(lambda content, generator: _zero(content, 0, 4096)),
    "zeroed middle": _change(lambda content, generator: _zero(content, len(content) // 2, 4096)),
    "zeroed": _change(lambda content, generator: bytes(len(content))),
    "missing": lambda path, generator=None: path.unlink(),
}
# a bit of an archive may be one that nobody reads: `flip` is judged by what is loaded
flip = _change(_flip)
