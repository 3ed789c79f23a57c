"""Repairs of command-line options."""

import argparse
import importlib.util
import logging
import os
import re
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

from fairseq import options
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.dataclass import utils as dataclass_utils
from hydra.core.hydra_config import HydraConfig

from fairseq_plugins.compat.patch import before_main, repair
from fairseq_plugins.compat.plugin import plugin
from fairseq_plugins.compat.training_options import is_of_labels
from fairseq_plugins.errors import ConfigurationError, did_you_mean
from fairseq_plugins.system.quiet import at_least


def _refuse(parser: argparse.ArgumentParser, message: str) -> None:
    """Raise a ConfigurationError in one line for an error of argparse."""
    if strange := re.match(r"argument (--[\w-]+).*: invalid choice: '?(.*?)'? \(choose", message):
        known = list(parser._option_string_actions[strange[1]].choices or ())
        near = f"choose one of {', '.join(known)}"
        if len(known) > 8:
            near = did_you_mean(strange[2], known, "-h lists the choices")
        raise ConfigurationError(f"{strange[1]} {strange[2]} is unknown: {near}")
    if wrong := re.fullmatch(r"argument (\S+): invalid (\S+) value: (.*)", message):
        whole = "whole " if wrong[2] == "int" else ""
        raise ConfigurationError(f"{wrong[1]} {wrong[3]}: must be a {whole}number")
    unknown = message.removeprefix("unrecognized arguments: ")
    if unknown == message:
        raise ConfigurationError(f"{parser.prog} does not take this: {message}")
    question = did_you_mean(re.split("[ =]", unknown)[0], parser._option_string_actions)
    raise ConfigurationError(
        f"{parser.prog} does not take {unknown}" + (f": {question}" if question else "")
    )


@repair(options, "parse_args_and_arch")
def mend_parsing(
    original: Callable, parser: Any, input_args: Any = None, *args: Any, **kw: Any
) -> Any:
    """Mend what the command line makes of some options.

    - `--bf16` is taken for a TPU, and fails without torch_xla.
    - `--cpu` starts one process per GPU of the machine.
    - fairseq-validate without `--task` ends in `KeyError: None`. The task comes from the
      checkpoint; the name only decides which options exist.
    - A mistake is reported below the usage of some 200 lines.
    - A missing `--arch` is a RuntimeError without a text, a missing `--path` an AttributeError.
    - `--total-num-update` of polynomial_decay is null, which hydra refuses, instead of
      `--max-update`.
    - With a criterion without `classification_head_name`, a task of labels ends in an
      InterpolationKeyError.

    Raises:
        ConfigurationError: on parsing, an option is missing, unknown, or does not go with another.
    """
    words = sys.argv[1:] if input_args is None else input_args
    named = {str(word).split("=")[0] for word in words}
    if {"--bf16", "--fp16"} <= named:
        raise ConfigurationError("--bf16 and --fp16 cannot be combined: give one of them")
    if "--cpu" in named and "--distributed-world-size" not in named:
        parser.set_defaults(distributed_world_size=1)
    if parser.get_default("task") is None:
        parser.set_defaults(task="translation")
    try:
        with mock.patch.object(parser, "error", partial(_refuse, parser)):
            parsed = original(parser, input_args, *args, **kw)
    except RuntimeError as error:
        if error.args:
            raise
        such_as = plugin.text_model
        raise ConfigurationError(f"--arch is missing: give one, such as {such_as}") from None
    given = parsed[0] if isinstance(parsed, tuple) else parsed
    if getattr(given, "bf16", False) and "--tpu" not in named:
        given.tpu = False
    _check_parsed(given)
    return parsed


def _check_parsed(given: Namespace) -> None:
    if getattr(given, "path", "") is None:
        raise ConfigurationError("give the checkpoint of a model: --path FILE")
    if getattr(given, "total_num_update", 0) is None:
        if not given.max_update:
            raise ConfigurationError(
                "--lr-scheduler polynomial_decay needs the number of updates after which the "
                "learning rate ends: give --max-update N or --total-num-update N"
            )
        given.total_num_update = given.max_update
    task, name = (getattr(given, key, None) for key in ("task", "criterion"))
    options_of = CRITERION_DATACLASS_REGISTRY.get(name)
    known = getattr(options_of, "__dataclass_fields__", {})
    if name and is_of_labels(task) and "classification_head_name" not in known:
        raise ConfigurationError(
            f"--criterion {name} is for text, but --task {task} has labels: use --criterion "
            "sentence_prediction"
        )


@repair(dataclass_utils, "eval_str_list")
def refuse_fractions_in_lists_of_whole_numbers(
    original: Callable, x: Any, x_type: Callable = float
) -> Any:
    """Refuse `--update-freq 1.5`, which becomes 1, and `--lr 5e-` in one line."""
    try:
        found = original(x, x_type)
    except SyntaxError:  # argparse expects a ValueError
        raise argparse.ArgumentTypeError(f"{x} is not a number") from None
    if x_type is int and found and found != original(x, float):
        raise argparse.ArgumentTypeError(f"{x}: give whole numbers")
    return found


@repair()
def refuse_asynchronous_writing_without_iopath() -> None:
    """Refuse `--write-checkpoints-asynchronously` without iopath.

    fairseq then trains nothing and exits with status 0.
    """

    @before_main
    def check(cfg: Any, program: str) -> None:
        asynchronous = cfg.checkpoint.write_checkpoints_asynchronously
        if asynchronous and importlib.util.find_spec("iopath") is None:
            raise ConfigurationError(
                "--write-checkpoints-asynchronously needs a package that is not installed: "
                "pip install iopath, or remove the flag"
            )


@repair()
def show_errors_of_hydra() -> None:
    """Let hydra raise errors, so that `errors` prints one line.

    Otherwise fairseq-hydra-train prints a traceback: 49 lines for a wrong option.
    """
    if HydraConfig.initialized():  # hydra runs this program, and imports the user-dir in it
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")


@repair(dataclass_utils, "initialize", "compose")
def silence_hydra(original: Callable, *args: Any, **kwargs: Any) -> Any:
    """Drop five warnings and a debug line about how fairseq calls hydra 1.1 and newer.

    fairseq configures itself with hydra in every command, so each command began with fifteen lines
    that users cannot act on.
    """
    if original.__name__ == "initialize":
        kwargs["caller_stack_depth"] = 3  # fairseq's function, beyond two of this repair
    # importing fairseq alone sets the root logger to DEBUG (tasks/frm_text_to_speech.py)
    with warnings.catch_warnings(), at_least(logging.INFO, "hydra.core.utils"):
        warnings.simplefilter("ignore", UserWarning)
        return original(*args, **kwargs)
