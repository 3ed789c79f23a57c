"""The types of fairseq's checkpoints.

A pickle can name any function and have it called. `torch.load` allows only known types; this
module adds those that fairseq writes. (Releases before 2.10 can still be tricked, which is why
setup.py refuses them.)
"""

import typing
from argparse import Namespace
from collections import defaultdict
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.distributed import utils as distributed_utils
from omegaconf import DictConfig, ListConfig, base, nodes

Allowed = Any | tuple[Any, str]  # a type, or an object and its name in the file


def allow_types_of_fairseq_checkpoints() -> None:
    """Allow exactly the types that fairseq writes; `torch.load` refuses some of them."""
    torch.serialization.add_safe_globals(types_of_fairseq())


def types_of_fairseq() -> list[Allowed]:
    """The types that fairseq writes besides tensors.

    `Namespace` and omegaconf's types hold options, numpy's types come from meters and scores,
    `Dictionary` is in the state of some tasks (audio), and `_TensorPlaceholder` in what rank 0
    sends to the other processes on resuming.
    """
    array = np.zeros(1)
    reconstruct = array.__reduce__()[0]
    scalar = array[0].__reduce__()[0]
    types: list[Allowed] = [Namespace, dict, list, int, defaultdict, (typing.Any, "typing.Any")]
    types += [np.ndarray, np.dtype]
    # numpy 2 moved numpy.core to numpy._core; files of either version must load in both
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        types += [(reconstruct, module + "._reconstruct"), (scalar, module + ".scalar")]
    # from numpy 1.25 on, each dtype has its own class
    numbers = (np.bool_, np.int32, np.int64, np.float16, np.float32, np.float64)
    types += {type(np.dtype(number)) for number in numbers}
    types += [DictConfig, ListConfig, base.ContainerMetadata, base.Metadata]
    types += [nodes.AnyNode, distributed_utils._TensorPlaceholder, Dictionary]
    return types
