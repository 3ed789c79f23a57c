"""Repairs of command-line options."""

import argparse
import importlib.util
import logging
import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from fairseq import options
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.dataclass import utils as dataclass_utils
from hydra.core.hydra_config import HydraConfig

from fairseq_plugins.compat.patch import after_parsing, around, before_main
from fairseq_plugins.compat.plugin import plugin
from fairseq_plugins.compat.training_options import is_of_labels
from fairseq_plugins.errors import ConfigurationError, flag
from fairseq_plugins.quiet import at_least

# the options for the file of a --bpe
FILES_OF_BPE = {
    "sentencepiece": "sentencepiece_model", "subword_nmt": "bpe_codes", "fastbpe": "bpe_codes",
}  # fmt: skip


def is_given(option: str, words: list[str] | None) -> bool:
    """Whether `option` is among `words`, or on the command line if `words` is None."""
    words = sys.argv[1:] if words is None else words
    return any(str(word).split("=")[0] == option for word in words)


def count_no_gpus_for_the_cpu() -> None:
    """Start one process with `--cpu`; fairseq starts one per GPU of the machine."""

    @around(options, "parse_args_and_arch")
    def parse_args_and_arch(
        original: Callable, parser: Any, input_args: Any = None, *args: Any, **kw: Any
    ) -> Any:
        size_given = is_given("--distributed-world-size", input_args)
        if is_given("--cpu", input_args) and not size_given:
            parser.set_defaults(distributed_world_size=1)
        return original(parser, input_args, *args, **kw)


def validate_without_a_task() -> None:
    """Give `--task` a default in fairseq-validate, which fails with `KeyError: None` without one.

    The task comes from the checkpoint; the name only decides which options exist.
    """

    @around(options, "parse_args_and_arch")
    def parse_args_and_arch(original: Callable, parser: Any, *args: Any, **kw: Any) -> Any:
        if parser.get_default("task") is None:
            parser.set_defaults(task="translation")
        return original(parser, *args, **kw)


def decay_until_max_update() -> None:
    """Let `--total-num-update` of polynomial_decay be `--max-update` unless given, as declared.

    fairseq's command line passes null instead, which hydra refuses.
    """

    @after_parsing
    def check(given: Namespace) -> None:
        if getattr(given, "total_num_update", 0) is None:
            if not given.max_update:
                raise ConfigurationError(
                    "--lr-scheduler polynomial_decay needs the number of updates after which the "
                    "learning rate ends: give --max-update N or --total-num-update N"
                )
            given.total_num_update = given.max_update


def require_a_criterion_of_labels() -> None:
    """Name the criterion for a task of labels.

    With a criterion without `classification_head_name`, the task's option of this name ends in an
    InterpolationKeyError.
    """

    @after_parsing
    def check(given: Namespace) -> None:
        task, name = (getattr(given, key, None) for key in ("task", "criterion"))
        options_of = CRITERION_DATACLASS_REGISTRY.get(name)
        known = getattr(options_of, "__dataclass_fields__", {})
        if name and is_of_labels(task) and "classification_head_name" not in known:
            raise ConfigurationError(
                f"--criterion {name} is for text, but --task {task} has labels: use --criterion "
                "sentence_prediction"
            )


def refuse_fractions_in_lists_of_whole_numbers() -> None:
    """Refuse `--update-freq 1.5`, which becomes 1, and `--lr 5e-` in one line."""

    @around(dataclass_utils, "eval_str_list")
    def eval_str_list(original: Callable, x: Any, x_type: Callable = float) -> Any:
        try:
            found = original(x, x_type)
        except SyntaxError:  # argparse expects a ValueError
            raise argparse.ArgumentTypeError(f"{x} is not a number") from None
        if x_type is int and found and found != original(x, float):
            raise argparse.ArgumentTypeError(f"{x}: give whole numbers")
        return found


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


def name_missing_files() -> None:
    """Name the option whose file a command lacks, instead of a traceback."""

    @after_parsing
    def check(given: Namespace) -> None:
        if getattr(given, "path", "") is None:
            raise ConfigurationError("give the checkpoint of a model: --path FILE")
        asked = {"input": getattr(given, "input", "-")}
        builds_bpe = hasattr(given, "beam")  # only the commands that search do
        if builds_bpe and getattr(given, "bpe", None) in FILES_OF_BPE:
            name = FILES_OF_BPE[given.bpe]
            asked[name] = getattr(given, name, None)
            if asked[name] in (None, "???"):
                raise ConfigurationError(f"--bpe {given.bpe} needs its file: {flag(name)} FILE")
        for name, path in asked.items():
            if path != "-" and "://" not in path and not os.path.exists(path):
                raise ConfigurationError(f"{flag(name)} {path} does not exist: correct the path")


def name_a_missing_model() -> None:
    """Ask for `--arch`, instead of a RuntimeError without a text."""

    @around(options, "parse_args_and_arch")
    def parse_args_and_arch(original: Callable, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except RuntimeError as error:
            if error.args:
                raise
            such_as = plugin.text_model
            raise ConfigurationError(f"--arch is missing: give one, such as {such_as}") from None


def show_errors_of_hydra() -> None:
    """Let hydra raise errors, so that `errors` prints one line.

    Otherwise fairseq-hydra-train prints a traceback: 49 lines for a wrong option.
    """
    if HydraConfig.initialized():  # hydra runs this program, and imports the user-dir in it
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")


def silence_hydra() -> None:
    """Drop five warnings and a debug line about how fairseq calls hydra 1.1 and newer.

    fairseq configures itself with hydra in every command, so each command began with fifteen lines
    that users cannot act on.
    """

    @around(dataclass_utils, "initialize", "compose")
    def in_silence(original: Callable, *args: Any, **kwargs: Any) -> Any:
        if original.__name__ == "initialize":
            kwargs["caller_stack_depth"] = 3  # fairseq's function, beyond two of this repair
        # importing fairseq alone sets the root logger to DEBUG (tasks/frm_text_to_speech.py)
        with warnings.catch_warnings(), at_least(logging.INFO, "hydra.core.utils"):
            warnings.simplefilter("ignore", UserWarning)
            return original(*args, **kwargs)
