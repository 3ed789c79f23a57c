"""Read what `torch.save` wrote. A file can only call functions of this module.

A pickle names functions and has them called with arguments of its choice. `torch.load`, also with
`weights_only`, calls functions of torch and of the caller's list that way. Some of them trust their
arguments: numpy takes bytes for pointers, and torch reads beyond the end of a record. Here a name
in the file selects one of `BUILDERS`. Each checks its arguments and returns a plain value.
"""

import functools
import io
import math
import pickle
import re
import struct
import zipfile
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING  # from Python 2, which protocol 2 uses
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.distributed import utils as distributed_utils

from fairseq_plugins.compat.patch import overlay, repair

_PythonUnpickler: Any = pickle._Unpickler  # unlike the one in C, its instructions can be replaced
# files of torch before 1.6 begin with two pickles: a number and the version of the format
BEFORE_1_6 = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."


@repair()
def read_broadcasts() -> None:
    """Read what rank 0 sends to the other processes of a training, such as a checkpoint it read.

    `torch.load` rejects its types. It comes from our own process, and so holds only plain values.
    """
    load = functools.partial(torch.load, weights_only=False)
    overlay(distributed_utils, "torch", load=load)


def load(file: BinaryIO, **_options: Any) -> Any:
    """The value in a file of `torch.save`, with all tensors on the CPU; options are ignored.

    Raises:
        Exception: of any type, if the file is damaged.
        Rejected: it contains something that fairseq never writes.
    """
    file.seek(0)
    start = file.read(4)
    file.seek(0)
    return _load_archive(file) if start == b"PK\x03\x04" else _load_before_1_6(file)


class Rejected(pickle.UnpicklingError):
    """The file names, or builds, something that fairseq never writes."""


@dataclass(frozen=True, eq=False)
class Storage:
    """Memory of tensors, of `size` elements."""

    bytes: torch.UntypedStorage
    dtype: torch.dtype
    size: int


@dataclass(eq=False)
class Unfinished:
    """An object whose content follows in the file: `finish` computes its value from that."""

    finish: Callable[[Any], Any]
    finished: bool = False
    value: Any = None


class Memo(dict[int, Any]):
    """What the file may refer to by a number: the value of an object, once it is finished."""

    def __getitem__(self, number: int) -> Any:
        value = super().__getitem__(number)
        return value.value if type(value) is Unfinished and value.finished else value


@dataclass(frozen=True, eq=False)
class Name:
    """A name in the file that stands for no value, such as a class that is an argument."""

    name: str


def _load_archive(file: Any) -> Any:
    """Read a zip archive of data.pkl and one record for each storage."""
    available = file.seek(0, 2)
    with zipfile.ZipFile(file) as archive:
        records = {info.filename: info for info in archive.infolist()}
        folders = [name[: -len("data.pkl")] for name in records if name.endswith("/data.pkl")]
        if len(folders) != 1 or folders[0] + "constants.pkl" in records:
            raise ValueError("it is a TorchScript program or another zip archive")
        if any(record.compress_type != zipfile.ZIP_STORED for record in records.values()):
            raise ValueError("it is compressed, which torch never does")
        if sum(record.file_size for record in records.values()) > available:
            raise ValueError("its records are longer than the file")
        (folder,) = folders
        if folder + "byteorder" in records and archive.read(folder + "byteorder") != b"little":
            raise ValueError("it was written by a big-endian machine")

        @functools.cache
        def read(key: str) -> torch.UntypedStorage:
            memory = torch.zeros(records[f"{folder}data/{key}"].file_size, dtype=torch.uint8)
            record: Any
            with archive.open(records[f"{folder}data/{key}"]) as record:
                if memory.numel() and record.readinto(memory.numpy()) != memory.numel():
                    raise ValueError(f"record {key} is cut short")
            return memory.untyped_storage()

        def storage(kind: Any, key: Any, _location: Any, size: Any) -> Storage:
            _require(type(key) is str and type(size) is int, "a storage", key, size)
            dtype = _dtype_of_storage(kind)
            _require(size * dtype.itemsize == read(key).nbytes(), "a storage", key, size)
            return Storage(read(key), dtype, size)

        return Unpickler(io.BytesIO(archive.read(folder + "data.pkl")), storage).load()


