"""The conditions of a measurement: device, threads, software, commit."""

import hashlib
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from fairseq_plugins.system import cpu

ROOT = Path(__file__).resolve().parents[3]
FAST = "avx2 avx512f avx_vnni avx512_vnni avx512_bf16 amx_int8 amx_bf16 asimddp i8mm bf16".split()


def describe(device: torch.device, threads: int) -> dict[str, Any]:
    """Device, cores, threads, software versions and commit: the data to compare two figures."""
    import fairseq

    on_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name() if on_gpu else cpu.name(),
        "kind": device.type,
        "cores": os.cpu_count(),
        "threads": threads,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fairseq": getattr(fairseq, "__version__", "unknown"),
        "commit": commit(),
    }


def cpu_kind() -> str:
    """The CPU and the extensions that decide its speed; figures of one kind are comparable."""
    flags = cpu.flags()
    return " ".join([f"{cpu.name()} with", *(each for each in FAST if each in flags)])


def commit() -> str:
    """The commit of the checkout, with "+" and a checksum if it has other files than the commit.

    Files that git does not know count within the package. Without a checkout, only a checksum.
    """
    content = hashlib.sha256()
    for path in sorted((ROOT / "fairseq_plugins").rglob("*.py")):
        content.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    checksum, git = content.hexdigest()[:10], ["git", "-C", str(ROOT), "--git-dir", ".git"]
    how: Any = {"capture_output": True, "text": True, "timeout": 30, "check": True}
    try:
        name = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], **how).stdout.strip()
        status = subprocess.run([*git, "status", "--porcelain"], **how).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return f"unknown, files {checksum}"
    changed = [line for line in status if not line.startswith("??") or "fairseq_plugins/" in line]
    return f"{name}+{checksum}" if changed else name
