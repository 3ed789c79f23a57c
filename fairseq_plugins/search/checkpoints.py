"""Find and load the models of trainings.

A place is a checkpoint, or the folder of a training (`--save-dir`).
"""

import contextlib
import functools
import logging
import os
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import data_utils
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY

from fairseq_plugins.compat.checkpoints import stored_words
from fairseq_plugins.compat.data_files import MissingData
from fairseq_plugins.compat.generation import check_finite
from fairseq_plugins.compat.mismatched_models import ModelMismatch
from fairseq_plugins.data.prepared_folder import (
    Prepared,
    Record,
    check_data,
    differing,
    digests_of_words,
)
from fairseq_plugins.errors import ConfigurationError, check_path, flag
from fairseq_plugins.layers.feed_forwards import FEED_FORWARDS
from fairseq_plugins.layers.token_mixers import TOKEN_MIXERS
from fairseq_plugins.search.engine import Place
from fairseq_plugins.system.quiet import at_least, only_warnings_of_fairseq

DIRECTION = ("source_lang", "target_lang")


@functools.cache
def compute_after_forks() -> None:
    """Let forks of this process run models, with one thread of torch each.

    OpenMP's other threads exist only in the process that started them; a fork would wait for them
    forever.
    """
    os.register_at_fork(after_in_child=functools.partial(torch.set_num_threads, 1))


@only_warnings_of_fairseq()
@at_least(logging.ERROR, "fairseq_plugins.models.plan")  # training told options without effect
def load_models(
    paths: list[str],
    data: Place | None,
    classifier: bool | None = False,
    option: str = "--model",
    overrides: dict[str, Any] | None = None,
) -> tuple[Path, list[Any], Any]:
    """Load checkpoints.

    Args:
        paths: the checkpoints.
        data: the prepared folder; None for the folder that the first model was trained on.
        classifier: whether the models must be classifiers, or must generate text; None for either.
        option: the user's name for `paths`.
        overrides: values that replace options of the checkpoints.

    Returns:
        the prepared folder, the models and the task.

    Raises:
        ConfigurationError: the folder or its dictionaries are missing, fairseq cannot read such a
            path, the models were trained with other dictionaries or for several directions, they
            are of the wrong kind or have an unknown architecture, or a parameter is not a number.
    """
    compute_after_forks()
    overrides = dict(overrides or {})
    trainings = []
    for path in paths:
        state = checkpoint_utils.load_checkpoint_to_cpu(path)
        training = training_of(state, f"{option} {path}")
        trainings.append(training)
        if training.task.get("langs") or training.task.get("lang_pairs"):
            raise ConfigurationError(
                f"{option} {path} was trained with --task {training.task['_name']}, whose tokens "
                "of languages are not supported here: use fairseq-generate or fairseq-interactive"
            )
    if data is not None and not isinstance(data, (str, os.PathLike)):
        kind = type(data).__name__
        raise ConfigurationError(f"--data {data!r} is of type {kind}: give the prepared folder")
    named = trained_on(trainings[0].task)
    data = find_data(Path(paths[0]), trainings[0]) if data is None else Path(data)
    if data is None:
        raise ConfigurationError(
            f"the model was trained on {named}, which is missing: give the prepared folder with "
            "--data"
        )
    check_path("--data", data)
    if data != named:
        overrides["data"] = str(data)
    check_data(data, "--data")
    trained_for = check_same_text(paths, trainings, Prepared(data))
    if trained_for is not None and trained_for != _pair_of_files(data):
        overrides.update(zip(DIRECTION, trained_for))
    try:
        # fairseq ignores overrides if it is given a state
        known = state if len(paths) == 1 and not overrides else None
        models, _, task = checkpoint_utils.load_model_ensemble_and_task(
            paths, overrides, state=known
        )
    except ModelMismatch as error:
        if not error.parameter.endswith("embed_tokens.weight"):
            raise
        raise ConfigurationError(
            f"{' '.join(paths)} was not trained with the dictionaries in {data}"
        ) from None
    if classifier and not len(getattr(models[0], "classification_heads", ())):
        raise ConfigurationError(f"{option} {paths[0]} is not a classifier: it writes text")
    if classifier is False and not hasattr(models[0], "decoder"):
        raise ConfigurationError(
            f"{option} {paths[0]} writes no text: it is a classifier; use the command classify"
        )
    for path, model in zip(paths, models):
        check_finite(f"{option} {path}", model)
    return data, models, task


def limits(models: Sequence[Any], task: Any) -> tuple[int, int]:
    """The most tokens of a source and of a hypothesis, without the end symbol."""
    of_models = (model.max_positions() for model in models)
    source, target = utils.resolve_max_positions(task.max_positions(), *of_models)
    return int(source) - 1, int(target) - 1


