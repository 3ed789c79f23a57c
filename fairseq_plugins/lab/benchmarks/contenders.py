"""Build the models to compare. A contender is an architecture with options of fairseq-train."""

import contextlib
import io
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fairseq_plugins.data.prepared_folder import check_data
from fairseq_plugins.errors import ConfigurationError, check_known
from fairseq_plugins.train.sweep_request import arguments_in

# options of every contender; the contender's own options come later and win
DEFAULTS = (
    "--optimizer adam --adam-betas '(0.9,0.98)' --lr 1e-4 --seed 1 --num-workers 0 "
    "--criterion label_smoothed_cross_entropy"
)
LABEL_SMOOTHING = 0.1  # of criterions that have it, where it is not given
HALF = {
    "bf16": ("--bf16", "--memory-efficient-bf16"),
    "fp16": ("--fp16", "--memory-efficient-fp16", "--amp"),
}


class Contender(NamedTuple):
    """An untrained model, with its fairseq configuration and task."""

    name: str
    cfg: Any
    task: Any
    model: Any  # a torch.nn.Module


def configure(words: str, common: str, data: str, dtype: str, cpu: bool) -> Any:
    """fairseq's configuration for "ARCH [options]".

    Args:
        words: an architecture and any options of fairseq-train.
        common: options of all contenders.
        data: the prepared folder.
        dtype: "fp32", "bf16" or "fp16"; options such as --bf16 or --amp in the words win.
        cpu: whether the model runs on the CPU even if there is a GPU.

    Returns:
        fairseq's FairseqConfig.

    Raises:
        ConfigurationError: the architecture or an option is unknown or invalid.
    """
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.models import ARCH_MODEL_REGISTRY

    from fairseq_plugins.options.fairseq_parser import parse

    own, shared = arguments_in("contender", words), arguments_in("--options", common)
    check_known(own[:1] or [""], ARCH_MODEL_REGISTRY, "", "is not an architecture")
    line = [data, "--arch", own[0], *shlex.split(DEFAULTS), *shared, *own[1:]]
    given_types = [word for flags in HALF.values() for word in flags if word in line]
    if dtype != "fp32" and not given_types:
        line.append(HALF[dtype][0])
    if cpu:
        line.append("--cpu")
    try:
        parsed = parse(line)
    except ConfigurationError as error:
        raise ConfigurationError(f"`{words}`: {error}") from None
    smoothed = any(word.startswith("--label-smoothing") for word in line)
    if hasattr(parsed, "label_smoothing") and not smoothed:
        parsed.label_smoothing = LABEL_SMOOTHING
    return convert_namespace_to_omegaconf(parsed)


def build_on_data(words: str, common: str, data: Path, dtype: str, cpu: bool) -> Contender:
    """Build the model as fairseq-train does for a prepared folder.

    Arguments are those of `configure`.

    Raises:
        ConfigurationError: see `configure`; or the folder has no dictionaries.
    """
    from fairseq import tasks

    check_data(data)
    cfg = configure(words, common, str(data), dtype, cpu)
    return _build(words, cfg, tasks.setup_task(cfg.task))


def build_without_data(
    words: str, common: str, vocabulary: int, dtype: str, cpu: bool
) -> Contender:
    """Build the model with an artificial dictionary of `vocabulary` types for both sides.

    The other arguments are those of `configure`.

    Raises:
        ConfigurationError: see `configure`.
    """
    from fairseq.data import Dictionary
    from fairseq.tasks.translation import TranslationTask

    cfg = configure(words, common, "none", dtype, cpu)
    dictionary = Dictionary()
    for index in range(vocabulary - len(dictionary)):
        dictionary.add_symbol(f"w{index}")
    return _build(words, cfg, TranslationTask(cfg.task, dictionary, dictionary))


def _build(words: str, cfg: Any, task: Any) -> Contender:
    torch.manual_seed(1)  # models of the same shape start with the same parameters
    with contextlib.redirect_stdout(io.StringIO()):
        model = task.build_model(cfg.model)
    return Contender(words, cfg, task, model)


def build_trainer(contender: Contender, max_tokens: int | None = None) -> Any:
    """fairseq's Trainer, whose `train_step` is one step of fairseq-train.

    Args:
        contender: its --cuda-graphs has its effect here, too.
        max_tokens: of a batch, for the captured graphs.
    """
    from fairseq.trainer import Trainer

    from fairseq_plugins.graphs import captured_step

    contender.cfg.dataset.max_tokens = max_tokens
    criterion = contender.task.build_criterion(contender.cfg.criterion)
    trainer = Trainer(contender.cfg, contender.task, contender.model, criterion)
    trainer.save_checkpoint = lambda *args, **named: None  # a failing step would write crash.pt
    trainer.cuda_env = None  # else each step ends by resetting the GPU's peak of memory
    trainer.lr_step_update()
    if getattr(contender.cfg.model, "cuda_graphs", False):
        captured_step.prepare(trainer)
    return trainer


def captures(trainer: Any) -> int | None:
    """How many steps a trainer has captured; None without --cuda-graphs."""
    if not getattr(trainer.cfg.model, "cuda_graphs", False):
        return None
    step = trainer.optimizer.captured_step
    return 0 if step is None else len(step.captures)


def forward_precision(trainer: Any) -> Any:
    """The context of a forward pass outside fairseq's training step, which has one for --amp."""
    if trainer.cfg.common.amp and trainer.device.type == "cuda":
        return torch.autocast("cuda")
    return contextlib.nullcontext()


def count_parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
