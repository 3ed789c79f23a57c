"""What a recipe trains with: options from files, the batch shared out, and what may be resumed."""

import argparse
import hashlib
import itertools
import json
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence
from unittest import mock

from fairseq import options
from fairseq.data import indexed_dataset
from fairseq.dataclass.configs import (
    CheckpointConfig,
    CommonConfig,
    DatasetConfig,
    DistributedTrainingConfig,
)
from fairseq.models.transformer.transformer_config import DEFAULT_MAX_SOURCE_POSITIONS

import fairseq_plugins  # noqa: F401  (its options are read)
from fairseq_plugins.errors import ConfigurationError

STORED = "settings.json"
SHARING = "batch_of_a_process"  # what each process takes; beside the settings in the same file
# A training may go on with other values of these: they say how long it runs, what it logs, keeps
# and validates, and on which machine it is.
FREE = {"data", "update_freq", "max_update", "max_epoch", "stop_time_hours", "stop_min_lr"}
FREE |= {"no_progress_bar", "no_seed_provided", "tpu"}
for _group in (CommonConfig, CheckpointConfig, DistributedTrainingConfig):
    FREE |= set(_group.__dataclass_fields__)
FREE |= {
    name
    for name in DatasetConfig.__dataclass_fields__
    if "valid" in name or name in ("num_workers", "data_buffer_size", "max_tokens", "batch_size")
}
FREE -= {"seed", "finetune_from_model"}
# What decides where a training ends.
END = ("max_update", "max_epoch", "stop_time_hours", "stop_min_lr", "patience")