def _load_before_1_6(file: Any) -> Any:
    """Read pickles, and the storages after them, each with its number of elements before it."""
    storages: dict[str, Storage] = {}
    available = file.seek(0, 2)
    file.seek(0)

    def storage(kind: Any, key: Any, _location: Any, size: Any, view: Any = None) -> Storage:
        nonlocal available
        _require(type(key) is str and type(size) is int, "a storage", key, size)
        dtype = _dtype_of_storage(kind)
        if key not in storages:
            available -= size * dtype.itemsize
            if size < 0 or available < 0:
                raise ValueError("it is cut short")
            memory = torch.zeros(size * dtype.itemsize, dtype=torch.uint8)
            storages[key] = Storage(memory.untyped_storage(), dtype, size)
        whole = storages[key]
        _require(whole.dtype == dtype, "a storage", key, dtype)
        if view is None:
            return whole
        _key, offset, size = view
        _require(_are_sizes((offset, size)) and offset + size <= whole.size, "a view", view)
        ends = offset * dtype.itemsize, (offset + size) * dtype.itemsize
        return Storage(whole.bytes[slice(*ends)], dtype, size)

    if file.read(len(BEFORE_1_6)) != BEFORE_1_6:
        raise ValueError("torch.save did not write it")
    Unpickler(file, storage).load()  # sizes of numbers on the machine that wrote it
    value = Unpickler(file, storage).load()
    keys = Unpickler(file, storage).load()
    _require(sorted(keys) == sorted(storages), "storages", keys)
    for key in keys:
        (size,) = struct.unpack("<q", file.read(8))
        memory = torch.tensor([], dtype=torch.uint8).set_(storages[key].bytes).numpy()
        if size != storages[key].size or file.readinto(memory) != memory.nbytes:
            raise ValueError("it is cut short")
    return value


def _require(condition: bool, name: str, *arguments: Any) -> None:
    if not condition:
        given = ", ".join(repr(each)[:50] if _is_flat(each) else "..." for each in arguments)
        raise Rejected(f"it builds {name} from ({given})")


def _is_flat(value: Any) -> bool:
    """Whether it is a plain value, or a tuple of such; only these may be keys.

    Python hashes a deeply nested tuple by recursion in C, without a limit.
    """
    plain = (str, bytes, int, float, bool, type(None))
    return type(value) in plain or (type(value) is tuple and all(type(v) in plain for v in value))


def _are_sizes(value: Any) -> bool:
    return type(value) is tuple and all(type(each) is int and 0 <= each < 2**62 for each in value)


def _dtype_of_storage(kind: Any) -> torch.dtype:
    _require(isinstance(kind, Name) and kind.name in STORAGES, "a storage", kind)
    return STORAGES[kind.name]


class Unpickler(_PythonUnpickler):
    """Executes only instructions that `torch.save` writes, and calls only `BUILDERS`."""

    def __init__(self, file: Any, storage: Callable[..., Storage]) -> None:
        super().__init__(file, encoding="utf-8")
        self.memo, self.storage = Memo(), storage

    def find_class(self, module: str, name: str) -> Any:
        module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
        name = f"{module}.{name}"
        if name not in BUILDERS and name not in VALUES:
            raise Rejected(f"it asks for '{name}'")
        return VALUES.get(name, Name(name))

    def persistent_load(self, pid: Any) -> Storage:
        _require(type(pid) is tuple and pid[:1] == ("storage",), "a storage", pid)
        return self.storage(*pid[1:])

    def load_call(self) -> None:
        """REDUCE and NEWOBJ."""
        arguments = self.stack.pop()
        function = self.stack[-1]
        name = function.name if isinstance(function, Name) else ""
        _require(name in BUILDERS and type(arguments) is tuple, "an object", name or function)
        self.stack[-1] = BUILDERS[name](*arguments)

    def load_build(self) -> None:
        state = self.stack.pop()
        built = self.stack[-1]
        if type(built) is OrderedDict:  # parameters: the versions of the modules that own them
            _require(type(state) is dict and set(state) <= {"_metadata"}, "an OrderedDict", state)
            vars(built).update(state)
        elif type(built) is Unfinished:
            built.value = self.stack[-1] = built.finish(state)
            built.finished = True
        else:
            valid = isinstance(built, np.dtype) and type(state) is tuple and state[1] in ("<", "|")
            _require(valid, "the state of an object", built)

    def load_append(self) -> None:
        self._extend([self.stack.pop()])

    def load_appends(self) -> None:
        self._extend(self.pop_mark())

    def _extend(self, items: list[Any]) -> None:
        _require(type(self.stack[-1]) is list, "a list", self.stack[-1])
        self.stack[-1].extend(items)

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._update([key, value])

    def load_setitems(self) -> None:
        self._update(self.pop_mark())

    def _update(self, items: list[Any]) -> None:
        _require(type(self.stack[-1]) in (dict, OrderedDict), "a dict", self.stack[-1])
        for key, value in zip(items[::2], items[1::2], strict=True):
            _require(_is_flat(key), "a dict with the key", key)
            self.stack[-1][key] = value

    dispatch = {
        operation[0]: function
        for operation, function in {
            pickle.REDUCE: load_call,
            pickle.NEWOBJ: load_call,
            pickle.BUILD: load_build,
            pickle.APPEND: load_append,
            pickle.APPENDS: load_appends,
            pickle.SETITEM: load_setitem,
            pickle.SETITEMS: load_setitems,
        }.items()
    } | {
        operation[0]: _PythonUnpickler.dispatch[operation[0]]
        for operation in (
            pickle.PROTO, pickle.STOP, pickle.GLOBAL, pickle.BINPERSID, pickle.MARK, pickle.BINGET,
            pickle.LONG_BINGET, pickle.BINPUT, pickle.LONG_BINPUT, pickle.NONE, pickle.NEWTRUE,
            pickle.NEWFALSE, pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1,
            pickle.BINFLOAT, pickle.BINUNICODE, pickle.SHORT_BINSTRING, pickle.EMPTY_DICT,
            pickle.EMPTY_LIST, pickle.EMPTY_TUPLE, pickle.EMPTY_SET, pickle.TUPLE, pickle.TUPLE1,
            pickle.TUPLE2, pickle.TUPLE3,
        )
    }  # fmt: skip


