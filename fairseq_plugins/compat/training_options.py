"""Options of a training that cannot work, checked before anything is built."""

import difflib
import glob
import math
import os
from collections.abc import Callable, Mapping, MutableSequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from fairseq.data import data_utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq.file_io import PathManager
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY, FairseqEncoderModel
from fairseq.tasks import TASK_REGISTRY
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from fairseq.tasks.translation import TranslationTask

from fairseq_plugins.compat.literals import read_literal
from fairseq_plugins.compat.patch import before_main, repair
from fairseq_plugins.compat.plugin import plugin
from fairseq_plugins.errors import ConfigurationError, check_known, check_range, flag
from fairseq_plugins.files import json_object
from fairseq_plugins.options.search import NOT_OF_SEARCH
from fairseq_plugins.options.search import check as check_values

# the least and the largest value of fairseq's numbers, by their group and name
RANGES: dict[tuple[str, str], tuple[float, float]] = {
    ("checkpoint", "save_interval"): (1, math.inf),
    ("common", "log_interval"): (1, math.inf),
    ("common", "seed"): (0, 2**32 - 1),
    ("criterion", "label_smoothing"): (0, 1),
    ("dataset", "batch_size"): (1, math.inf),
    ("dataset", "max_tokens"): (1, math.inf),
    ("dataset", "num_workers"): (0, math.inf),
    ("dataset", "validate_interval"): (1, math.inf),
    ("ema", "ema_decay"): (0, 1),
    ("optimization", "clip_norm"): (0, math.inf),
    ("optimization", "lr"): (0, math.inf),
    ("optimization", "max_epoch"): (0, math.inf),
    ("optimization", "max_update"): (0, math.inf),
    ("optimization", "update_freq"): (1, math.inf),
    ("optimizer", "weight_decay"): (0, math.inf),
}
LOSSES = ("loss", "nll_loss", "ppl")


@repair()
def check_before_training() -> None:
    """Check options before anything is built.

    - `common.memory_efficient_fp16` and `_bf16` of fairseq-hydra-train train in float32; they now
      imply fp16 and bf16, as their help says.
    - Without an optimizer, and in fairseq-hydra-train without a task, model, criterion or schedule,
      a training ends in a traceback.
    - A criterion or model for labels ends in a traceback if the task has text, and a model for text
      if it has labels.
    - `--save-interval`, `--validate-interval` or `--log-interval` of 0 ends in a division by zero,
      at the end of the first epoch at the latest.
    - `--save-interval` above 1 does not save the last epochs of `--max-epoch`.
    - `--stop-min-lr` ends a training whose warm-up begins at 0 before its first update.
    - `--best-checkpoint-metric` that is misspelt or not measured, and an unknown
      `--eval-bleu-remove-bpe`, fail at the first validation, before anything is saved. A metric
      that is better if higher keeps the worst checkpoint without
      `--maximize-best-checkpoint-metric`.
    - A folder as `--restore-file` or `--finetune-from-model` trains from scratch, as does a missing
      `--restore-file`; a missing model to fine-tune is reported after the model is built.
    - Unknown names in `--eval-bleu-args` have no effect.
    - `--update-freq`, `--batch-size` or inverse_sqrt's `--warmup-updates` of 0, and `--adam-betas`
      of one number end in tracebacks. Label smoothing and decays of an average outside 0 to 1 train
      nothing useful.

    Raises:
        ConfigurationError: an option cannot work; the message names it, and what would work.
    """

    @before_main
    def check(cfg: Any, program: str) -> None:
        for precision in ("fp16", "bf16"):
            if getattr(cfg.common, f"memory_efficient_{precision}", False):
                setattr(cfg.common, precision, True)
        if program == "train":
            _check_parts(cfg)
        _check_criterion(cfg)
        _check_model(cfg)
        _check_numbers(cfg)
        _check_intervals(cfg)
        _check_metric(cfg)
        _check_beginning(cfg.checkpoint)
        for score in plugin.scores:
            _check_score(f"eval_{score}", cfg.task)


