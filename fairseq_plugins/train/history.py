"""The history of a training: its reports as lines of JSON in the folder of the run."""

import contextlib
import json
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.files import open_to_append

NAME = "history.jsonl"
WARM_UP = 100  # updates after each start that are not timed


Point = dict[str, float]  # "update", "hours" of training, "loss", "nll_loss", "bleu", ...


class History(NamedTuple):
    """The progress of a training, and the time of its updates."""

    updates: int
    seconds: float | None  # median time of an update, without validation and saving
    train: list[Point]
    valid: list[Point]  # on the first subset


def add(folder: Path, **report: Any) -> None:
    """Append a report; a full disk does not end the training.

    Args:
        folder: that of the run.
        report: `update` of each report; `resumed` at a start; `seconds` of an update; `stats` and
            `hours` of training, and `subset` of a validation.
    """
    with contextlib.suppress(OSError), open_to_append(folder / NAME) as file:
        file.write(json.dumps(report) + "\n")


def read(folder: Path, warm_up: int = WARM_UP) -> History:
    """Read the history of a run; what a killed training did after its last checkpoint is dropped.

    Args:
        folder: that of the run.
        warm_up: updates after each start that are not timed.
    """
    reports = _reports(folder)
    timed = [each for each in reports if each["update"] > each["begun"] + warm_up]
    seconds = [each["seconds"] for each in timed if each.get("seconds")]
    curves: dict[str | None, list[Point]] = {None: []}  # by subset, None for training
    for each in reports:
        if "stats" in each:
            point = {**each["stats"], "hours": each["hours"], "update": each["update"]}
            curves.setdefault(each.get("subset"), []).append(point)
    train, *valid = curves.values()
    return History(
        updates=reports[-1]["update"] if reports else 0,
        seconds=statistics.median(seconds) if seconds else None,
        train=train,
        valid=valid[0] if valid else [],
    )


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
