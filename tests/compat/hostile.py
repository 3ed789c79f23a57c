"""Load hostile checkpoints: `python -m tests.compat.hostile SEED COUNT`.

It writes pickles that call an allowed name with arguments of their choice, and reads them as
checkpoints. Whatever they do must end in `RefusedCheckpoint`; what loads
is read to its last element. A signal ends the process, which the caller sees.
"""

import inspect
import io
import itertools
import os
import pickle
import random
import resource
import struct
import sys
import threading
import zipfile

import numpy as np
import torch

from fairseq_plugins import compat
from fairseq_plugins.compat import unpickling
from fairseq_plugins.compat.checkpoints import RefusedCheckpoint, read_checkpoint

NUMBERS = (-(2**63), -(2**31), -8, -1, 0, 1, 2, 3, 4, 7, 8, 64, 2**31, 2**32, 2**62, 2**63, 2**64)
TEXTS = (
    "", "a", "O", "f8", "<f4", "V8", "i8,O", "f8,f8", "U4", "data", "storage", "cpu", "cuda:0", "0",
    "latin1", "utf-8", "rot13", "_metadata", "__class__", "__dict__", "__reduce__", "symbols",
    "indices", "count", "_content", "_val", "_parent", "\udcff", "<", ">", "|", "model", "args",
)  # fmt: skip
# what torch.load calls, and others that a file might try
FOREIGN = (
    "torch._utils._rebuild_qtensor", "torch._utils._rebuild_sparse_tensor", "torch.Tensor",
    "torch._utils._rebuild_nested_tensor", "torch._utils._rebuild_wrapper_subclass",
    "torch._utils._rebuild_meta_tensor_no_storage", "torch._utils._rebuild_tensor_v3",
    "torch._tensor._rebuild_from_type_v2", "torch._utils._rebuild_parameter_with_state",
    "torch._utils._rebuild_device_tensor_from_numpy", "torch.nn.parameter.Parameter",
    "torch.FloatTensor", "torch.sparse.FloatTensor", "builtins.bytearray", "builtins.complex",
    "collections.Counter", "torch.device", "torch.serialization._get_layout",
)  # fmt: skip
ALLOWED = (*unpickling.BUILDERS, *unpickling.VALUES)


