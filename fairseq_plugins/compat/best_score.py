"""The best score of validation, when what it is computed from changes."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from fairseq.trainer import Trainer

from fairseq_plugins.compat.patch import repair
from fairseq_plugins.compat.resuming import EARLY_STOPPING, Plateau
from fairseq_plugins.errors import flag

logger = logging.getLogger(__name__)

SCORED_BY = "scored_by"  # in checkpoints, and of a trainer without validation
KIND_OF_BLEU = "bleu_of_valid"  # of tasks
FAIRSEQ = "fairseq's own"
# options that change a metric, after --eval-
OPTIONS = {
    "bleu": ("bleu_args", "bleu_detok", "bleu_detok_args", "bleu_remove_bpe", "tokenized_bleu"),
    "rouge": ("rouge_args", "rouge_remove_bpe", "rouge_stemmer", "rouge_unicode"),
}


@repair(Trainer, "save_checkpoint")
def store_what_scores_depend_on(
    original: Callable, self: Trainer, filename: str, extra_state: dict[str, Any]
) -> Any:
    """Store in a checkpoint what its best score depends on."""
    return original(self, filename, {**extra_state, SCORED_BY: scored_by(self)})


@repair(Trainer, "load_checkpoint")
def forget_scores_of_other_validations(
    original: Callable, self: Trainer, *args: Any, **kwargs: Any
) -> Any:
    """Forget the best score when a training resumes with other validation data, search or metric.

    fairseq compares later scores with it: `checkpoint_best.pt` may never be written again,
    --patience end the training, and reduce_lr_on_plateau lower the learning rate. The files of
    --keep-best-checkpoints stay, and are compared by the scores in their names.
    """
    state = original(self, *args, **kwargs)
    if state is None:
        return state
    before = state.get(SCORED_BY, {"BLEU of valid": FAIRSEQ})  # none of fairseq itself
    setattr(self, SCORED_BY, before)
    now = scored_by(self)
    other = [what for what in before if what in now and before[what] != now[what]]
    if other and "best" in state:
        del state["best"]
        state.pop(EARLY_STOPPING, None)
        state["val_loss"] = None  # `resume_validations` would give it to the scheduler
        if isinstance(self.lr_scheduler, Plateau):
            self.lr_scheduler.lr_scheduler._reset()
        changes = [f"{what} was {before[what]} and is now {now[what]}" for what in other]
        logger.info(f"{'; '.join(changes)}: the best value so far is forgotten")
    return state


def describe(kind: str) -> str:
    """A kind of BLEU, for messages."""
    return kind if kind == FAIRSEQ else f"{kind} of evaluate"


def scored_by(trainer: Trainer) -> dict[str, Any]:
    """What the score depends on, by names for messages; without validation, as it was."""
    cfg, task = trainer.cfg, trainer.task
    if cfg.dataset.disable_validation:
        return getattr(trainer, SCORED_BY, {})
    subsets = cfg.dataset.valid_subset
    found = {"--valid-subset": subsets, "--max-valid-steps": cfg.dataset.max_valid_steps}
    for option in ("best_checkpoint_metric", "maximize_best_checkpoint_metric"):
        found[flag(option)] = getattr(cfg.checkpoint, option)
    for subset in subsets.split(","):
        data = task.datasets.get(subset, ())
        tokens = int(np.sum(getattr(data, "sizes", ())))
        found[f"the size of {subset}"] = f"{len(data):,} sentences of {tokens:,} tokens"
    for metric, names in OPTIONS.items():
        if cfg.checkpoint.best_checkpoint_metric.startswith(metric):
            options = [f"eval_{name}" for name in names]
            found |= {flag(option): getattr(task.cfg, option, None) for option in options}
    if cfg.checkpoint.best_checkpoint_metric == "bleu":
        found["BLEU of valid"] = describe(getattr(task, KIND_OF_BLEU, FAIRSEQ))
    return found