def build_tensor(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False,
    _hooks: Any = None, metadata: Any = None,
) -> torch.Tensor:  # fmt: skip
    """A view of a storage; hooks are dropped.

    Args:
        storage: the memory.
        offset: the element at which the tensor begins.
        size, stride: one whole number for each dimension.
    """
    valid = isinstance(storage, Storage) and _are_sizes((offset,)) and not metadata
    valid = valid and _are_sizes(size) and _are_sizes(stride) and len(size) == len(stride)
    _require(valid and type(requires_grad) is bool, "a tensor", storage, offset, size, stride)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    inside = math.prod(size) == 0 or last < storage.size
    inside = inside and math.prod(filter(None, size)) < 2**48  # torch multiplies in 64 bits
    _require(inside, "a tensor", storage, offset, size, stride)
    tensor = torch.tensor([], dtype=storage.dtype)
    return tensor.set_(storage.bytes, offset, size, stride).requires_grad_(requires_grad)


def build_parameter(data: Any, requires_grad: Any = True, _hooks: Any = None) -> torch.Tensor:
    valid = type(data) is torch.Tensor and type(requires_grad) is bool
    _require(valid, "a parameter", data)
    return torch.nn.Parameter(data, requires_grad)


def build_size(sizes: Any) -> torch.Size:
    _require(_are_sizes(sizes), "a torch.Size", sizes)
    return torch.Size(sizes)


def build_dtype(code: Any, *_: Any) -> np.dtype:
    """A numpy type of numbers; texts, objects and structures are rejected."""
    code = code.decode("ascii") if type(code) is bytes else code
    valid = type(code) is str and re.fullmatch("b1|[iu][1248]|f[248]", code)
    _require(bool(valid), "a numpy dtype", code)
    return np.dtype(code)


def build_scalar(dtype: Any, content: Any) -> np.generic:
    valid = isinstance(dtype, np.dtype) and type(content) is bytes
    _require(valid and len(content) == dtype.itemsize, "a numpy scalar", dtype, content)
    return np.frombuffer(content, dtype)[0]


def build_array(*_: Any) -> Unfinished:
    """An array whose shape, dtype and content follow."""

    def finish(state: Any) -> np.ndarray:
        _version, shape, dtype, fortran, content = state
        valid = _are_sizes(shape) and isinstance(dtype, np.dtype) and type(content) is bytes
        valid = valid and math.prod(shape) * dtype.itemsize == len(content)
        _require(valid, "a numpy array", shape, dtype, content)
        flat = np.frombuffer(bytearray(content), dtype) if content else np.empty(0, dtype)
        return flat.reshape(shape, order="F" if fortran else "C")

    return Unfinished(finish)


def build_bytes(text: Any, encoding: Any) -> bytes:
    valid = type(text) is str and encoding in ("latin1", "latin-1")
    _require(valid, "bytes", text, encoding)
    return text.encode("latin1")


