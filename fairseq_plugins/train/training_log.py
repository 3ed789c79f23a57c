"""Times and progress from a training log."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

RESUMED = re.compile(r"Loaded checkpoint .* \(epoch .* @ (?P<update>\d+) updates")
NUMBER = r"([\d.]+(?:e[+-]?\d+)?)"  # fairseq writes a million as 1e+06
REPORT = re.compile(rf"epoch (\d+): +\d+ / (\d+) .*\bwps={NUMBER}.*\bwpb={NUMBER}")
VALID = re.compile(r" valid on '([^']+)' subset.*")
VALUE = re.compile(rf"\| (\w+) {NUMBER}")
UPDATES = re.compile(r"\bnum_updates:?[ =](\d+)")
PAUSE = re.compile(r"begin validation|Preparing to save checkpoint|end of epoch \d")


class TrainingLog(NamedTuple):
    """Times and progress from a training log."""

    step_seconds: list[float]  # seconds per update, one value per report
    updates_per_epoch: int | None
    updates: int  # completed at the end of the log
    epoch: int  # started at the end of the log
    # "bleu", "nll_loss", ... of each validation, on the first subset of --valid-subset
    valid: list[dict[str, float]]


def read_log(lines: Iterable[str], skip: int = 0) -> TrainingLog:
    """Parse progress and the time per update.

    A report gives words per batch and words per second, averaged since the previous report. Reports
    are ignored for timing if validation, saving or the end of an epoch came since the previous one.
    A start that resumes nothing, because an earlier one left no checkpoint, begins the log anew.

    Args:
        lines: the training log, which may contain several starts.
        skip: number of updates after each start to ignore for timing.
    """
    seconds: list[float] = []
    valid: list[dict[str, float]] = []
    per_epoch, updates, begun, epoch = None, 0, 0, 0
    subset = ""
    whole = False  # whether only training happened since the last report
    anew = False  # whether this start has resumed nothing so far
    for line in lines:
        loaded, found = RESUMED.search(line), REPORT.search(line)
        if line.startswith("# "):
            whole, begun, anew = False, 0, True
        elif loaded:
            begun = int(loaded["update"])
            anew = begun == 0
        elif PAUSE.search(line):
            whole = False
        elif found:
            if anew:
                seconds, valid, anew = [], [], False
            epoch, per_epoch = int(found.group(1)), int(found.group(2))
            speed, words = float(found.group(3)), float(found.group(4))
            if whole and updates >= begun + skip and speed > 0:
                seconds.append(words / speed)
            whole = True
        validation = VALID.search(line)
        subset = subset or (validation[1] if validation else "")
        if validation and validation[1] == subset:
            values = VALUE.findall(validation.group())
            valid.append({name: float(value) for name, value in values})
        done = UPDATES.search(line)
        if done:
            updates = int(done.group(1))
    return TrainingLog(seconds, per_epoch, updates, epoch, valid)


def log_of(folder: Path, skip: int = 0) -> TrainingLog:
    """`read_log` of the folder of a training."""
    with open(folder / "train.log", encoding="utf-8", errors="replace") as log:
        return read_log(log, skip)