def check_parts(where: str, model: Mapping[str, Any], task: Mapping[str, Any]) -> None:
    """Refuse options of a checkpoint that name something unregistered.

    Raises:
        ConfigurationError: it belongs to another `--user-dir`.
    """
    known: dict[str, tuple[Any, Collection[str]]] = {
        "arch": (model.get("_name", model.get("arch")), {*ARCH_MODEL_REGISTRY, *MODEL_REGISTRY}),
        "task": (task.get("_name", task.get("task")), TASK_REGISTRY),
        "encoder_token_mixer": (model.get("encoder_token_mixer"), list(TOKEN_MIXERS)),
        **{name: (model.get(name), list(FEED_FORWARDS)) for name in ("encoder_ffn", "decoder_ffn")},
    }
    for name, (value, choices) in known.items():
        if value and value not in choices:
            raise ConfigurationError(
                f"{where} has {flag(name)} {value}, which is unknown here: give the folder that "
                "defines it with --user-dir"
            )


class Training(NamedTuple):
    """Facts about a training, from its checkpoint."""

    task: Any  # its options
    words: Mapping[str, str]  # `digests_of_words` of its folder; empty in those of fairseq itself


def training_of(state: dict[str, Any], where: str) -> Training:
    """Facts about a training, from a checkpoint's content.

    Args:
        state: the content.
        where: the checkpoint, for an error.

    Raises:
        ConfigurationError: see `check_parts`.
    """
    task = options_in(state, "task")
    check_parts(where, options_in(state, "model"), task)
    return Training(task, stored_words(state))


def options_in(state: dict[str, Any], group: str) -> Any:
    """Options of the "model" or "task" in a checkpoint; fairseq's older ones have a Namespace."""
    kept = state.get("cfg")
    options = (state["args"] if kept is None else kept.get(group)) or {}
    return vars(options) if isinstance(options, Namespace) else options


def trained_on(task: Any) -> Path:
    """The prepared folder in the options of a task."""
    return Path(utils.split_paths(task["data"])[0])


def find_data(checkpoint: Path, training: Training) -> Path | None:
    """The prepared folder of a training; None if it is missing.

    If the training named it relative to another working directory, it is looked for in the folders
    above the checkpoint, and must have the training's words.
    """
    named = trained_on(training.task)
    if named.is_dir():
        return named
    for parent in checkpoint.resolve().parents if training.words else ():
        # an error: another folder of this name
        with contextlib.suppress(OSError, UnicodeDecodeError, ConfigurationError):
            if training.words.items() <= digests_of_words(parent / named).items():
                return parent / named
    return None


def direction(task: Any) -> tuple[str, str] | None:
    """The languages that a model was trained to read and to write.

    From its options, or from the folder that it was trained on if the options do not set them.

    Args:
        task: the task options of a training.

    Returns:
        None for a task without languages, for a model of both directions, and if the folder is
            missing.
    """
    if any(name not in task for name in DIRECTION):
        return None
    source, target = (task[name] for name in DIRECTION)
    if source and target:
        return source, target
    folder = trained_on(task)
    both = Record.read(folder).settings.get("bidirectional")
    return None if both else _pair_of_files(folder)


def _pair_of_files(folder: Path) -> tuple[str, str] | None:
    """The languages in the names of prepared files, as fairseq finds them; None without files."""
    try:
        return data_utils.infer_language_pair(str(folder))
    except MissingData:
        return None


def check_same_text(
    paths: Sequence[str], trainings: Sequence[Training], prepared: Prepared
) -> tuple[str, str] | None:
    """Check that models have one direction, and the words of the dictionaries in a folder.

    Sizes are not enough: fairseq pads dictionaries to multiples of 8. A checkpoint without digests
    of its words uses the training's folder; if that is missing, words are not compared.

    Args:
        paths: the checkpoints.
        trainings: the facts about each training.
        prepared: the prepared folder.

    Returns:
        the direction of the models; None if it is unknown for all (see `direction`).

    Raises:
        ConfigurationError: models differ in direction, or a model has other words.
    """
    directions: dict[tuple[str, str], str] = {}
    here, data = prepared.words, prepared.folder
    for path, training in zip(paths, trainings):
        pair = direction(training.task)
        if pair is not None:
            directions.setdefault(pair, path)
        folder = trained_on(training.task)
        known = training.words or digests_of_words(folder)
        if differing(known, here):
            found = f" but with those in {folder}" if folder != data else ""
            raise ConfigurationError(
                f"{path} was not trained with the dictionaries in {data}{found} "
                f"({', '.join(differing(known, here))}): give the folder that it was trained on"
            )
    if len(directions) > 1:
        told = ", ".join(f"{path} {pair[0]}-{pair[1]}" for pair, path in directions.items())
        raise ConfigurationError(f"models of two directions cannot form an ensemble: {told}")
    return next(iter(directions), None)
