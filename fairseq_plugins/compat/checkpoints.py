"""Reading and writing fairseq's checkpoints on current torch and numpy."""

import os
import pickle
import re
from argparse import Namespace
from collections import defaultdict
from typing import Any, Callable, Dict, List

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager

from fairseq_plugins.compat.patch import wrap
from fairseq_plugins.errors import ConfigurationError


def allow_types_of_fairseq_checkpoints() -> None:
    """torch >= 2.6 refuses to unpickle any type it was not told of, and so fairseq's checkpoints.

    That default keeps a checkpoint from running code, so it stays, and exactly the types that
    fairseq writes are allowed. `Namespace` holds the options of the command line; numpy's types
    come with meters and scores; the rest is what rank 0 sends to the other processes on resuming.
    """
    if not hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"):  # before torch 2.6
        return
    torch.serialization.add_safe_globals(_checkpoint_types())


def _checkpoint_types() -> List[Any]:
    import typing

    from omegaconf import DictConfig, ListConfig, base, nodes

    array = np.zeros(1)
    reconstruct = array.__reduce__()[0]
    scalar = array[0].__reduce__()[0]
    types: List[Any] = [Namespace, dict, list, int, defaultdict, typing.Any]
    types += [np.ndarray, np.dtype]
    # numpy 2 moved numpy.core to numpy._core: files written by one are read by the other
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        types += [(reconstruct, module + "._reconstruct"), (scalar, module + ".scalar")]
    # from numpy 1.25 on, each dtype has a class of its own
    numbers = (np.bool_, np.int32, np.int64, np.float16, np.float32, np.float64)
    types += {type(np.dtype(number)) for number in numbers}
    types += [DictConfig, ListConfig, base.ContainerMetadata, base.Metadata]
    types += [nodes.AnyNode, distributed_utils._TensorPlaceholder]
    return types


class RefusedCheckpoint(ConfigurationError, pickle.UnpicklingError):
    """A checkpoint that asks for something fairseq never writes."""


def explain_refused_checkpoints() -> None:
    """torch >= 2.6: say in one line which checkpoint was refused, why, and what to do."""

    def make(original: Callable) -> Callable:
        def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> Dict[str, Any]:
            try:
                return original(path, *args, **kwargs)
            except pickle.UnpicklingError as error:
                refused = re.search(r"GLOBAL (\S+)", str(error))
                if refused is None:
                    raise
                raise RefusedCheckpoint(
                    "checkpoint {} is refused and nothing in it was run: it asks for '{}', which "
                    "fairseq never writes, so the file may be malicious. Use a checkpoint from a "
                    "source you trust; if you wrote this one and know that type, pass it to "
                    "torch.serialization.add_safe_globals() in your user-dir.".format(
                        path, refused.group(1)
                    )
                ) from None

        return load_checkpoint_to_cpu

    wrap(checkpoint_utils, "load_checkpoint_to_cpu", "explain_refused_checkpoints", make)


_FUSED_COPY = re.compile(r"(.*\.layers\.\d+\.)(in_proj|out_proj|fc1|fc2)_(weight|bias)")


def drop_fused_copies_of_encoder_weights() -> None:
    """fairseq 0.12.2 wrote the weights of an encoder layer twice, once more for a fused kernel.

    ff has no place for the copies and refuses the checkpoint. They hold nothing that the layer's
    own weights do not, and 0.12.2 rebuilds them on loading, so they are dropped everywhere.
    """

    def make(original: Callable) -> Callable:
        def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> Dict[str, Any]:
            state = original(path, *args, **kwargs)
            model = state.get("model") or {}
            for key in list(model):
                copy = _FUSED_COPY.fullmatch(key)
                if copy is not None and copy.group(1) + "self_attn.q_proj.weight" in model:
                    del model[key]
            return state

        return load_checkpoint_to_cpu

    wrap(checkpoint_utils, "load_checkpoint_to_cpu", "drop_fused_copies", make)


def copy_checkpoints_in_one_step() -> None:
    """Every version writes checkpoint_last.pt as a plain copy of the checkpoint saved before it.

    A process killed meanwhile leaves half a file, and the training cannot be resumed from it. Copy
    beside it and rename, as fairseq does itself for the first file.
    """

    def make(original: Callable) -> Callable:
        def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
            if not overwrite or not PathManager.supports_rename(dst_path):
                return original(src_path, dst_path, overwrite=overwrite)
            copied = original(src_path, dst_path + ".tmp", overwrite=True)
            os.replace(dst_path + ".tmp", dst_path)
            return copied

        return copy

    wrap(PathManager, "copy", "copy_checkpoints_in_one_step", make)
