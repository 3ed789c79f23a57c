"""The conditions of a measurement: device, dtype, threads, software, commit."""

import argparse
import hashlib
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from fairseq_plugins import cpu
from fairseq_plugins.arguments import add_count, add_flag, add_path
from fairseq_plugins.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[3]
CLOCKS = ("wall", "processor")
FAST = "avx2 avx512f avx_vnni avx512_vnni avx512_bf16 amx_int8 amx_bf16 asimddp i8mm bf16".split()
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def add_arguments(
    parser: argparse.ArgumentParser, dtype_help: str = "default: %(default)s"
) -> None:
    """Add the options of every subcommand."""
    parser.add_argument("--dtype", choices=list(DTYPES), default="fp32", help=dtype_help)
    add_count(parser, "--threads", "processor threads", 1)
    add_flag(parser, "--cpu", "do not use a GPU")
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="processor: count processor time, for a machine shared with other programs; one "
        "thread only",
    )
    add_path(parser, "--json", "FILE", "also write all figures to this file")
    add_path(parser, "--plot", "FILE", "also plot them to this file (.svg)")


def choose_device(args: argparse.Namespace) -> torch.device:
    """The GPU, or the CPU if there is no GPU or --cpu is given. Also sets torch's thread count.

    Raises:
        ConfigurationError: fewer than 1 thread, fp16 on a CPU, or --clock processor with a GPU or
            several threads.
    """
    torch.set_num_threads(args.threads)
    device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
    if device.type == "cpu" and args.dtype == "fp16":
        raise ConfigurationError("--dtype fp16 needs a GPU: use bf16 or fp32 on a CPU")
    if args.clock == "processor" and (args.threads > 1 or device.type != "cpu"):
        raise ConfigurationError("--clock processor is for one thread on a CPU: use --clock wall")
    return device


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
    found = cpu.flags()
    return " ".join([f"{cpu.name()} with", *(each for each in FAST if each in found)])


def commit() -> str:
    """The commit of the checkout, with "+" and a checksum if it has other files than the commit.

    Files that git does not know count within the package. Without a checkout, only a checksum.
    """
    return _checked_out() or f"unknown, files {_checksum()}"


def _checksum() -> str:
    """Ten digits that change with any Python file of the package."""
    content = hashlib.sha256()
    for path in sorted((ROOT / "fairseq_plugins").rglob("*.py")):
        content.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return content.hexdigest()[:10]


def _checked_out() -> str | None:
    if not (ROOT / ".git").exists():
        return None
    answers = []
    status = ["status", "--porcelain"]
    for words in (
        ["rev-parse", "--short=10", "HEAD"],
        [*status, "-uno"],
        [*status, "fairseq_plugins"],
    ):
        try:
            done = subprocess.run(
                ["git", "-C", str(ROOT), *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                timeout=30,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode != 0:
            return None
        answers.append(done.stdout.strip())
    return answers[0] + (f"+{_checksum()}" if any(answers[1:]) else "")
