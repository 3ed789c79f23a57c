"""Unpickling restricted to the types of fairseq's checkpoints.

A pickle can name any function and have it called. From torch 2.6 on, `torch.load` allows only known
types, and this module adds those that fairseq writes. Older releases run whatever the file says;
for them this module serves as the `pickle_module` of `torch.load`, with the same list of types.
"""

import _codecs
import pickle
import tarfile
import typing
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict
from typing import Any, BinaryIO, Dict, List, Tuple, Union

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.distributed import utils as distributed_utils
from omegaconf import DictConfig, ListConfig, base, nodes

# torch >= 2.6: `torch.load` refuses types that are not in its list
TORCH_IS_SAFE = hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint")

Allowed = Union[Any, Tuple[Any, str]]  # a type, or an object and its name in the file


def allow_types_of_fairseq_checkpoints() -> None:
    """Allow exactly the types that fairseq writes; torch >= 2.6 refuses some of them."""
    if TORCH_IS_SAFE:
        torch.serialization.add_safe_globals(types_of_fairseq())


def types_of_fairseq() -> List[Allowed]:
    """The types that fairseq writes beside tensors.

    `Namespace` and omegaconf's types hold options, numpy's types come from meters and scores,
    `Dictionary` is in the state of some tasks (audio), and `_TensorPlaceholder` in what rank 0
    sends to the other processes on resuming.
    """
    array = np.zeros(1)
    reconstruct = array.__reduce__()[0]
    scalar = array[0].__reduce__()[0]
    types: List[Allowed] = [Namespace, dict, list, int, defaultdict, (typing.Any, "typing.Any")]
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


def types_of_torch() -> List[Allowed]:
    """The types that torch >= 2.6 allows by default and that a checkpoint of fairseq can hold."""
    types: List[Allowed] = [Counter, OrderedDict, bytearray, complex, set]
    types += [torch.Size, torch.Tensor, torch.device, torch.nn.Parameter, *torch._storage_classes]
    types.append((_codecs.encode, "_codecs.encode"))  # for bytes in numpy scalars
    types += [(value, str(value)) for value in vars(torch).values() if type(value) is torch.dtype]
    for name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter"):
        types.append((getattr(torch._utils, name), "torch._utils." + name))
    return types


def _by_name(types: List[Allowed]) -> Dict[str, Any]:
    named = [t if isinstance(t, tuple) else (t, t.__module__ + "." + t.__qualname__) for t in types]
    return {name: value for value, name in named}


_ALLOWED = _by_name(types_of_fairseq() + types_of_torch())


# the implementation in Python, because a subclass of it can override single instructions
_Unpickler: Any = pickle._Unpickler


class Unpickler(_Unpickler):
    """Unpickler that creates only allowed types, and raises UnpicklingError for any other."""

    def find_class(self, module: str, name: str) -> Any:
        # old protocols use the names of Python 2
        module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
        full_name = module + "." + name
        if full_name not in _ALLOWED:
            raise pickle.UnpicklingError(f"Unsupported global: GLOBAL {full_name}")
        return _ALLOWED[full_name]

    def load_build(self) -> None:
        """Set the state of an object, but not of a class: that would change the whole process."""
        if callable(self.stack[-2]):
            raise pickle.UnpicklingError(f"Unsupported state for {self.stack[-2]!r}")
        super().load_build()

    dispatch = dict(_Unpickler.dispatch)
    dispatch[pickle.BUILD[0]] = load_build


def load(file: BinaryIO, **options: Any) -> Any:
    """`pickle.load` with the restricted Unpickler; torch.load needs it in a `pickle_module`."""
    return Unpickler(file, **options).load()


def load_with_old_torch(file: BinaryIO, **options: Any) -> Any:
    """`torch.load` of torch < 2.6 with the protection of torch 2.6."""
    import fairseq_plugins.compat.unpickling as this_module

    if torch.serialization._is_zipfile(file):
        with torch.serialization._open_zipfile_reader(file) as archive:
            is_program = torch.serialization._is_torchscript_zip(archive)
        if is_program:
            raise pickle.UnpicklingError("it is a TorchScript program, not a checkpoint")
    else:
        try:  # torch would unpack a tar archive, with its links, into a temporary folder
            tarfile.open(fileobj=file, mode="r:", format=tarfile.PAX_FORMAT).close()
        except tarfile.TarError:
            pass
        else:
            raise pickle.UnpicklingError("it is a tar archive, as torch 0.1 wrote them")
    file.seek(0)
    return torch.load(file, pickle_module=this_module, **options)
