"""Repairs of reading and writing checkpoints."""

import logging
import pickle
import re
import traceback
import zipfile
from argparse import Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from fairseq import checkpoint_utils, utils
from fairseq.file_io import PathManager
from fairseq.trainer import Trainer
from omegaconf.errors import OmegaConfBaseException

from fairseq_plugins.compat import unpickling
from fairseq_plugins.compat.patch import overlay, repair
from fairseq_plugins.compat.plugin import plugin
from fairseq_plugins.compat.stored_options import plain
from fairseq_plugins.errors import ConfigurationError

logger = logging.getLogger(__name__)


class RefusedCheckpoint(ConfigurationError, pickle.UnpicklingError):
    """The file is damaged, not a checkpoint, or contains something that fairseq never writes."""


@repair()
def read_checkpoints_safely() -> None:
    """Load checkpoints without running code from them.

    All of fairseq's loading calls `torch.load` in `fairseq.checkpoint_utils`: resuming,
    `--restore-file`, `--finetune-from-model`, generation, validation, `from_pretrained`, averaging.
    """
    overlay(checkpoint_utils, "torch", load=read_checkpoint)


WORDS = "words_of_dictionaries"  # in a checkpoint, see `store_digests_of_words`
# the entries of every checkpoint of fairseq; alternatives are names of different versions
_PARTS = ({"model"}, {"optimizer_history", "best_loss"}, {"extra_state", "epoch"})
# what entries are, unless they are missing or None
_KINDS = {
    **dict.fromkeys(("model", "cfg", "extra_state", "last_optimizer_state", "task_state"), dict),
    "args": Namespace,
    "optimizer_history": list,
    WORDS: dict,
}


def read_checkpoint(file: BinaryIO, **_options: Any) -> dict[str, Any]:
    """The state in a checkpoint, of safe types (`unpickling`) and options (`stored_options`).

    Raises:
        RefusedCheckpoint: the checkpoint is unsafe or cannot be read; one line names the file, the
            reason and what to do.
    """
    path = getattr(file, "name", "given")
    try:
        state = unpickling.load(file)
        if not isinstance(state, dict) or not all(part & set(state) for part in _PARTS):
            raise ValueError("it has no model and training state")
        for name, kind in _KINDS.items():
            if not isinstance(state.get(name), (kind, type(None))):
                raise ValueError(f"its {name} is a {type(state[name]).__name__}")
        drop_fused_copies_of_encoder_weights(state)
        for name in {"args", "cfg"} & set(state):
            state[name] = plain(state[name])
    except (unpickling.Rejected, ConfigurationError, RecursionError) as error:
        raise RefusedCheckpoint(
            f"checkpoint {path} is rejected, and nothing in it was run: {error}, which fairseq "
            "never writes, so the file may be malicious. Use a checkpoint from a source you trust. "
            "For types of your own see BUILDERS in fairseq_plugins.compat.unpickling"
        ) from None
    except Exception as error:
        raise _damaged(path, error) from None
    return state


def _damaged(path: str, error: Exception) -> RefusedCheckpoint:
    """The error for a file that is damaged or not a checkpoint."""
    told = isinstance(error, (ValueError, OSError, zipfile.BadZipFile, pickle.UnpicklingError))
    reason = str(error).strip().partition("\n")[0] if told else ""
    reason = reason or "its content is not what fairseq writes"
    return RefusedCheckpoint(
        f"checkpoint {path} cannot be read: it is damaged or not a checkpoint of fairseq "
        f"({reason}). Use another copy, or another checkpoint of the same training"
    )


@repair(checkpoint_utils, "load_model_ensemble_and_task")
def name_options_that_build_no_model(
    original: Callable, filenames: Any, *args: Any, **kwargs: Any
) -> Any:
    """Report options of a checkpoint from which fairseq cannot build the model, in one line."""
    try:
        return original(filenames, *args, **kwargs)
    except (ConfigurationError, OSError):
        raise
    except (*_WRONG_VALUES, OmegaConfBaseException) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise RefusedCheckpoint(
            f"no model can be built from the options in {', '.join(map(str, filenames))} and "
            f"those of the command line ({reason}; {place.filename}, line {place.lineno})"
        ) from error


# what Python raises for a value of another type or range than the code expects
_WRONG_VALUES = (
    ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError
)  # fmt: skip


@repair(checkpoint_utils, "load_checkpoint_to_cpu")
def name_files_of_other_content(
    original: Callable, path: str, *args: Any, **kwargs: Any
) -> dict[str, Any]:
    """Report content that fairseq cannot read as a checkpoint in one line."""
    try:
        return original(path, *args, **kwargs)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise _damaged(path, error) from error


_BUFFER = re.compile(r"(.*\.)?(version|_float_tensor)")
_FUSED_COPY = re.compile(r"(.*\.layers\.\d+\.)(in_proj|out_proj|fc1|fc2)_(weight|bias)")


