"""Plot learning curves of trainings, or the results of a sweep or benchmark.

    fairseq-plugins plot runs/transformer runs/transformer_ftc --out curves.svg
    fairseq-plugins plot runs/sweep_windows/results.json --out scores.svg
    fairseq-plugins plot speed.json --out speed.png

RUN is the folder of a training (--save-dir). Its losses on the training set and on the validation
set are drawn against updates and hours, and so are BLEU, ROUGE or accuracy where the training
computed them. Hours are those for which the training ran, with validation and saving, until now.
The JSON file of `sweep` gives the scores of its rows, and that of `benchmark --json` gives ratios
of time. The file's name ends in .svg or .png. This command needs matplotlib.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import output_file, read_json
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import REQUIRED, argument, option
from fairseq_plugins.system import plotting
from fairseq_plugins.train import history, sweep_report
from fairseq_plugins.train.history import History

LOSSES = {
    "nll_loss": "negative log-likelihood,\nbits per token",
    "loss": "loss, bits",  # of classifiers
}
SCORES = {
    "bleu": "BLEU, validation set",
    "rouge1": "ROUGE-1, validation set",
    "accuracy": "accuracy in %, validation set",
}
ACROSS = {"update": "updates", "hours": "hours of training"}


def read_run(folder: Path) -> History:
    """The curves of a training.

    Raises:
        ConfigurationError: the folder has no history, or the history has no losses yet.
    """
    if not (folder / history.NAME).is_file():
        raise ConfigurationError(
            f"{folder}: no such file, and no folder of a training with {history.NAME}: give the "
            "--save-dir of `train`, or a JSON file of `sweep` or `benchmark`"
        )
    found = history.read(folder)
    if not found.train and not found.valid:
        raise ConfigurationError(f"{folder / history.NAME} has no losses yet: plot the run later")
    return found


def plot_curves(path: Path, runs: dict[str, History]) -> None:
    """Draw losses and scores against updates and hours: a colour for each run."""
    every = [each for run in runs.values() for each in [*run.train, *run.valid]]
    shown = [next(name for name in LOSSES if any(name in each for each in every))]
    shown += [name for name in SCORES if any(name in each for each in every)]
    with plotting.figure(path, columns=2, rows=len(shown), height=2.9) as axes:
        for number, axis in enumerate(axes):
            value, (across, title) = shown[number // 2], list(ACROSS.items())[number % 2]
            for style, (name, run) in enumerate(runs.items()):
                colour = plotting.COLOURS[style % len(plotting.COLOURS)]
                marker = plotting.MARKERS[style % len(plotting.MARKERS)]
                looks: dict[str, dict[str, Any]] = {
                    "train": {"linestyle": ":", "linewidth": 1.2},
                    "valid": {"marker": marker, "ms": 3.5, "linewidth": 1.4, "label": name},
                }
                for kind, look in looks.items():
                    points = [each for each in getattr(run, kind) if value in each]
                    x, y = ([each[key] for each in points] for key in (across, value))
                    axis.plot(x, y, color=colour, **look)
            axis.set_xlim(0, 1.03 * max(each[across] for each in every) or None)
            axis.set_xlabel(title)
            if number % 2 == 0:
                axis.set_ylabel({**LOSSES, **SCORES}[value])
        axes[0].plot([], [], ":", color="#000000", label="dotted: training set")
        handles = axes[0].get_legend_handles_labels()
        axes[0].figure.legend(*handles, ncol=2, fontsize=8, loc="outside upper center")


@dataclass
class Plot(Command):
    """The options of the command."""

    runs: Sequence[Path] = argument(
        "the folder of a training; or one JSON file of sweep or benchmark", "RUN"
    )
    out: Path = option(REQUIRED, "the picture to write (.svg or .png)", metavar="FILE")


@command
def main(args: Plot) -> None:
    plotting.check(args.out, "--out")
    out, first = output_file("--out", args.out), args.runs[0]
    if not first.is_file():
        names = [run.resolve().name for run in args.runs]
        runs = {
            name if names.count(name) == 1 else str(run): read_run(run)
            for name, run in zip(names, args.runs)
        }
        plot_curves(out, runs)
    else:
        stored = read_json(first) if len(args.runs) == 1 else None
        results = stored if isinstance(stored, dict) else {}
        rows = results.get("rows", [])
        timed = [row for row in rows if row.get("time_ratio")]
        if rows and "metrics" in results:
            sweep_report.plot(results, out)
        elif timed and len({row["contender"] for row in timed}) == len(timed):
            plotting.bars(out, timed, f"{results['command']}: ratio to {rows[0]['contender']}")
        else:
            raise ConfigurationError(
                f"{first}: this is not the results.json of one sweep, and no ratios of time of one "
                "benchmark: give one such file, or folders of trainings"
            )
    print(f"written: {args.out}")
