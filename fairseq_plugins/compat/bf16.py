"""Repairs of `--bf16` on machines without a TPU, and a warning on slow CPUs."""

import logging
from collections.abc import Callable
from typing import Any

from fairseq import options

from fairseq_plugins import cpu
from fairseq_plugins.compat.command_line import is_given
from fairseq_plugins.compat.patch import around
from fairseq_plugins.errors import ConfigurationError

logger = logging.getLogger(__name__)


def keep_bf16_off_the_tpu() -> None:
    """Use the CPU or GPU with `--bf16`: fairseq assumes a TPU and fails without torch_xla."""

    @around(options, "parse_args_and_arch")
    def parse_args_and_arch(
        original: Callable, parser: Any, input_args: Any = None, *args: Any, **kw: Any
    ) -> Any:
        if is_given("--bf16", input_args) and is_given("--fp16", input_args):
            raise ConfigurationError("--bf16 and --fp16 cannot be combined: give one of them")
        parsed = original(parser, input_args, *args, **kw)
        options_read = parsed[0] if isinstance(parsed, tuple) else parsed
        if getattr(options_read, "bf16", False) and not is_given("--tpu", input_args):
            options_read.tpu = False
        return parsed


def warn_if_emulated() -> None:
    """Warn if this CPU emulates bf16, which is slower than float32."""
    if not cpu.has_bf16():
        logger.warning(
            "--bf16 is slow here: this CPU has no instructions for bf16, torch emulates them, and "
            "a step took 11 times as long as in float32 (torch 2.13). Train in float32, in "
            "another --save-dir, without --bf16"
        )