def build_set(items: Any = ()) -> set[Any]:
    valid = type(items) is list and all(map(_is_flat, items))
    _require(valid or items == (), "a set", items)
    return set(items)


def build_dict(items: Any = ()) -> OrderedDict[Any, Any]:
    """An OrderedDict of pairs."""
    built: OrderedDict[Any, Any] = OrderedDict()
    _require(type(items) in (tuple, list), "an OrderedDict", items)
    for key, value in items:
        _require(_is_flat(key), "an OrderedDict with the key", key)
        built[key] = value
    return built


def build_plain_dict(_factory: Any = None) -> dict[Any, Any]:
    """For a defaultdict: its factory would be a function that the file chooses.

    Python also crashes when it frees many of them that contain each other.
    """
    return {}


def build_namespace() -> Unfinished:
    def finish(state: Any) -> Namespace:
        valid = type(state) is dict and all(type(name) is str for name in state)
        valid = valid and not any(name.startswith("__") for name in state)
        _require(valid, "an argparse.Namespace", *(state if type(state) is dict else [state]))
        return Namespace(**state)

    return Unfinished(finish)


def build_content_of_omegaconf(*_: Any) -> Unfinished:
    """What a configuration or a value of omegaconf contains, as a plain value."""

    def finish(state: Any) -> Any:
        _require(type(state) is dict, "a configuration", state)
        return state["_val"] if "_val" in state else state["_content"]

    return Unfinished(finish)


def build_nothing(*_: Any) -> Unfinished:
    """For the types and flags of omegaconf's values."""
    return Unfinished(lambda state: None)


def build_dictionary() -> Unfinished:
    """fairseq's Dictionary, which the state of audio tasks contains."""

    def finish(state: Any) -> Dictionary:
        built = Dictionary()
        _require(type(state) is dict and set(state) <= set(vars(built)), "a Dictionary", state)
        for name, value in state.items():
            valid = type(value) is type(vars(built)[name])
            items = value if type(value) is list else ()
            items = [*value, *value.values()] if type(value) is dict else items
            _require(valid and all(type(v) in (str, int) for v in items), "a Dictionary", name)
        vars(built).update(state)
        symbols = {symbol: number for number, symbol in enumerate(built.symbols)}
        _require(built.indices == symbols, "a Dictionary", "indices")
        return built

    return Unfinished(finish)


BUILDERS: dict[str, Callable[..., Any]] = {
    "argparse.Namespace": build_namespace,
    "builtins.set": build_set,
    "_codecs.encode": build_bytes,
    "collections.OrderedDict": build_dict,
    "collections.defaultdict": build_plain_dict,
    "fairseq.data.dictionary.Dictionary": build_dictionary,
    "numpy.dtype": build_dtype,
    # numpy 2 moved numpy.core to numpy._core; files of either version load in both
    "numpy.core.multiarray.scalar": build_scalar,
    "numpy._core.multiarray.scalar": build_scalar,
    "numpy.core.multiarray._reconstruct": build_array,
    "numpy._core.multiarray._reconstruct": build_array,
    "omegaconf.base.ContainerMetadata": build_nothing,
    "omegaconf.base.Metadata": build_nothing,
    "omegaconf.dictconfig.DictConfig": build_content_of_omegaconf,
    "omegaconf.listconfig.ListConfig": build_content_of_omegaconf,
    "omegaconf.nodes.AnyNode": build_content_of_omegaconf,
    "torch.Size": build_size,
    "torch._utils._rebuild_parameter": build_parameter,
    "torch._utils._rebuild_tensor": build_tensor,
    "torch._utils._rebuild_tensor_v2": build_tensor,
}

STORAGES: dict[str, torch.dtype] = {
    "torch.BFloat16Storage": torch.bfloat16,
    "torch.BoolStorage": torch.bool,
    "torch.ByteStorage": torch.uint8,
    "torch.CharStorage": torch.int8,
    "torch.DoubleStorage": torch.float64,
    "torch.FloatStorage": torch.float32,
    "torch.HalfStorage": torch.float16,
    "torch.IntStorage": torch.int32,
    "torch.LongStorage": torch.int64,
    "torch.ShortStorage": torch.int16,
}

# names that the file does not call
VALUES: dict[str, Any] = {
    **{str(dtype): dtype for dtype in STORAGES.values()},
    **{
        name: Name(name)
        for name in (
            *STORAGES, "numpy.ndarray", "typing.Any", "builtins.bool", "builtins.dict",
            "builtins.float", "builtins.int", "builtins.list", "builtins.str",
        )
    },
}  # fmt: skip
