"""The model to evaluate: its checkpoints or its export, and the options of its generation."""

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from fairseq import options
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks import TASK_DATACLASS_REGISTRY

from fairseq_plugins.compat.literals import read_literal
from fairseq_plugins.errors import ConfigurationError, flag
from fairseq_plugins.evaluate import averages
from fairseq_plugins.evaluate.request import EvaluationRequest, apart
from fairseq_plugins.options import fairseq_parser
from fairseq_plugins.options.search import FAIRSEQ_NAMES, OFF_IN_FAIRSEQ, Options, check
from fairseq_plugins.pretrained import CONFIG, is_export
from fairseq_plugins.search.choose_engine import open_engine
from fairseq_plugins.search.engine import Engine
from fairseq_plugins.search.torch_backend.trained_model import TrainedModel

# options of fairseq's tasks that this command sets or does anyway
OF_THE_TASK = {"data", "source_lang", "target_lang", "truncate_source"}
OF_CHECKPOINTS = ("fp16", "model_overrides", "batch_size")  # besides options of the search
NOT_OF_SEARCH = {"_name", "max_len_a", "max_len_b"}  # of fairseq's options of generation
LENGTHS = ("--max-len-a", "--max-len-b")


def parse_generation(words: Sequence[str]) -> argparse.Namespace:
    """The options of generation, as fairseq-generate parses them; `limited` if they limit lengths.

    Raises:
        ConfigurationError: fairseq-generate does not take an option, or it changes the task, which
            the training determines.
    """
    place = ["DATA", "--path", "RUN"]
    given = fairseq_parser.parse([*place, *words], (), "fairseq-generate", generation_parser)
    check(vars(given))
    given.limited = any(word in LENGTHS for word in apart(words))
    options_of = getattr(TASK_DATACLASS_REGISTRY.get(given.task), "__dataclass_fields__", {})
    of_training = options_of.keys() - OF_THE_TASK
    for word in apart(words):
        if word in map(flag, of_training):
            raise ConfigurationError(
                f"{word} is for training, but the model is already trained: remove it"
            )
    return given


def generation_parser() -> argparse.ArgumentParser:
    """The parser of fairseq-generate's options."""
    parser = options.get_generation_parser()
    parser.add_argument("--arch", "-a", default="wav2vec2")  # as fairseq-generate adds it
    return parser


def open_with(given: argparse.Namespace, models: Sequence[Path], data: Path, cpu: bool) -> Engine:
    """Load checkpoints, or the folder of an export, with options of fairseq-generate.

    Raises:
        ConfigurationError: an option is not for such a model.
    """
    max_tokens = given.max_tokens or 4096
    if not is_export(models[0]):
        return TrainedModel(
            models, data, cpu, given.fp16, given, max_tokens, seed=given.seed,
            max_sentences=given.batch_size, overrides=read_literal(given.model_overrides),
            word_by_word=False, by_memory=not (given.max_tokens or given.batch_size),
        )  # fmt: skip
    return open_engine(
        models[0], max_tokens=max_tokens,
        threads=torch.get_num_threads(), **options_of_export(given),
    )  # fmt: skip


def options_of_export(given: argparse.Namespace) -> dict[str, Any]:
    """The options of the search for an exported model, from those of fairseq-generate.

    Raises:
        ConfigurationError: an option is only for checkpoints.
    """
    ours = {FAIRSEQ_NAMES.get(each.name, each.name): each.name for each in fields(Options)}
    of_checkpoints = {*GenerationConfig.__dataclass_fields__, *OF_CHECKPOINTS} - ours.keys()
    unset = generation_parser()
    for name in sorted(of_checkpoints - NOT_OF_SEARCH):
        if getattr(given, name) != unset.get_default(name):
            raise ConfigurationError(f"{flag(name)} is for checkpoints, not for an exported model")
    found = {name: getattr(given, theirs) for theirs, name in ours.items()}
    return {**found, **{name: max(0, found[name]) for name in OFF_IN_FAIRSEQ}}


def choose(run: Path, request: EvaluationRequest) -> list[Path]:
    """The checkpoints of a run to average, or the single one to use; of an export, its description.

    Raises:
        ConfigurationError: a checkpoint is missing, or there are too few.
    """
    if is_export(run):
        if request.last or request.best or request.checkpoint:
            raise ConfigurationError(f"{run} is an exported model, which has no checkpoints")
        return [run / CONFIG]
    if request.last is None and request.best is None:
        path = run / (request.checkpoint or "checkpoint_best.pt")
        if not path.is_file():
            have = ", ".join(sorted(path.name for path in run.glob("*.pt")))
            what = have or "no checkpoint: give the --save-dir of a training, in evaluate DATA RUN"
            raise ConfigurationError(f"{path} is missing: {run} has {what}")
        return [path]
    return averages.choose([run], request.last, request.best, request.by)