def is_of_text(task: Any) -> bool:
    """Whether the task of this name reads and writes text."""
    return issubclass(TASK_REGISTRY.get(task, object), TranslationTask)


def is_of_labels(task: Any) -> bool:
    """Whether the task of this name gives labels to text."""
    return issubclass(TASK_REGISTRY.get(task, object), SentencePredictionTask)


def _check_parts(cfg: Any) -> None:
    for option, part, such_as in (
        ("--task", cfg.task, "translation"),
        ("--arch", cfg.model, plugin.text_model),
        ("--criterion", cfg.criterion, plugin.text_criterion),
        ("--optimizer", cfg.optimizer, "adam"),
        ("--lr-scheduler", cfg.lr_scheduler, "inverse_sqrt"),
    ):
        if part is None:
            raise ConfigurationError(f"{option} is missing: give one, such as {such_as}")


def _check_criterion(cfg: Any) -> None:
    task, criterion = (getattr(part, "_name", None) for part in (cfg.task, cfg.criterion))
    if is_of_text(task) and hasattr(cfg.criterion, "classification_head_name"):
        raise ConfigurationError(
            f"--criterion {criterion} is for labels, but --task {task} has text: use --criterion "
            f"{plugin.text_criterion}"
        )


def _model_class(model: Any) -> Any:
    """The class of the model in a configuration; None for no model or an unknown one."""
    name = getattr(model, "_name", None)
    return ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)


def _check_model(cfg: Any) -> None:
    task, arch = (getattr(part, "_name", None) for part in (cfg.task, cfg.model))
    model = _model_class(cfg.model)
    if is_of_text(task) and issubclass(model or object, FairseqEncoderModel):
        raise ConfigurationError(
            f"--arch {arch} has no decoder, but --task {task} writes text: use --arch "
            f"{plugin.text_model}, or for labels --task {plugin.label_task} --criterion "
            "sentence_prediction"
        )
    if is_of_labels(task) and model and not hasattr(model, "register_classification_head"):
        raise ConfigurationError(
            f"--arch {arch} gives no labels, but --task {task} has them: use --arch "
            f"{plugin.label_model}"
        )


def check_ranges(value_of: Callable[[str, str], Any]) -> None:
    """Check the options of `RANGES`.

    Args:
        value_of: the value of an option, given the names of fairseq's group and of the option: a
            number, a list of these, or None.

    Raises:
        ConfigurationError: a number is outside its range.
    """
    for (group, name), (least, most) in RANGES.items():
        value = value_of(group, name)
        for number in value if isinstance(value, MutableSequence) else [value]:
            if number is not None:
                check_range(flag(name), number, least, most)


def _check_numbers(cfg: Any) -> None:
    check_ranges(lambda section, name: getattr(getattr(cfg, section, None), name, None))
    scheduler, name = cfg.lr_scheduler, getattr(cfg.lr_scheduler, "_name", None)
    warmup = getattr(scheduler, "warmup_updates", None)
    if isinstance(warmup, int):  # inverse_sqrt's rate is a multiple of its square root
        check_range("--warmup-updates", warmup, 1 if name == "inverse_sqrt" else 0)
    betas = getattr(cfg.optimizer, "adam_betas", None)
    if isinstance(betas, str):
        try:
            first, second = read_literal(betas)
            if not (0 <= first < 1 and 0 <= second < 1):
                raise ValueError
        except (ValueError, TypeError):
            raise ConfigurationError(
                f"--adam-betas '{betas}': give two numbers below 1, such as '(0.9, 0.98)'"
            ) from None


def _check_score(option: str, task: Any) -> None:
    """Check options that belong to `--eval-bleu` or to a similar option."""
    words = json_object(f"{option}_args", getattr(task, f"{option}_args", None))
    check_search_options(flag(f"{option}_args"), words)
    kind = getattr(task, f"{option}_remove_bpe", None)
    try:
        data_utils.post_process("", kind)
    except NotImplementedError:
        raise ConfigurationError(
            f"{flag(option)}-remove-bpe {kind} is unknown: give subword_nmt or sentencepiece, as "
            "the text was split"
        ) from None


