"""Start a training from parts of another model (--init-from), and keep parts fixed (--freeze).

A pattern is a name of a parameter or a module, such as `encoder.layers.0`, and may have the
wildcards of a shell (`*`, `?`, `[01]`); commas separate several. A resumed training reads its own
checkpoint only.
"""

import logging
import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import Dictionary
from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_plugins.compat.patch import around, before_main
from fairseq_plugins.compat.training_options import has_checkpoints
from fairseq_plugins.data.prepared_folder import (
    check_data,
    dictionaries,
    differing,
    digests_of_words,
)
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.pretrained import find_checkpoint
from fairseq_plugins.search.checkpoints import Training, direction, find_data, training_of

logger = logging.getLogger(__name__)

# parameters with one row per symbol of the source's or the target's dictionary
ROWS = re.compile(r"(encoder|decoder)\.(embed_tokens|output_projection)\.(weight|bias)")
PART = re.compile(r"(.*?\.layers\.\d+|[^.]+\.[^.]+)")
ADVICE = "give a checkpoint, or the folder of a training"
LEAVE_OUT = "--init-skip '*.embed_tokens,*.output_projection'"


def install() -> None:
    """Let trainers freeze parameters before they make the optimizer, and load from --init-from.

    They load only if there is no checkpoint of the same training.
    """

    @before_main
    def check(cfg: Any, program: str) -> None:
        init_from = getattr(cfg.model, "init_from", None)
        if not init_from or has_checkpoints(cfg.checkpoint):
            return
        if cfg.checkpoint.finetune_from_model:
            raise ConfigurationError(
                "--init-from and --finetune-from-model both set the first parameters: give one"
            )
        find_checkpoint(init_from, "--init-from", ADVICE)
        if cfg.model.init_data:
            check_data(Path(utils.split_paths(cfg.model.init_data)[0]), "--init-data")

    @around(Trainer, "__init__")
    def __init__(
        original: Callable,
        self: Trainer,
        cfg: Any,
        task: Any,
        model: Any,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        freeze(model, getattr(cfg.model, "freeze", None))
        original(self, cfg, task, model, *args, **kwargs)

    @around(Trainer, "load_checkpoint")
    def load_checkpoint(original: Callable, self: Trainer, *args: Any, **kwargs: Any) -> Any:
        state = original(self, *args, **kwargs)
        if state is None and getattr(self.cfg.model, "init_from", None):
            load_what_fits(self.get_model(), self.task, self.cfg.model, self.words_of_data)
        return state


def freeze(model: torch.nn.Module, patterns: str | None) -> None:
    """Exclude the parameters that match from training.

    Raises:
        ConfigurationError: a pattern matches nothing, or nothing is left to train.
    """
    named = dict(model.named_parameters(remove_duplicate=False))
    for name in _select("--freeze", patterns, named) if patterns else ():
        named[name].requires_grad_(False)
    if not any(each.requires_grad for each in named.values()):
        raise ConfigurationError(f"--freeze {patterns} leaves no parameter to train")


@torch.no_grad()
def load_what_fits(model: Any, task: Any, options: Any, words: dict[str, str]) -> None:
    """Load the parameters of a checkpoint that the model has by name and shape; log which.

    Embeddings and the output projection are loaded row by row, each for the same symbol; rows of
    symbols that the checkpoint lacks keep their random start.

    Args:
        model: changed in place.
        task: has the dictionaries.
        options: of the model, with `init_from`, `init_only`, `init_skip` and `init_data`.
        words: `digests_of_words` of the data.

    Raises:
        ConfigurationError: nothing fits, a pattern matches no parameter, or the dictionaries of the
            checkpoint are needed but missing.
    """
    where = f"--init-from {options.init_from}"
    path = find_checkpoint(options.init_from, "--init-from", ADVICE)
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    stored, here = state["model"], dict(model.named_parameters(remove_duplicate=False))
    # fairseq's names become this model's; without a version, it would drop layers of the model
    stored |= {f"{side}.version": torch.tensor([3.0]) for side in ("encoder", "decoder")}
    model.upgrade_state_dict(stored)
    chosen = _select("--init-only", options.init_only or "*", here)
    chosen -= _select("--init-skip", options.init_skip, here) if options.init_skip else set()
    source, target = task.source_dictionary, task.target_dictionary
    now = {"encoder": source.symbols, "decoder": (target or source).symbols}
    before = now
    if any(name in stored and (ROWS.match(name) or "adaptive" in name) for name in chosen):
        training = training_of(state, where)
        same = task.cfg.data if words and training.words == words else None
        before = _symbols(path, training, options.init_data or same)
    report: dict[str, list[Any]] = {}  # by part: numbers loaded, all numbers, reasons of others
    for name, value in here.items():
        loaded, reason, old, by_rows = 0, "", stored.get(name), ROWS.match(name)
        if name not in chosen:
            reason = "not chosen"
        elif old is None:
            reason = "not in the checkpoint"
        elif "adaptive" in name and before["decoder"] != now["decoder"]:
            reason = "another vocabulary"
        elif old.shape[bool(by_rows) :] != value.shape[bool(by_rows) :]:
            reason = "another shape"
        elif by_rows:
            loaded = _copy_rows(old, before[by_rows[1]], value, now[by_rows[1]], where)
            reason = "" if loaded == value.numel() else "other symbols"
        else:
            value.copy_(old)
            loaded = value.numel()
        part = PART.match(name)
        entry = report.setdefault(part.group() if part else name, [0, 0, set()])
        entry[0], entry[1] = entry[0] + loaded, entry[1] + value.numel()
        entry[2] |= {reason} - {""}
    if not any(loaded for loaded, *_ in report.values()):
        raise ConfigurationError(
            f"{where} has no parameter that fits this model by name and shape: give a model of the "
            "same sizes, or other patterns for --init-only and --init-skip"
        )
    for name, (loaded, total, reasons) in report.items():
        told = f" ({', '.join(sorted(reasons))})" if reasons else ""
        logger.info(f"{where}: {name}: {loaded:,} of {total:,} numbers{told}")


def _copy_rows(
    old: Tensor, old_symbols: list[str], new: Tensor, new_symbols: list[str], where: str
) -> int:
    """Copy the rows of the symbols that both have, in place; returns how many numbers."""
    if len(old_symbols) > len(old):
        raise ConfigurationError(
            f"{where} has {len(old):,} embeddings, but its dictionary has {len(old_symbols):,} "
            "symbols: give the data that it was trained on by --init-data"
        )
    rows = {symbol: row for row, symbol in enumerate(old_symbols)}
    both = [(row, rows[symbol]) for row, symbol in enumerate(new_symbols) if symbol in rows]
    into, taken = map(list, zip(*both))  # all dictionaries have the special symbols
    new[into] = old[taken].to(new)
    return old[taken].numel()


def _select(option: str, patterns: str, names: Iterable[str]) -> set[str]:
    """The names that match one of the patterns; each pattern must match a name."""
    found = set()
    for pattern in map(str.strip, patterns.split(",")):
        matching = {n for n in names if fnmatchcase(n, pattern) or fnmatchcase(n, f"{pattern}.*")}
        if not matching:
            raise ConfigurationError(
                f"{option} {pattern} matches no parameter of the model, such as "
                f"{', '.join(list(names)[:3])}"
            )
        found |= matching
    return found


def _symbols(path: Path, training: Training, data: str | None) -> dict[str, list[str]]:
    """The symbols of a checkpoint's embeddings: from `data`, or the folder it was trained on."""
    folder = Path(utils.split_paths(data)[0]) if data else find_data(path, training)
    files = [each for each in dictionaries(folder) if each.parent.name != "label"] if folder else []
    pair = direction(training.task)
    if folder and pair:
        files = [folder / f"dict.{language}.txt" for language in pair]
    symbols = [Dictionary.load(str(each)).symbols for each in files if each.is_file()]
    known = symbols and (pair is None or len(symbols) == 2)
    if pair is None and any(each != symbols[0] for each in symbols):
        known = False  # which is the source's?
    if not known or (folder and differing(training.words, digests_of_words(folder))):
        told = (
            f"those in {folder} are others" if folder else "the data it was trained on is missing"
        )
        raise ConfigurationError(
            f"--init-from {path}: its dictionaries are needed to match words, but {told}: give the "
            f"data it was trained on by --init-data, or {LEAVE_OUT}"
        )
    return {"encoder": symbols[0], "decoder": symbols[-1]}
