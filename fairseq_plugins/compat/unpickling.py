"""Unpickling that creates the types of fairseq's checkpoints and nothing else.

A pickle can name any function and have it called. From torch 2.6 on, `torch.load` allows known
types only, and this module adds those that fairseq writes. Older releases run whatever the file
says: there this module is the `pickle_module` of `torch.load`, with the same list of types.
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
from fairseq.distributed import utils as distributed_utils
from omegaconf import DictConfig, ListConfig, base, nodes

# torch >= 2.6: `torch.load` refuses types that it was not told of
TORCH_IS_SAFE = hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint")

Allowed = Union[Any, Tuple[Any, str]]  # a type, or an object and its name in the file


def allow_types_of_fairseq_checkpoints() -> None:
    """torch >= 2.6 refuses fairseq's checkpoints: allow exactly the types that fairseq writes."""
    if TORCH_IS_SAFE:
        torch.serialization.add_safe_globals(types_of_fairseq())


def types_of_fairseq() -> List[Allowed]:
    """What fairseq writes beside tensors.

    `Namespace` holds the options of the command line; numpy's types come with meters and scores;
    the rest is what rank 0 sends to the other processes on resuming.
    """
    array = np.zeros(1)
    reconstruct = array.__reduce__()[0]
    scalar = array[0].__reduce__()[0]
    types: List[Allowed] = [Namespace, dict, list, int, defaultdict, (typing.Any, "typing.Any")]
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


def types_of_torch() -> List[Allowed]:
    """What torch >= 2.6 allows by itself and a checkpoint of fairseq can hold."""
    types: List[Allowed] = [Counter, OrderedDict, bytearray, complex, set]
    types += [torch.Size, torch.Tensor, torch.device, torch.nn.Parameter, *torch._storage_classes]
    types.append((_codecs.encode, "_codecs.encode"))  # bytes, in numpy's scalars
    types += [(value, str(value)) for value in vars(torch).values() if type(value) is torch.dtype]
    for name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter"):
        types.append((getattr(torch._utils, name), "torch._utils." + name))
    return types


def _by_name(types: List[Allowed]) -> Dict[str, Any]:
    named = [t if isinstance(t, tuple) else (t, t.__module__ + "." + t.__qualname__) for t in types]
    return {name: value for value, name in named}


_ALLOWED = _by_name(types_of_fairseq() + types_of_torch())


# written in Python: its subclasses can change what an instruction does
_Unpickler: Any = pickle._Unpickler


class Unpickler(_Unpickler):
    """Creates allowed types only. Raises UnpicklingError that names anything else."""

    def find_class(self, module: str, name: str) -> Any:
        # Python 3 writes Python 2's names for old protocols
        module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
        full_name = module + "." + name
        if full_name not in _ALLOWED:
            raise pickle.UnpicklingError("Unsupported global: GLOBAL {}".format(full_name))
        return _ALLOWED[full_name]

    def load_build(self) -> None:
        """Set an object's state, but never that of a class, which all of Python would see."""
        if callable(self.stack[-2]):
            raise pickle.UnpicklingError("Unsupported state for {!r}".format(self.stack[-2]))
        super().load_build()

    dispatch = dict(_Unpickler.dispatch)
    dispatch[pickle.BUILD[0]] = load_build


def load(file: BinaryIO, **options: Any) -> Any:
    """`pickle.load` with this module's Unpickler: what makes the module a `pickle_module`."""
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
        try:  # torch would unpack it into a temporary folder, links and all
            tarfile.open(fileobj=file, mode="r:", format=tarfile.PAX_FORMAT).close()
        except tarfile.TarError:
            pass
        else:
            raise pickle.UnpicklingError("it is a tar archive, as torch 0.1 wrote them")
    file.seek(0)
    return torch.load(file, pickle_module=this_module, **options)
