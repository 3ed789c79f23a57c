"""Draw the plots of examples/translation from the results of all its runs.

    fairseq-plugins plot-results     # needs matplotlib: install.sh --extras plot

The plots show BLEU on the validation set of one checkpoint against hours of training, which are
updates times the median time of one, without validation and saving; test scores against training
pairs, beside those of Sennrich & Zhang 2019; test scores of all models against their hours of
training; and those of distilled models against the time to translate a sentence. A curve that
begins with both directions shows the second stage, behind the hours of the first.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.files import read_json
from fairseq_plugins.lab.benchmarks import plots
from fairseq_plugins.lab.reproduction.plots import draw_sizes
from fairseq_plugins.lab.reproduction.tables import table_of
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import option

RESULTS = Path(__file__).resolve().parents[3] / "examples" / "translation" / "results"
FEW_PAIRS = "iwslt14_few_pairs_*_seed1*.json"
CURVES = {  # plot: pattern of its runs, range of BLEU
    "multi30k_learning_curves": ("multi30k_*_seed?.json", (34.0, 43.5)),
    "iwslt14_few_pairs_learning_curves": (FEW_PAIRS, (0.0, 28.0)),
}
PAIRS = "iwslt14_few_pairs_scores"
TIMES = "bleu_against_time"
DISTILLED = "tatoeba_distilled"
TIMED = {  # of DISTILLED: files of `benchmark generate`, the teacher in them, and contenders
    "translation/results/tatoeba_student": (
        "export:teacher",
        {
            "export:teacher": "teacher, two decoder layers, 7.2 M",
            "export:student": "student, two decoder layers, 6.6 M",
        },
    ),
    "translation/results/tatoeba_distilled": (
        "export:teacher",
        {
            "export:student": "one layer, started from the teacher's, 6.1 M",
            "export:student_control": "the same without distillation",
            "export:small": "one layer, 3.8 M",
            "export:small_control": "the same without distillation",
        },
    ),
    "deploy/tatoeba_trained": (
        "export:ftc",
        {"ctranslate2:transformer_ct2": "CTranslate2, a Transformer, not distilled"},
    ),
}
MODELS = {  # in the legend: rows that begin so
    "Transformer": r"transformer",
    "TransformerFTC": r"(ftc|fc|tc)(_both)?(,|$)",
    "MSCFFN": r"(ftc_)?mscffn",
    "Fastformer": r"fastformer",
}


def read_runs(pattern: str) -> list[dict[str, Any]]:
    """The results of the runs that a pattern of names fits."""
    return [read_json(path) for path in sorted(RESULTS.glob(pattern))]


def training_pairs(run: dict[str, Any]) -> int:
    """The number of training pairs, as `data` names it."""
    pairs = re.search(r"([\d,]+) / ", run["data"])
    assert pairs, run["data"]
    return int(pairs.group(1).replace(",", ""))


def learning_curve(run: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Hours of training, and BLEU on the validation set at each validation."""
    first = run.get("both directions first")
    before = first["updates"] * first["median_seconds_of_an_update"] / 3600 if first else 0.0
    last = run["epochs"][-1]["updates"]
    hours = [
        before + (run["hours_of_training"] - before) * epoch["updates"] / last
        for epoch in run["epochs"]
    ]
    return hours, [epoch["valid_bleu"] for epoch in run["epochs"]]