def _check_intervals(cfg: Any) -> None:
    epochs, interval = cfg.optimization.max_epoch, cfg.checkpoint.save_interval
    updates = cfg.optimization.max_update
    if interval > 1 and epochs > 0 >= updates and epochs % interval and not cfg.checkpoint.no_save:
        raise ConfigurationError(
            f"--save-interval {interval} does not save the last of --max-epoch {epochs} epochs: "
            f"give a multiple of {interval}, or --keep-last-epochs instead of --save-interval"
        )
    least, scheduler = cfg.optimization.stop_min_lr, cfg.lr_scheduler
    begins = getattr(scheduler, "warmup_init_lr", 0)
    from_zero = begins is None or begins <= 0
    if least >= 0 and getattr(scheduler, "warmup_updates", 0) and from_zero:
        add = "add --warmup-init-lr 1e-7, or " if hasattr(scheduler, "warmup_init_lr") else ""
        raise ConfigurationError(
            f"--stop-min-lr {least} ends the training before its first update, as the learning "
            f"rate begins at 0: {add}remove it"
        )


def _check_metric(cfg: Any) -> None:
    metric = cfg.checkpoint.best_checkpoint_metric
    of_text = {name: score for score, names in plugin.scores.items() for name in names}
    asked = getattr(cfg.task, f"eval_{of_text.get(metric)}", None)
    if asked is False:
        raise ConfigurationError(
            f"--best-checkpoint-metric {metric} is not measured: add --eval-{of_text[metric]}"
        )
    task = getattr(cfg.task, "_name", None)
    known = is_of_text(task) or is_of_labels(task)
    if asked is None and metric in of_text and known:
        raise ConfigurationError(
            f"--best-checkpoint-metric {metric} is not measured by --task {task}: give another one"
        )
    higher_is_better = ("accuracy", *of_text)
    metrics = (*LOSSES, *higher_is_better)
    if metric not in metrics and known:
        for near in difflib.get_close_matches(metric, metrics, n=1, cutoff=0.8):
            raise ConfigurationError(
                f"--best-checkpoint-metric {metric} is not measured: did you mean {near}?"
            )
    if metric in higher_is_better and not cfg.checkpoint.maximize_best_checkpoint_metric:
        raise ConfigurationError(
            f"--best-checkpoint-metric {metric} keeps the lowest: add "
            "--maximize-best-checkpoint-metric"
        )


def has_checkpoints(cfg: Any) -> bool:
    """Whether a training with these options of fairseq's group `checkpoint` has begun."""
    return bool(list(Path(cfg.save_dir).glob("checkpoint*.pt")))


def _check_beginning(cfg: Any) -> None:
    name = "restore_file"
    if cfg.restore_file == "checkpoint_last.pt":  # which fairseq looks for in --save-dir
        name = "finetune_from_model"
    path = getattr(cfg, name)
    if path is None or (name == "finetune_from_model" and has_checkpoints(cfg)):
        return
    parts = glob.glob(glob.escape(path.removesuffix(".pt")) + "-*.pt")  # of sharded models
    if not parts and not PathManager.isfile(path):
        problem = "is a folder" if os.path.isdir(path) else "does not exist"
        raise ConfigurationError(
            f"{flag(name)} {path} {problem}, and training would start from scratch: give a "
            "checkpoint, or remove it"
        )


def check_search_options(option: str, given: Mapping[str, Any]) -> None:
    """Check the names and values of search options, such as those in `--eval-bleu-args`.

    Raises:
        ConfigurationError: a name is unknown, or a value cannot work.
    """
    known = (field.name for field in fields(GenerationConfig))
    check_known(given, known, f"{option}: ", NOT_OF_SEARCH)
    check_values(given)