def drop_fused_copies_of_encoder_weights(state: dict[str, Any]) -> None:
    """Drop the second copy of encoder weights that fairseq 0.12.2 stores for a fused kernel.

    fairseq-fixed refuses these unknown entries. They are never trained, but the optimizer counts
    them among its parameters, which shifts the numbers of the others.
    """
    model, names = state["model"], []
    seen = set()  # a shared parameter has several names and is one parameter of the optimizer
    for name, value in model.items():
        place = (value.data_ptr(), value.shape)
        if place not in seen and not _BUFFER.fullmatch(name):
            names.append(name)
        seen.add(place)
    copies = {
        name
        for name in model
        for copy in [_FUSED_COPY.fullmatch(name)]
        if copy is not None and copy.group(1) + "self_attn.q_proj.weight" in model
    }
    for name in copies:
        del model[name]
    optimizer = state.get("last_optimizer_state") or {}
    groups = optimizer.get("param_groups", ())
    if copies and len(groups) == 1 and len(groups[0]["params"]) == len(names):
        kept = [number for number, name in enumerate(names) if name not in copies]
        states = optimizer["state"]
        optimizer["state"] = {new: states[old] for new, old in enumerate(kept) if old in states}
        groups[0]["params"] = list(range(len(kept)))


@repair(PathManager, "copy")
def copy_checkpoints_in_one_step(
    original: Callable, src_path: str, dst_path: str, overwrite: bool = False
) -> bool:
    """Copy to a temporary file and rename it; fairseq writes checkpoint_last.pt in place.

    There, a process killed during the copy leaves half a file, and training cannot resume.
    """
    if not overwrite or not PathManager.supports_rename(dst_path):
        return original(src_path, dst_path, overwrite=overwrite)
    copied = original(src_path, dst_path + ".tmp", overwrite=True)
    PathManager.rename(dst_path + ".tmp", dst_path)
    return copied


@repair(Trainer, "__init__")
def note_digests_of_words(original: Callable, self: Trainer, *args: Any, **kwargs: Any) -> None:
    """Read the words of a training's data once, because its folder may hold other data later."""
    original(self, *args, **kwargs)
    self.words_of_data = _words_of_data(self.cfg.task)


@repair(Trainer, "state_dict")
def store_digests_of_words(original: Callable, self: Trainer) -> dict[str, Any]:
    """Store digests of the dictionaries' words in checkpoints.

    fairseq stores only the path of the data, which may be relative.
    """
    return {**original(self), WORDS: self.words_of_data}


def stored_words(state: dict[str, Any]) -> dict[str, str]:
    """The digests in a checkpoint's content; {} in fairseq's own checkpoints."""
    return state.get(WORDS) or {}


_digests: dict[str, dict[str, str]] = {}  # of the words of each checkpoint that is being loaded


@repair(checkpoint_utils, "load_checkpoint_to_cpu")
def read_digests_of_words(
    original: Callable, path: str, *args: Any, **kwargs: Any
) -> dict[str, Any]:
    """Keep the digests in a checkpoint, which fairseq ignores, for `warn_of_other_words`."""
    state = original(path, *args, **kwargs)
    _digests[str(path)] = stored_words(state)
    return state


@repair(checkpoint_utils, "load_model_ensemble_and_task")
def warn_of_other_words(original: Callable, filenames: Any, *args: Any, **kwargs: Any) -> Any:
    """Warn if dictionaries have other words than those of a model's training.

    If sizes are equal, fairseq loads the model and computes garbage. We only warn: words
    may have been replaced on purpose, before fine-tuning.
    """
    loaded = original(filenames, *args, **kwargs)
    task = loaded[2]
    _compare_words(filenames, getattr(task, "cfg", None) or getattr(task, "args", None))
    return loaded


@repair(Trainer, "load_checkpoint")
def warn_of_other_words_in_training(
    original: Callable, self: Trainer, filename: str, *args: Any, **kwargs: Any
) -> Any:
    """As `warn_of_other_words`."""
    state = original(self, filename, *args, **kwargs)
    _compare_words([filename], self.cfg.task)
    return state


def _compare_words(paths: Iterable[str], task: Any) -> None:
    stored = {str(path): _digests.pop(str(path), {}) for path in paths}
    here = _words_of_data(task)
    for path, words in stored.items():
        other = sorted(name for name in here if words.get(name, here[name]) != here[name])
        if other:
            logger.warning(
                f"{path} was trained with other words than those in {', '.join(other)} of "
                f"{utils.split_paths(task.data)[0]}, so its output makes no sense: give the "
                "folder that it was trained on"
            )


def _words_of_data(task: Any) -> dict[str, str]:
    """Digests of the data in the options of a task; {} if they have none or it is unreadable."""
    paths = utils.split_paths(getattr(task, "data", None) or "")
    try:
        return plugin.digests_of_words(Path(paths[0])) if paths[0] else {}
    except (OSError, UnicodeDecodeError, ConfigurationError):
        return {}