class Writer:
    """Instructions that each push one hostile value."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def number(self, value: int) -> bytes:
        return b"\x8a" + struct.pack("B", 9) + value.to_bytes(9, "little", signed=True)

    def text(self, text: str) -> bytes:
        content = text.encode("utf-8", "surrogatepass")
        return b"X" + struct.pack("<I", len(content)) + content

    def name(self, name: str) -> bytes:
        module, _, attribute = name.rpartition(".")
        return f"c{module}\n{attribute}\n".encode()

    def tuple(self, *items: bytes) -> bytes:
        return b"(" + b"".join(items) + b"t"

    def bytes(self, length: int) -> bytes:
        arguments = self.tuple(self.text("A" * max(0, min(length, 999))), self.text("latin1"))
        return self.name("_codecs.encode") + arguments + b"R"

    def small(self) -> int:
        near = self.random.randrange(4)
        return near if self.random.random() < 0.9 else self.random.choice(NUMBERS)

    def sizes(self) -> bytes:
        return self.tuple(*(self.number(self.small()) for _ in range(self.random.randrange(4))))

    def storage(self) -> bytes:
        kind = self.random.choice([*unpickling.STORAGES, "torch.FloatStorage"])
        size = 16 // unpickling.STORAGES[kind].itemsize
        size = size if self.random.random() < 0.8 else self.small()
        parts = [self.text("storage"), self.name(kind), self.text("0"), self.text("cpu")]
        parts += [self.number(size)]
        return self.tuple(*parts) + b"Q"

    def dtype(self) -> bytes:
        code = self.random.choice(TEXTS) if self.random.random() < 0.3 else "f8"
        built = self.name("numpy.dtype") + self.tuple(self.text(code), b"\x89", b"\x88") + b"R"
        return built + (self.dtype_state() + b"b" if self.random.random() < 0.5 else b"")

    def dtype_state(self) -> bytes:
        order = self.text(self.random.choice("<<<>|="))
        last = [self.number(self.random.choice([-1, 63, 0])) for _ in range(3)]
        return self.tuple(self.number(3), order, self.value(3), self.value(3), b"N", *last)

    def likely(self) -> bytes:
        """Arguments that come further than random ones."""
        kind = self.random.randrange(7)
        length = self.random.choice([0, 4, 8, 16, 24])
        if kind == 0:
            arguments = [self.storage(), self.number(self.small()), self.sizes(), self.sizes()]
            arguments += [b"\x89", b"N", *([self.value(3)] if self.random.random() < 0.2 else [])]
            name = "torch._utils._rebuild_tensor_v2"
            return self.name(name) + self.tuple(*arguments) + b"R"
        if kind == 1:
            arguments = [self.dtype(), self.bytes(length)]
            return self.name("numpy.core.multiarray.scalar") + self.tuple(*arguments) + b"R"
        if kind == 2:
            arguments = [self.name("numpy.ndarray"), self.sizes(), self.value(3)]
            state = [self.number(1), self.sizes(), self.dtype(), b"\x89", self.bytes(length)]
            array = self.name("numpy._core.multiarray._reconstruct") + self.tuple(*arguments) + b"R"
            return array + self.tuple(*state) + b"b"
        if kind == 3:
            names = ("argparse.Namespace", "fairseq.data.dictionary.Dictionary")
            return self.name(self.random.choice(names)) + b")\x81" + self.dict() + b"b"
        if kind == 4:
            return self.name("collections.OrderedDict") + b")R" + self.dict() + b"b"
        if kind == 5:  # an array whose elements are pointers, or outside its bytes
            dtype = self.text(self.random.choice(["O", "f8", "V8,O"]))
            arguments = [self.sizes(), dtype, self.bytes(64), self.number(self.small())]
            called = self.name("numpy.ndarray") + self.tuple(
                *arguments[: self.random.choice([3, 4])]
            )
            return called + b"R"
        data = self.likely() if self.random.random() < 0.5 else self.storage()
        return self.name("torch._utils._rebuild_parameter") + self.tuple(data, b"\x88", b"N") + b"R"

    def dict(self) -> bytes:
        items = [self.value(3) for _ in range(2 * self.random.randrange(3))]
        return b"}(" + b"".join(items) + b"u"

    def call(self, name: str, depth: int = 1) -> bytes:
        """A call by REDUCE or NEWOBJ, mostly with a state by BUILD."""
        count = self.random.randrange(8)
        if name in unpickling.BUILDERS and self.random.random() < 0.7:
            parameters = inspect.signature(unpickling.BUILDERS[name]).parameters
            count = sum(parameter.default is parameter.empty for parameter in parameters.values())
        called = self.name(name) + self.tuple(*(self.value(depth + 1) for _ in range(count)))
        called += self.random.choice([b"R", b"\x81"])
        return called + (self.value(depth + 1) + b"b" if self.random.random() < 0.6 else b"")

    def value(self, depth: int = 0) -> bytes:
        choice = self.random.random()
        if choice < 0.15:
            return self.number(self.random.choice(NUMBERS))
        if choice < 0.3:
            return self.text(self.random.choice(TEXTS))
        if choice < 0.35:
            return self.random.choice([b"N", b"\x88", b"\x89", b")", b"]", b"}", b"\x8f", b"h\0"])
        if choice < 0.45 or depth > 4:
            return self.name(self.random.choice(ALLOWED))
        if choice < 0.55:
            return self.sizes()
        if choice < 0.6:
            return self.bytes(self.small())
        if choice < 0.65:
            return self.storage()
        if choice < 0.8:
            return self.likely() if depth < 3 else self.dtype()
        if choice < 0.85:
            return self.dict() if depth < 3 else b"}"
        if choice < 0.86:
            return b")" + b"\x85" * self.random.choice([10, 1000, 30_000])
        return self.call(self.random.choice(ALLOWED), depth)

    def program(self, name: str) -> bytes:
        """A checkpoint whose parts are hostile values, one of them a call of this name."""
        planted = self.call(name) if self.random.random() < 0.4 else self.likely()
        if self.random.random() < 0.1:  # bytes of other instructions
            at = self.random.randrange(len(planted))
            planted = planted[:at] + self.random.randbytes(2) + planted[at + 2 :]
        parts = {"model": b"}", "optimizer_history": b"](}e", "extra_state": b"}"}
        parts[self.random.choice(["model", "args", "cfg", "extra_state"])] = planted
        items = b"".join(self.text(key) + part for key, part in parts.items())
        return b"\x80\x02}q\0(" + items + b"u."


def nested(depth: int = 30_000) -> list[bytes]:
    """Programs that nest each kind of container so deeply that recursion in C would crash."""
    key = b"X\1\0\0\0a"
    kinds = [
        (b"(", b"t"), (b"](", b"e"), (b"}(" + key, b"u"),
        (b"ccollections\nOrderedDict\n)R(" + key, b"u"),
        (b"ccollections\ndefaultdict\n)R(" + key, b"u"),
        (b"cargparse\nNamespace\n)\x81}(" + key, b"ub"),
        (b"comegaconf.nodes\nAnyNode\n)\x81}(X\4\0\0\0_val", b"ub"),
        (b"cnumpy\ndtype\n(", b"tR"), (b"}(", b"Nu"), (b"cbuiltins\nset\n(](", b"etR"),
    ]  # fmt: skip
    parts = b"\x80\x02}(X\5\0\0\0model}X\x0a\0\0\0best_lossNX\5\0\0\0epochNX\3\0\0\0cfg"
    return [parts + begin * depth + b"N" + end * depth + b"u." for begin, end in kinds]


def archive(program: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as records:
        records.writestr("a/data.pkl", program)
        records.writestr("a/data/0", b"A" * 16)
        records.writestr("a/version", b"3\n")
    return file.getvalue()


def before_1_6(program: bytes) -> bytes:
    start = unpickling.BEFORE_1_6 + pickle.dumps({}, 2)
    return start + program + pickle.dumps(["0"], 2) + struct.pack("<q", 4) + b"A" * 16


def use(value: object) -> None:
    """Read a value to its last element."""
    if isinstance(value, torch.Tensor) and 0 < value.numel() < 10**6:
        value.detach().clone()
    elif isinstance(value, torch.Tensor) and value.numel():
        value.detach()[(-1,) * value.dim()].item()
    elif isinstance(value, (np.ndarray, np.generic)):
        np.copy(value)
        repr(value)
    elif isinstance(value, dict):
        for item in (*value, *value.values()):
            use(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            use(item)


def main(seed: int, count: int) -> None:
    compat.apply()
    resource.setrlimit(resource.RLIMIT_AS, (32 << 30, 32 << 30))
    loaded, names = 0, (*ALLOWED, *FOREIGN)
    numbers = range(seed, seed + count)
    programs = (Writer(number).program(names[number % len(names)]) for number in numbers)
    for number, program in enumerate(itertools.chain(nested(), programs), seed - len(nested())):
        for write in (archive, before_1_6) if number >= seed else (archive,):
            try:
                value = unpickling.load(io.BytesIO(write(program)))
            except Exception:
                value = None
            loaded += value is not None
            try:
                use(value)
            except RecursionError:
                pass
            del value
            try:
                read_checkpoint(io.BytesIO(write(program)))
            except RefusedCheckpoint as error:
                assert "\n" not in str(error), (number, str(error))
    print(f"{count} programs; {loaded} files of them were loaded")


if __name__ == "__main__":
    threading.stack_size(2 << 20)  # smaller than the usual 8 MB, so that less nesting shows a fault
    thread = threading.Thread(target=main, args=list(map(int, sys.argv[1:])))
    threading.excepthook = lambda failure: os._exit(print(failure) or 1)
    thread.start()