def read_settings(path: Path) -> List[str]:
    """The words of a settings file: options as in a shell, # begins a comment."""
    try:
        return shlex.split(path.read_text(encoding="utf-8"), comments=True)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"--settings {path} cannot be read: {error}") from None


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options as fairseq-train reads them, the architecture's own filled in.

    Raises:
        ConfigurationError: fairseq does not know an option or a value, in one line.
    """

    def refuse(message: str) -> None:
        message = re.sub(r" \(choose from .*", "", message, flags=re.DOTALL)
        raise ConfigurationError(f"fairseq-train does not take this: {message}")

    with mock.patch.object(sys, "argv", ["fairseq-train"]):
        parser = options.get_training_parser()
    with mock.patch.object(parser, "error", refuse):
        return options.parse_args_and_arch(parser, list(words))


class Batch(NamedTuple):
    """What one process takes at a time, and how many times before an update."""

    max_tokens: Optional[int]
    batch_size: Optional[int]
    update_freq: int

    def describe(self, processes: int) -> str:
        parts = []
        for size, unit in ((self.max_tokens, "tokens"), (self.batch_size, "sentences")):
            if size is not None:
                total = size * processes * self.update_freq
                parts.append(
                    f"{size:,} {unit} x {processes} process(es) x update-freq {self.update_freq} "
                    f"= {total:,}"
                )
        return ", ".join(parts)


def share(whole: Batch, processes: int, limit: Optional[int] = None) -> Batch:
    """The batch that each of `processes` processes takes, so that the total stays that of one.

    No process takes more at a time than the one did; of what is left, the fewest and so largest
    batches are chosen.

    Args:
        whole: what the settings say, which is for one process.
        limit: at most so many tokens at a time on a process; more batches are added up for it.

    Raises:
        ConfigurationError: the total cannot be kept exactly.
    """
    sizes = [size for size in (whole.max_tokens, whole.batch_size) if size is not None]
    totals = [size * whole.update_freq for size in sizes]
    if any(total % processes for total in totals):
        fitting = [n for n in range(1, 4 * processes) if not any(total % n for total in totals)]
        near = sorted(sorted(fitting, key=lambda n: (abs(n - processes), n))[:3])
        raise ConfigurationError(
            f"{processes} processes cannot share {_sizes(whole)} exactly: start {_either(near)} "
            "(--processes, --nodes), or change --max-tokens, --batch-size or --update-freq, which "
            "say what one process alone would do"
        )
    if limit is not None:
        if whole.max_tokens is None or limit < 1:
            raise ConfigurationError(
                f"--tokens-per-process {limit} must be above 0, and limits --max-tokens, which the "
                "settings must have"
            )
        sizes[0] = min(sizes[0], limit)
    update_freq = next(
        n
        for n in itertools.count(1)
        if all(
            total % (processes * n) == 0 and total <= size * processes * n
            for size, total in zip(sizes, totals)
        )
        or processes * n > max(totals, default=0)
    )
    shared = [
        None if size is None else size * whole.update_freq // (processes * update_freq)
        for size in (whole.max_tokens, whole.batch_size)
    ]
    if any(size == 0 for size in shared):
        raise ConfigurationError(
            f"{processes} process(es)"
            + (f" and --tokens-per-process {limit}" if limit is not None else "")
            + f" cannot share {_sizes(whole)} exactly: change one of them"
        )
    return Batch(shared[0], shared[1], update_freq)


def _sizes(batch: Batch) -> str:
    sizes = []
    if batch.max_tokens is not None:
        sizes.append(f"--max-tokens {batch.max_tokens}")
    if batch.batch_size is not None:
        sizes.append(f"--batch-size {batch.batch_size}")
    return " and ".join(sizes) + f" x --update-freq {batch.update_freq}"


def _either(numbers: Sequence[int]) -> str:
    words = [str(number) for number in numbers]
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def source_cut(args: argparse.Namespace) -> Optional[int]:
    """Where --truncate-source cuts sources; None without it."""
    if not getattr(args, "truncate_source", False):
        return None
    # fairseq's own architectures leave the default to be filled in later
    return getattr(args, "max_source_positions", DEFAULT_MAX_SOURCE_POSITIONS)


def longest_sentences(
    data: Path, subsets: Sequence[str], cut: Optional[int] = None
) -> Dict[str, int]:
    """For each subset that is there, how many tokens its longest side has.

    Sources count up to `cut`, where --truncate-source cuts them.
    """
    longest: Dict[str, int] = {}
    for subset in subsets:
        for index in data.glob(f"{subset}.*-*.*.idx"):
            path = str(index)[: -len(".idx")]
            dataset = indexed_dataset.make_dataset(
                path, impl=indexed_dataset.infer_dataset_impl(path)
            )
            # the sizes lie in a file that is mapped as long as the dataset lives
            size = int(dataset.sizes.max())
            pair, language = index.name[len(subset) + 1 : -len(".idx")].rsplit(".", 1)
            if cut is not None and pair.startswith(language + "-"):
                size = min(size, cut)
            longest[subset] = max(longest.get(subset, 0), size)
    return longest


def check_longest(
    batch: Batch, whole: Batch, processes: int, limited: bool, longest: Dict[str, int]
) -> None:
    """Raise a ConfigurationError if a sentence is longer than what a process takes at a time.

    Args:
        batch, whole: what a process takes, and what the settings say.
        limited: whether the user asked for small batches.
        longest: tokens of the longest sentence of each subset.
    """
    if batch.max_tokens is None:
        return
    for subset, size in longest.items():
        if size > batch.max_tokens:
            advice = f"--max-tokens {size} or more is needed"
            if whole.max_tokens is not None and size <= whole.max_tokens:
                advice = f"it must take {size} or more: start fewer processes"
                if limited:
                    advice += ", or give a larger --tokens-per-process"
            raise ConfigurationError(
                f"the longest sentence of {subset} has {size} tokens, and a process would take "
                f"{batch.max_tokens} at a time ({batch.describe(processes)}): {advice}"
            )


# --------------------------------------------------------------------------------------------------
# One folder, one training


def fingerprint(data: Path) -> str:
    """Stands for the content of a prepared folder, wherever it lies."""
    content = hashlib.sha256()
    for path in sorted([*data.glob("dict.*.txt"), *data.glob("train.*.idx")]):
        content.update(path.name.encode())
        content.update(path.read_bytes())
    return content.hexdigest()


def settled(args: argparse.Namespace, whole: Batch, data: Path) -> Dict[str, Any]:
    """All that the training depends on, as JSON can hold it."""
    values = {name: value for name, value in vars(args).items() if name not in FREE}
    # the total, as any number of processes may share it
    values["max_tokens"] = whole.max_tokens and whole.max_tokens * whole.update_freq
    values["batch_size"] = whole.batch_size and whole.batch_size * whole.update_freq
    values["data"] = fingerprint(data)
    return json.loads(json.dumps(values, default=str, sort_keys=True))


def check_same(save_dir: Path, settings: Dict[str, Any]) -> Dict[str, Any]:
    """Refuse to go on with other settings than a folder's checkpoints were trained with.

    Options that only one of the two knows, from another version of fairseq, are not compared, nor
    how the batch is shared out, SHARING.

    Returns:
        The settings of the checkpoints; empty if there are none.
    """
    if not any(save_dir.glob("checkpoint*.pt")):
        return {}
    try:
        stored = json.loads((save_dir / STORED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(
            f"--save-dir {save_dir} has checkpoints that no recipe wrote: choose another folder"
        ) from None
    changed = sorted(
        name
        for name in settings.keys() & stored
        if settings[name] != stored[name] and name != SHARING
    )
    if changed:
        name = changed[0]
        what = (
            "other data"
            if name == "data"
            else f"other settings (--{name.replace('_', '-')} was {stored[name]}, "
            f"is {settings[name]}" + (f"; {len(changed) - 1} more" if changed[1:] else "") + ")"
        )
        raise ConfigurationError(
            f"--save-dir {save_dir} holds a training with {what}: choose another folder, or remove "
            "it to start anew"
        )
    return stored


def store(save_dir: Path, settings: Dict[str, Any]) -> None:
    """Write the settings beside the checkpoints; several machines may do so at once."""
    handle, temporary = tempfile.mkstemp(prefix=STORED, dir=str(save_dir))
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(settings, file, indent=1, sort_keys=True)
        file.write("\n")
    os.chmod(temporary, 0o644)
    os.replace(temporary, str(save_dir / STORED))


def end_of(args: argparse.Namespace) -> Dict[str, Any]:
    """Where a training with these options ends."""
    return {name: getattr(args, name) for name in END}


def reached(save_dir: Path, end: Dict[str, Any]) -> bool:
    """Whether an earlier run ended there, or later."""
    try:
        before = json.loads((save_dir / "finished").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    further = 0 < end["max_update"] <= before["max_update"]
    return before == end or (further and {**before, "max_update": end["max_update"]} == end)
