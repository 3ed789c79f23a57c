"""Checkpoints that survive a power cut: flushed to disk, and replaced by intact ones."""

import contextlib
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.trainer import Trainer

from fairseq_plugins.compat import unpickling
from fairseq_plugins.compat.patch import overlay, repair
from fairseq_plugins.errors import ConfigurationError, counted
from fairseq_plugins.files import alone_in, flush_to_disk

logger = logging.getLogger(__name__)

LAST = "checkpoint_last"


@repair(PathManager, "rename")
def write_checkpoints_to_the_disk(original: Callable, src: str, dst: str) -> None:
    """Flush a checkpoint to disk before renaming it, and its folder afterwards (fsync).

    fairseq renames without fsync. After a power cut the new name may then hold an empty file,
    or one with blocks of zeros.
    """
    flush_to_disk(src)
    original(src, dst)
    folder = os.open(os.path.dirname(os.path.abspath(dst)), os.O_RDONLY)
    with contextlib.suppress(OSError):  # not every file system can fsync folders
        os.fsync(folder)
    os.close(folder)


@repair()
def retry_writing_from_the_beginning() -> None:
    """Let each attempt to write a checkpoint replace the rest of a failed attempt.

    fairseq tries three times, into the same open file. After a temporary error, such as a disk
    that is full for a moment, the checkpoint began with half of another one: saving succeeded and
    loading failed.
    """

    def save(state: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        if getattr(file, "seekable", bool)():  # not where iopath writes in the background
            file.seek(0)
            file.truncate()
        torch.save(state, file, *args, **kwargs)

    overlay(checkpoint_utils, "torch", save=save)


def find_damage(path: str) -> str:
    """The damage of a checkpoint, in a few words; empty if it can be read.

    It reads the whole file, whose checksums the reader verifies.

    Raises:
        OSError: it cannot be opened, so nobody knows.
    """
    with open(path, "rb") as file:
        try:
            unpickling.load(file)
        except MemoryError:
            raise
        except unpickling.Rejected:
            return ""  # intact; loading it reports what it contains
        except Exception as error:
            return str(error) or type(error).__name__
    return ""


# not the lock of the command `train`, which starts this process or is in it
LOCK = "training.lock"
_folder = contextlib.ExitStack()  # the folder that this process trains in


def _hold(folder: Path) -> None:
    """Hold the lock of a folder until the training of this process ends.

    Raises:
        ConfigurationError: another training holds it.
    """
    _folder.close()
    _folder.enter_context(alone_in(folder, "training", name=LOCK))
    for part in folder.glob("*.tmp"):  # fairseq writes its checkpoints there first
        if part.is_symlink():
            part.unlink()


@repair(distributed_utils, "call_main")
def release_after_training(original: Callable, cfg: Any, main: Callable, **kwargs: Any) -> Any:
    """Release the lock of the folder when the training ends.

    Without a lock two trainings overwrite each other's checkpoints, and a rerun resumes from a
    mixture.
    """
    with _folder:
        return original(cfg, main, **kwargs)


@repair(checkpoint_utils, "load_checkpoint")
def resume_from_the_newest_intact_checkpoint(
    original: Callable, cfg: Any, trainer: Any, **kwargs: Any
) -> tuple[Any, Any]:
    """Resume from the newest intact checkpoint if checkpoint_last.pt is damaged or missing.

    fairseq then fails (damaged) or silently starts from scratch (missing). Here a warning names the
    checkpoint that is used instead. Without an intact one training does not start, nor with one
    that cannot be opened, which may be the newest: nothing is overwritten.
    """
    # rank 0 decides for all: the file, None to leave the choice to fairseq, and what is wrong
    path, wrong = None, None
    if trainer.data_parallel_rank == 0:
        try:
            if not cfg.no_save:
                _hold(Path(cfg.save_dir))
            path = _find_checkpoint(cfg, trainer.checkpoint_suffix)
        except ConfigurationError as error:  # the others wait for an answer
            wrong = str(error)
        except OSError as error:
            wrong = f"{error.filename} cannot be read: {error.strerror}: make it readable, or "
            wrong += "choose another --save-dir"
    if trainer.data_parallel_world_size > 1:
        path, wrong = distributed_utils.broadcast_object(
            (path, wrong),
            src_rank=0,
            group=trainer.data_parallel_process_group,
            dist_device=trainer.device,
        )
    if wrong is not None:
        raise ConfigurationError(wrong)
    options = cfg.restore_file, cfg.finetune_from_model
    try:
        if path is not None:
            cfg.restore_file, cfg.finetune_from_model = path, None
        return original(cfg, trainer, **kwargs)
    finally:
        cfg.restore_file, cfg.finetune_from_model = options


@repair(Trainer, "save_checkpoint")
def remove_a_last_checkpoint_that_is_not_the_last(
    original: Callable, self: Trainer, filename: str, *args: Any, **kwargs: Any
) -> Any:
    """With --no-last-checkpoints, let a new checkpoint replace an earlier checkpoint_last.pt.

    fairseq keeps it. A rerun would resume from it, and overwrite what came after it. With
    --write-checkpoints-asynchronously it stays, as the new one may not be written yet.
    """
    saved = original(self, filename, *args, **kwargs)
    last = Path(filename).with_name(f"{LAST}{self.checkpoint_suffix}.pt")
    cfg = self.cfg.checkpoint
    stale = cfg.no_last_checkpoints and not cfg.write_checkpoints_asynchronously
    if stale and last != Path(filename) and self.should_save_checkpoint_on_current_rank:
        last.unlink(missing_ok=True)
    return saved


def _find_checkpoint(cfg: Any, suffix: str) -> str | None:
    """The checkpoint to resume from; None leaves the choice to fairseq.

    Raises:
        ConfigurationError: none can be used, and fairseq would begin anew.
    """
    if cfg.restore_file != LAST + ".pt":
        return None
    folder = Path(cfg.save_dir)
    last = folder / f"{LAST}{suffix}.pt"
    if not folder.is_dir():
        return None
    others = _others(folder, suffix)
    for path in [last, *others]:
        if path.is_dir():  # a checkpoint of this name could not be written
            raise ConfigurationError(
                f"{path} is a folder in the place of a checkpoint: remove it, or choose another "
                "--save-dir"
            )
    problem = "is missing"
    if last.is_file():
        damage = find_damage(str(last))
        if not damage:
            return None
        problem = f"is damaged ({damage})"
    newest = _newest_intact(others)
    if newest is not None:
        logger.warning(f"{last} {problem}: resuming from the newest intact one, {newest.name}")
        return str(newest.with_name(newest.name[: -len(suffix + ".pt")] + ".pt"))
    if not last.is_file() and not others:
        return None
    rest = f"so is each of {counted(len(others), 'others')}"
    raise ConfigurationError(
        f"{last} {problem}, and {rest if others else 'there is no other checkpoint'}: nothing was "
        "changed; choose another --save-dir, or remove them to start over"
    )


def _others(folder: Path, suffix: str) -> list[Path]:
    """All other checkpoints of fairseq in the folder, sorted by name."""
    name = re.compile(rf"checkpoint(\d+|_\d+_\d+|_best|\.best_.+){re.escape(suffix)}\.pt")
    return sorted(path for path in folder.iterdir() if name.fullmatch(path.name))


def _newest_intact(paths: list[Path]) -> Path | None:
    """The intact checkpoint of the latest update; reads as few files as possible."""

    def numbers(path: Path) -> tuple[float, ...]:
        """(epoch, update) in the name; an epoch's end comes last. The best ones have none."""
        within = re.match(r"checkpoint_?(\d+)(?:_(\d+))?", path.name)
        return tuple(float(number or "inf") for number in within.groups()) if within else ()

    intact: list[Path] = []
    for path in sorted(paths, key=numbers, reverse=True):
        numbered = bool(numbers(path))
        if not (numbered and intact) and not find_damage(str(path)):
            intact.append(path)
    return max(intact, key=_updates) if len(intact) > 1 else next(iter(intact), None)


def _updates(path: Path) -> int:
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    return state["optimizer_history"][-1]["num_updates"]
