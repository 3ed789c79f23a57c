"""What kind of processor this is, as Linux lists it in /proc/cpuinfo."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
VNNI = {"avx512_vnni", "avx_vnni"}
BF16 = {"avx512_bf16", "amx_bf16", "bf16"}  # the last is ARM's
X86 = {"x86_64", "amd64", "i386", "i686"}


def _values(*names: str) -> Iterator[str]:
    """The values of entries whose name begins with one of `names`; empty on other systems."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        if line.lower().startswith(names):
            yield line.partition(":")[2].strip()


def name() -> str:
    """The name of its model."""
    return next(_values("model name"), "") or platform.processor() or platform.machine()


def flags() -> frozenset[str]:
    """The names of its instruction set extensions; empty on other systems."""
    return frozenset(next(_values("flags", "features"), "").split())


def available_threads(processes: int) -> int:
    """Processor threads for each of several processes: OMP_NUM_THREADS, or they share the cores."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked):
        return int(asked)
    return max(1, len(os.sched_getaffinity(0)) // processes)


def has_bf16() -> bool:
    """Whether it has instructions for bf16 (AVX-512 BF16 or AMX; BF16 of ARM).

    torch and oneDNN report support for bf16 on any processor with AVX-512.
    """
    return not BF16.isdisjoint(flags())


def overflows_in_8_bits() -> bool:
    """Whether sums of signed 8-bit products overflow: on x86 without VNNI, or of unknown flags."""
    return platform.machine().lower() in X86 and VNNI.isdisjoint(flags())
