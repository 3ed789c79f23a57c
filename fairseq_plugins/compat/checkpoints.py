"""Reading and writing fairseq's checkpoints on current torch and numpy."""

import pickle
import re
from typing import Any, BinaryIO, Callable, Dict

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_plugins.compat import unpickling
from fairseq_plugins.compat.patch import overlay, wrap
from fairseq_plugins.compat.stored_options import plain
from fairseq_plugins.errors import ConfigurationError


class RefusedCheckpoint(ConfigurationError, pickle.UnpicklingError):
    """A file that is damaged, no checkpoint, or asks for something that fairseq never writes."""


def read_checkpoints_safely() -> None:
    """A checkpoint is data: it runs nothing (all versions of torch, 0.12.2 and ff).

    Everything that fairseq loads passes `torch.load` in `fairseq.checkpoint_utils`: resuming,
    `--restore-file`, `--finetune-from-model`, generation, validation, `from_pretrained`, averaging.
    """
    overlay(checkpoint_utils, "torch", load=read_checkpoint)


# what every version of fairseq writes, each under its newer or older name
_PARTS = ({"model"}, {"optimizer_history", "best_loss"}, {"extra_state", "epoch"})


def read_checkpoint(file: BinaryIO, **options: Any) -> Dict[str, Any]:
    """`torch.load`, with types (`unpickling`) and options (`stored_options`) that are safe.

    Raises:
        RefusedCheckpoint: one line that names the file, the reason and what to do.
    """
    load = torch.load if unpickling.TORCH_IS_SAFE else unpickling.load_with_old_torch
    path = getattr(file, "name", "given")
    try:
        state = load(file, **options)
        if not isinstance(state, dict) or not all(part & set(state) for part in _PARTS):
            raise ValueError("it holds no model with the state of its training")
        drop_fused_copies_of_encoder_weights(state["model"])
    except Exception as error:
        raise RefusedCheckpoint(_why_unreadable(path, error)) from None
    try:
        for name in {"args", "cfg"} & set(state):
            state[name] = plain(state[name])
    except (ConfigurationError, RecursionError) as error:
        raise RefusedCheckpoint(
            "checkpoint {} is refused and nothing in it was run: {}. The file may be malicious: "
            "use a checkpoint from a source you trust".format(path, error)
        ) from None
    return state


def _why_unreadable(path: str, error: Exception) -> str:
    refused = re.search(r"GLOBAL (\S+)", str(error))
    if isinstance(error, pickle.UnpicklingError) and refused is not None:
        return (
            "checkpoint {} is refused and nothing in it was run: it asks for '{}', which fairseq "
            "never writes, so the file may be malicious. Use a checkpoint from a source you trust; "
            "if you wrote this one and know that type, pass it to "
            "torch.serialization.add_safe_globals() (torch 2.6 or newer) in your user-dir".format(
                path, refused.group(1)
            )
        )
    # the first sentence: torch goes on to advise loading without protection
    reason = (str(error).strip() or type(error).__name__).splitlines()[0].split(". ")[0]
    if "weights_only" in reason:
        reason = "torch does not know its format"
    return (
        "checkpoint {} cannot be read: it is damaged or not a checkpoint of fairseq ({}). Use "
        "another copy of it, or another checkpoint of the same training".format(path, reason)
    )


def name_files_that_are_no_checkpoints() -> None:
    """A folder, a file that may not be read, or one with other parts is an error of one line."""

    def make(original: Callable) -> Callable:
        def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> Dict[str, Any]:
            try:
                return original(path, *args, **kwargs)
            except (IsADirectoryError, PermissionError) as error:
                raise RefusedCheckpoint(
                    "checkpoint {} cannot be read: {}. Give the file of a checkpoint, such as "
                    "checkpoint_best.pt".format(path, error.strerror)
                ) from None
            except (AttributeError, IndexError, KeyError, TypeError) as error:
                raise RefusedCheckpoint(_why_unreadable(path, error)) from error

        return load_checkpoint_to_cpu

    wrap(checkpoint_utils, "load_checkpoint_to_cpu", "name_files_that_are_no_checkpoints", make)


_FUSED_COPY = re.compile(r"(.*\.layers\.\d+\.)(in_proj|out_proj|fc1|fc2)_(weight|bias)")


def drop_fused_copies_of_encoder_weights(model: Dict[str, Any]) -> None:
    """fairseq 0.12.2 wrote the weights of an encoder layer twice, once more for a fused kernel.

    ff has no place for the copies and refuses the checkpoint. They hold nothing that the layer's
    own weights do not, and 0.12.2 rebuilds them on loading, so they are dropped everywhere.
    """
    for key in list(model):
        copy = _FUSED_COPY.fullmatch(key)
        if copy is not None and copy.group(1) + "self_attn.q_proj.weight" in model:
            del model[key]


def copy_checkpoints_in_one_step() -> None:
    """Copy to a temporary file and rename it (all versions write checkpoint_last.pt in place).

    A process killed while it copies would leave half a file, from which training cannot resume.
    """

    def make(original: Callable) -> Callable:
        def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
            if not overwrite or not PathManager.supports_rename(dst_path):
                return original(src_path, dst_path, overwrite=overwrite)
            copied = original(src_path, dst_path + ".tmp", overwrite=True)
            PathManager.rename(dst_path + ".tmp", dst_path)
            return copied

        return copy

    wrap(PathManager, "copy", "copy_checkpoints_in_one_step", make)