def draw_curves(name: str, folder: Path) -> None:
    """BLEU on the validation set against hours: a colour for each row, a line for each run."""
    pattern, limits = CURVES[name]
    runs = read_runs(pattern)
    whole = max(map(training_pairs, runs))
    with plots.figure(folder / f"{name}.svg", width=6.5, height=4.8) as (axis,):
        seen: dict[str, int] = {}
        for run in runs:
            row = run["row"]
            if training_pairs(run) < whole:
                row += f", {training_pairs(run):,} pairs"
            known = row in seen
            number = seen.setdefault(row, len(seen))
            axis.plot(
                *learning_curve(run), color=f"C{number % 10}", linewidth=1.1,
                linestyle=("-", "--")[number // 10], label=None if known else row,
            )  # fmt: skip
        axis.set_ylim(limits)
        axis.set_xlim(left=0)
        axis.set_xlabel("hours of training, without validation and saving")
        axis.set_ylabel("tokenised BLEU on the validation set, one checkpoint")
        axis.figure.legend(fontsize=7, ncol=3, loc="outside upper center")


def draw_pairs(folder: Path) -> None:
    """Test scores against the number of training pairs, beside the published curve."""
    published = table_of("low-resource").by_pairs
    assert published is not None
    points: dict[str, dict[int, float]] = {}
    for run in read_runs(FEW_PAIRS):
        ((_, scores),) = run["test"].items()
        points.setdefault(run["row"], {})[training_pairs(run)] = scores["BLEU"]
    draw_sizes(folder / f"{PAIRS}.svg", points, published, published["metric"])


def model_of(run: dict[str, Any]) -> str | None:
    """The model of a run; None unless the criterion is cross entropy."""
    if "SimCut" in run["row"]:
        return None
    return next((name for name, row in MODELS.items() if re.match(row, run["row"])), None)


def draw_times(folder: Path) -> None:
    """Test scores against hours of training: a colour for each model, a marker for each run."""
    panels = {
        "Multi30k English-German": read_runs("multi30k_*_seed?.json"),
        "IWSLT'14 German-English, 48,880 pairs": [
            run for run in read_runs(FEW_PAIRS) if training_pairs(run) == 48880
        ],
    }
    names = list(MODELS)
    with plots.figure(folder / f"{TIMES}.svg", columns=2, width=4.4, height=3.9) as axes:
        known: set[str] = set()
        for axis, (title, runs) in zip(axes, panels.items()):
            points = [(model_of(run), "_both" in run["row"], run) for run in runs]
            shown = [(model, both, run) for model, both, run in points if model]
            for model, both, run in sorted(shown, key=lambda each: (each[1], names.index(each[0]))):
                label = f"{model}, both directions first" if both else model
                colour = plots.COLOURS[names.index(model)]
                filled = "two processes" not in run["machine"]
                ((_, scores),) = run["test"].items()
                axis.plot(
                    run["hours_of_training"], scores["tokenised BLEU"],
                    marker="^" if both else "o", linestyle="", color=colour,
                    markerfacecolor=colour if filled else "white",
                    label=None if label in known else label,
                )  # fmt: skip
                known.add(label)
            axis.set_title(title, fontsize=9)
            axis.set_xlim(left=0)
            axis.set_xlabel("hours of training on one core (hollow: on two)")
        axes[0].set_ylabel("tokenised BLEU on the test set")
        axes[0].figure.legend(fontsize=8, ncol=3, loc="outside upper center")


def draw_distilled(folder: Path) -> None:
    """Test scores of exported models against the time per sentence, with beams of 1, 2 and 5."""
    colours = iter(plots.COLOURS)
    colour = ""
    with plots.figure(folder / f"{DISTILLED}.svg", columns=2, width=4.4, height=3.9) as axes:
        for name, (teacher, systems) in TIMED.items():
            scored = read_json(RESULTS.parents[1] / f"{name}_32.json")["rows"]
            bleu = {
                row["contender"]: row["scores"]["BLEU"]["score"]
                for row in scored
                if "scores" in row
            }
            for system, label in systems.items():
                again = "control" in system
                colour = colour if again else next(colours)  # that of the row before
                for axis, batch in zip(axes, (1, 32)):
                    timed = read_json(RESULTS.parents[1] / f"{name}_{batch}.json")["rows"]
                    speed = {row["contender"]: row["sentences_a_second"] for row in timed}
                    own = [each for each in bleu if each.split()[0] == system and each in speed]
                    axis.plot(
                        [speed[teacher] / speed[each] for each in own],
                        [bleu[each] for each in own],
                        marker="o", color=colour, linestyle=":" if again else "-",
                        markerfacecolor="white" if again else colour,
                        label=label if batch == 1 else None,
                    )  # fmt: skip
        for axis, batch in zip(axes, (1, 32)):
            axis.set_title(f"batches of {batch}", fontsize=9)
            axis.set_xlim(left=0)
            axis.set_xlabel("time, ratio to the teacher's with beam 5")
        axes[0].set_ylabel("BLEU on the test set, beams of 1, 2 and 5")
        axes[0].figure.legend(fontsize=8, ncol=2, loc="outside upper center")


def draw(folder: Path) -> None:
    """Write all plots into a folder."""
    for name in CURVES:
        draw_curves(name, folder)
    draw_pairs(folder)
    draw_times(folder)
    draw_distilled(folder)


@dataclass
class PlotResults(Command):
    """The options of the command."""

    out: Path = option(RESULTS, "the folder for the plots (.svg)", metavar="DIR")


@command
def main(args: PlotResults) -> None:
    plots.check(args.out / f"{PAIRS}.svg")
    draw(args.out)
    print(f"{len(CURVES) + 3} plots are in {args.out}")
