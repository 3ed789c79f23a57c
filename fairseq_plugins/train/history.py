"""The history of a training: its reports as lines of JSON in the folder of the run."""

import contextlib
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.files import open_to_append

NAME = "history.jsonl"
WARM_UP = 100  # updates after each start that are not timed


class History(NamedTuple):
    """The progress of a training, and the time of its updates."""

    updates: int
    updates_per_epoch: int | None
    seconds: float | None  # median time of an update, without validation and saving
    # "num_updates", "bleu", "nll_loss", ... of each validation, on the first subset
    valid: list[dict[str, float]]


def add(folder: Path, **report: Any) -> None:
    """Append a report; a full disk does not end the training.

    Args:
        folder: that of the run.
        report: `update` of each report; `resumed` at a start; `seconds` of an update and
            `per_epoch` of one that only trained; `stats` and `hours` of training, and `subset` of a
            validation.
    """
    with contextlib.suppress(OSError), open_to_append(folder / NAME) as file:
        file.write(json.dumps(report) + "\n")


def numbers(stats: Mapping[str, Any]) -> dict[str, float]:
    """The values of a report of fairseq that are numbers."""
    return {name: value for name, value in stats.items() if isinstance(value, (int, float))}


def read(folder: Path, warm_up: int = WARM_UP) -> History:
    """Read the history of a run; what a killed training did after its last checkpoint is dropped.

    Args:
        folder: that of the run.
        warm_up: updates after each start that are not timed.
    """
    reports = _reports(folder)
    timed = [each for each in reports if each["update"] > each["begun"] + warm_up]
    seconds = [each["seconds"] for each in timed if each.get("seconds")]
    epochs = [each["per_epoch"] for each in reports if each.get("per_epoch")]
    return History(
        updates=reports[-1]["update"] if reports else 0,
        updates_per_epoch=epochs[-1] if epochs else None,
        seconds=statistics.median(seconds) if seconds else None,
        valid=[{"num_updates": each["update"], **each["stats"]} for each in _validations(reports)],
    )


def curves(folder: Path) -> dict[str, list[dict[str, float]]]:
    """Losses and scores of a run over time, of "train" and "valid".

    Each item has the update, "hours" of training, and "loss", "nll_loss", "bleu", ..., as far as
    they are known.
    """
    reports = _reports(folder)
    trained = [each for each in reports if "stats" in each and "subset" not in each]
    return {
        name: [{**each["stats"], "hours": each["hours"], "update": each["update"]} for each in kind]
        for name, kind in {"train": trained, "valid": _validations(reports)}.items()
    }


def _validations(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    valid = [each for each in reports if "subset" in each]
    return [each for each in valid if each["subset"] == valid[0]["subset"]]


def _reports(folder: Path) -> list[dict[str, Any]]:
    """The reports that count; `begun` is the update from which the training was resumed."""
    reports: list[dict[str, Any]] = []
    begun = 0
    path = folder / NAME
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        with contextlib.suppress(ValueError):  # a line that was cut by a full disk
            report = json.loads(line)
            if "resumed" in report:
                begun = report["resumed"]
                reports = [each for each in reports if each["update"] <= begun]
            else:
                reports.append({"hours": 0.0, **report, "begun": begun})
    return reports
