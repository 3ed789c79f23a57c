"""The table and the plot of `reproduce`. Their only input is its results.json."""

import functools
import itertools
import logging
import os
import re
import statistics
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_plugins.files import written_whole
from fairseq_plugins.reproduction.intervals import Difference, Sample, half_interval, subtract
from fairseq_plugins.reproduction.tables import BASELINE, TABLES

MARKERS = "osD^vP*X"
CLAIMS = {"higher": 1, "not lower": 1, "lower": -1}
VALIDATION: Dict[str, Callable[..., float]] = {"bleu": max, "accuracy": max, "nll_loss": min}
AGREEMENT_NOTE = (
    "Agreement is open if the 95 % interval of the difference here includes 0, or with one seed "
    "(Welch's t over the seeds; one comparison in 20 is clear by chance). Published deviations "
    "give the paper's differences an interval too; without them their sign counts."
)
AGREEMENT = {1: "agrees", 0: "open", -1: "disagrees"}


class Curve(NamedTuple):
    """Validations of one run."""

    row: str
    seed: int
    hours: List[float]
    values: List[float]


# --- figures of a row -----------------------------------------------------------------------------


def scores(row: Dict[str, Any], metric: str) -> List[float]:
    """The score of each tested run of a row."""
    found = (run["scoring"]["scores"] for run in row["runs"] if run.get("scoring"))
    return [each[metric]["score"] for each in found if metric in each]


def paper_sample(results: Dict[str, Any], row: Dict[str, Any], place: int) -> Optional[Sample]:
    """The published figure of a row; without a published deviation it counts as one run."""
    if not row["paper"]:
        return None
    deviations, count = row["paper"]["deviations"], results.get("seeds_of_paper", 0)
    if deviations and count > 1:
        return Sample(row["paper"]["scores"][place], deviations[place], count)
    return Sample(row["paper"]["scores"][place], 0.0, 1)


def epoch_seconds(row: Dict[str, Any]) -> Optional[float]:
    """Seconds per epoch from the training logs: the median over the seeds of a row."""
    measured = [run["training"]["epoch_seconds"] for run in row["runs"]]
    measured = [seconds for seconds in measured if seconds is not None]
    return statistics.median(measured) if measured else None


def baseline_row(results: Dict[str, Any]) -> Dict[str, Any]:
    return next(row for row in results["rows"] if row["name"] == BASELINE)


def logged_ratio(results: Dict[str, Any], row: Dict[str, Any]) -> Optional[float]:
    baseline = baseline_row(results)
    here, there = epoch_seconds(row), epoch_seconds(baseline)
    return here / there if here and there else None


def interleaved_ratio(results: Dict[str, Any], row: Dict[str, Any]) -> Optional[float]:
    found = ((results["interleaved"] or {}).get("rows") or {}).get(row["name"])
    return found["time_ratio"] if found else None


def ratio_function(results: Dict[str, Any]) -> Callable[[Dict[str, Any], Dict[str, Any]], Any]:
    """The function that computes the table's time ratio: the interleaved one if measured."""
    return interleaved_ratio if results["interleaved"] else logged_ratio


def paper_ratio(results: Dict[str, Any], row: Dict[str, Any]) -> float:
    baseline = baseline_row(results)
    return row["paper"]["epoch_seconds"] / baseline["paper"]["epoch_seconds"]


# --- table ----------------------------------------------------------------------------------------


def cell(value: Optional[float], form: str) -> str:
    return "-" if value is None else form.format(value)


def spread(row: Dict[str, Any], metric: str) -> str:
    """The mean, deviation and number of the seeds, and the interval of the test texts."""
    values = scores(row, metric)
    if not values:
        return "-"
    shown = f"{statistics.mean(values):.2f}"
    if len(values) > 1:
        shown += f" ± {statistics.stdev(values):.2f} ({len(values)})"
    tested = [run["scoring"]["scores"] for run in row["runs"] if run.get("scoring")]
    ends = [each[metric]["interval"] for each in tested if "interval" in each.get(metric, {})]
    if ends:
        shown += " [{:.2f}, {:.2f}]".format(*map(statistics.mean, zip(*ends)))
    return shown


def published(results: Dict[str, Any], row: Dict[str, Any], place: int) -> str:
    """A published figure, with its deviation if there is one; or what the paper says in words."""
    paper = row["paper"]
    if not paper:
        return f"{row['claim']} than {row['against']}" if row["claim"] else "-"
    digits = 1 if results["timed"] else 2
    shown = f"{paper['scores'][place]:.{digits}f}"
    return shown + (f" ± {paper['deviations'][place]:.2f}" if paper["deviations"] else "")


def extent(values: List[int]) -> str:
    if not values:
        return "-"
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def distinct(values: List[Any]) -> List[Any]:
    return [value for number, value in enumerate(values) if value not in values[:number]]


def table(results: Dict[str, Any]) -> str:
    """The Markdown table, beside the paper's figures if there are any, and what can be concluded.

    Args:
        results: the content of results.json.
    """
    printed = has_paper(results)
    titles = [*results["columns"]]
    timing = ["s/epoch", "time ratio"] if results["timed"] else []
    for title in [*results["metrics"], *timing]:
        titles += [f"{title}, paper", f"{title}, here"] if printed else [title]
    lines = [f"{results['title']}{', reduced' if results.get('reduced') else ''}", ""]
    lines += _markdown([*titles, "parameters", "updates"])
    missing = len(titles) + 2 - len(results["columns"]) - 2 * len(results["metrics"])
    for row in results["cited"]:
        given = [value for score in row["scores"] for value in (f"{score:.1f}", "cited")]
        lines.append(_line([*row["labels"], *given, *["-"] * missing]))
    for row in results["rows"]:
        here = [spread(row, metric) for metric in results["metrics"]]
        theirs = [published(results, row, place) for place in range(len(here))]
        if timing:
            ratio = ratio_function(results)
            here += [cell(epoch_seconds(row), "{:.4g}"), cell(ratio(results, row), "{:.3f}")]
            if printed:
                theirs += [f"{row['paper']['epoch_seconds']}", f"{paper_ratio(results, row):.3f}"]
        figures = [each for pair in zip(theirs, here) for each in pair] if printed else here
        parameters = distinct([run["training"]["parameters"] for run in row["runs"]])
        figures.append(cell(parameters[0] / 1e6 if parameters else None, "{:.2f} M"))
        figures.append(extent([run["training"]["updates"] for run in row["runs"]]))
        lines.append(_line([*row["labels"], *figures]))
    lines += agreement(results) if printed else []
    lines += ["", *(f"- {note}" for note in notes(results)), *unfinished(results)]
    return "\n".join(lines) + "\n"


def has_paper(results: Dict[str, Any]) -> bool:
    return all(row["paper"] or row["claim"] or row["against"] == row["name"]
               for row in results["rows"])  # fmt: skip


# --- agreement with the paper ---------------------------------------------------------------------


def agreement(results: Dict[str, Any]) -> List[str]:
    """What agrees with the paper: each row against the row that the paper compares it with."""
    metric = results["metrics"][0]
    rows = {row["name"]: row for row in results["rows"]}
    lines = ["", f"Differences in {metric} [95 %], and whether they agree with the paper:", ""]
    lines += _markdown(["row", "against", "paper", "here", ""])
    for row in results["rows"]:
        if row["against"] in rows and row["against"] != row["name"]:
            base = rows[row["against"]]
            here = _difference(scores(row, metric), scores(base, metric))
            theirs, claimed = _claimed(results, row, base)
            verdict = "not run"
            if here:
                verdict = AGREEMENT[here.sign * claimed]
                verdict = "clear here alone" if here.sign and not claimed else verdict
            lines.append(_line([row["name"], base["name"], theirs, _signed(here), verdict]))
    return [*lines, "", *pairs_in_order(results)]


def pairs_in_order(results: Dict[str, Any]) -> List[str]:
    """How many pairs of rows have a clear order here, and the same one as in the paper."""
    metric, rows = results["metrics"][0], results["rows"]
    counts = {1: 0, 0: 0, -1: 0, "alone": 0}
    for row, other in itertools.combinations([row for row in rows if row["paper"]], 2):
        here = _difference(scores(row, metric), scores(other, metric))
        if here:
            sign = here.sign * _claimed(results, row, other)[1]
            counts[sign if sign or not here.sign else "alone"] += 1
    total = sum(counts.values())
    if not total:
        return []
    return [
        f"Pairs of rows: {total}. Their order is clear here and as in the paper for {counts[1]}, "
        f"clear and the other way round for {counts[-1]}, clear here alone for {counts['alone']}, "
        f"and open for {counts[0]}."
    ]


def _difference(ours: List[float], theirs: List[float]) -> Optional[Difference]:
    return subtract(Sample.of(ours), Sample.of(theirs)) if ours and theirs else None


def _claimed(results: Dict[str, Any], row: Dict[str, Any], base: Dict[str, Any]) -> Any:
    """The paper's difference as text, and its sign: 0 if its own interval includes 0."""
    here, there = (paper_sample(results, each, 0) for each in (row, base))
    if not here or not there:
        return row["claim"] or "-", CLAIMS.get(row["claim"], 0)
    found = subtract(here, there)
    if found.half is not None:
        return _signed(found), found.sign
    return _signed(found), (found.value > 0) - (found.value < 0)


def _signed(found: Optional[Difference]) -> str:
    if not found:
        return "-"
    if found.half is None:
        return f"{found.value:+.2f}"
    low, high = found.value - found.half, found.value + found.half
    return f"{found.value:+.2f} [{low:+.2f}, {high:+.2f}]"


# --- notes ----------------------------------------------------------------------------------------


def unfinished(results: Dict[str, Any]) -> List[str]:
    """Lines with the progress of the runs that are to be trained further."""
    if not results["unfinished"]:
        return []
    lines = ["", "Not finished. Rerun to resume:", ""]
    seen = {name for run in results["unfinished"] for found in run["valid"] for name in found}
    shown = [(name, best) for name, best in VALIDATION.items() if name in seen]
    titles = [title for name, _ in shown for title in (f"valid {name}", "best")]
    lines += _markdown(["run", "epoch", "updates", *titles])
    for run in results["unfinished"]:
        cells = [run["run"], str(run["epoch"]), f"{run['updates']:,}"]
        for name, best in shown:
            values = [found[name] for found in run["valid"] if name in found]
            for value in [values[-1], best(values)] if values else [None, None]:
                cells.append(cell(value, "{:.2f}"))
        lines.append(_line(cells))
    return lines


def _line(cells: List[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown(titles: List[str]) -> List[str]:
    return [_line(titles), "| --- " * len(titles) + "|"]


def notes(results: Dict[str, Any]) -> List[str]:
    """Data, scoring, seeds, timing and machine of the figures, with every known limitation."""
    runs = [run for row in results["rows"] for run in row["runs"]]
    data = results["data"]
    here = {**data["pairs"], **({"classes": data["classes"]} if "classes" in data else {})}
    found = [f"Data: {_counts(here)}, {data['name']}."]
    paper = results.get("data_of_paper", {})
    # papers round: 287.1k
    if any(abs(here.get(name, 0) - count) > 0.001 * count for name, count in paper.items()):
        found.append(
            f"The paper's data: {_counts(paper)}. Compare the rows here with each other, not with "
            "the paper's column."
        )
    found += results.get("remarks", [])
    if results["cited"]:
        found.append("cited: figures of other work that the paper quotes; they are not run.")
    failed = [f"Failed: {failure['run']}: {failure['message']}" for failure in results["failures"]]
    if not runs:
        return [*found, "No run is finished.", *failed]
    scored = [run["scoring"] for run in runs if run.get("scoring")]
    for metric in results["metrics"]:
        kind = " of lower-case tokens, not smoothed" if metric == "BLEU" else ""
        each = [score["scores"][metric] for score in scored if metric in score["scores"]]
        for signature in distinct([score["signature"] for score in each]):
            found.append(f"{metric}{kind}: `{signature}`.")
    if any("interval" in each for score in scored for each in score["scores"].values()):
        found.append(
            "[...] in the table: 95 % bootstrap interval of the test texts, its ends averaged over "
            "the seeds; it does not cover the choice of the seed."
        )
    found += test_notes(results)
    found += not_run(results)
    seeds = {
        row["name"]: tuple(sorted(run["seed"] for run in row["runs"]))
        for row in results["rows"] if row["runs"]
    }  # fmt: skip
    if len(set(seeds.values())) == 1:
        found.append(f"Seeds: {', '.join(map(str, next(iter(seeds.values()))))}.")
    else:
        of_rows = (f"{name} {', '.join(map(str, own))}" for name, own in seeds.items())
        found.append(f"Seeds differ: {'; '.join(of_rows)}.")
    if max(map(len, seeds.values())) > 1:
        found.append("Scores: mean ± standard deviation (seeds).")
    if has_paper(results):
        found.append(AGREEMENT_NOTE)
    for row in results["rows"]:
        counts = [run["training"].get("first_updates", 0) for run in row["runs"]]
        if any(counts):
            found.append(
                f"{row['name']} was trained before on other data ({row['begins']}), for "
                f"{extent(counts)} updates; these are not in the column."
            )
    if len({run["training"]["updates"] for run in runs}) > 1:
        found.append("The rows were not trained for the same number of updates.")
    found += precision_notes(results)
    if results["timed"]:
        found += time_notes(results, runs)
    for machine in distinct([run["training"]["machine"] for run in runs]):
        found.append(describe_machine(machine))
    found.append(f"Settings: `{results['settings']}`.")
    return [*found, *failed]


def test_notes(results: Dict[str, Any]) -> List[str]:
    """Notes of the checkpoints and options of the tests, by runs if they differ."""
    runs: Dict[Tuple[str, str], List[str]] = {}
    for row in results["rows"]:
        for run in row["runs"]:
            if run.get("scoring"):
                way = run["scoring"]["checkpoint"], " ".join(run["scoring"].get("generate", []))
                runs.setdefault(way, []).append(f"{row['name']} {run['seed']}")
    if len(runs) > 1:
        ways = (
            checkpoint
            + (f" with `--generate`: `{words}`" if words else "")
            + f" ({', '.join(each)})"
            for (checkpoint, words), each in runs.items()
        )
        return [f"The test set is read once, in different ways: {'; '.join(ways)}."]
    found = []
    for checkpoint, words in runs:
        found.append(f"The test set is read once, by: {checkpoint}.")
        if words:
            found.append(f"Generation was changed by `--generate`: `{words}`.")
    return found


def precision_notes(results: Dict[str, Any]) -> List[str]:
    """A note of the precision of training, by runs if it differs."""
    runs: Dict[str, List[str]] = {}
    for row in results["rows"]:
        for run in row["runs"]:
            words = " ".join(run["training"]["command"])
            half = re.search(r"(?<!\S)--(?:memory-efficient-)?(bf16|fp16|amp)(?!\S)", words)
            name = half.group(1) if half else "fp32"
            begun = run["training"].get("first_precision") or name
            name = name if begun == name else f"{begun}, then {name}"
            runs.setdefault(name, []).append(f"{row['name']} {run['seed']}")
    if len(runs) == 1:
        return [f"Precision of training: {name}." for name in runs]
    by_name = (f"{name} ({', '.join(each)})" for name, each in runs.items())
    return [f"Precision of training differs: {'; '.join(by_name)}."]


def not_run(results: Dict[str, Any]) -> List[str]:
    """A note that names the rows and planned runs without a score."""
    done = {row["name"]: {run["seed"] for run in row["runs"] if run.get("scoring")}
            for row in results["rows"]}  # fmt: skip
    missing = [f"{name}, all seeds" for name, seeds in done.items() if not seeds]
    missing += [
        f"{name}, seed {seed}"
        for name, seed in results.get("planned", [])
        if done[name] and seed not in done[name]
    ]
    return [f"Not run: {'; '.join(missing)}."] if missing else []


def _counts(counts: Dict[str, int]) -> str:
    return " / ".join(f"{count:,} {name}" for name, count in counts.items())


def time_notes(results: Dict[str, Any], runs: List[Dict[str, Any]]) -> List[str]:
    skipped = extent([run["training"]["timing_skip"] for run in runs])
    found = [
        "s/epoch: median time of an update by the training log x updates of an epoch; the "
        f"first {skipped} updates of each start, validation and saving are left out."
    ]
    together = extent([run["training"]["parallel"] for run in runs])
    disturbed = together != "1"
    if disturbed:
        found.append(f"Up to {together} runs shared the machine: their s/epoch disturb each other.")
    shared = extent([run["training"].get("processes", 1) for run in runs])
    if shared != "1":
        found.append(f"Processes that shared a training: {shared}.")
    interleaved = results["interleaved"]
    if interleaved:
        quartiles = "; ".join(
            "{} {:.3f} - {:.3f}".format(name, *row["time_ratio_quartiles"])
            for name, row in interleaved["rows"].items()
            if name != BASELINE
        )
        found.append(
            "Time ratio: training steps of all rows in turn on the same batches after the runs "
            f"(benchmark train-step, {interleaved['batches']} batches x {interleaved['rounds']} "
            f"rounds), median; quartiles: {quartiles}."
        )
        if interleaved["machine"] not in [run["training"]["machine"] for run in runs]:
            found.append(describe_machine(interleaved["machine"], "Time ratio measured on"))
    else:
        found.append(
            "Time ratio: of s/epoch, from runs one after the other or side by side, not "
            "interleaved" + (": not to be trusted here." if disturbed else ".")
        )
    return found


def describe_machine(machine: Dict[str, Any], word: str = "Machine") -> str:
    return (
        "{}: {device} ({cores} cores, {threads} thread(s) a process), Python {python}, "
        "torch {torch}, fairseq {fairseq}, commit {commit}.".format(word, **machine)
    )


# --- plot -----------------------------------------------------------------------------------------


def plot(
    results: Dict[str, Any], folder: Path, beside: Sequence[Dict[str, Any]] = ()
) -> List[Path]:
    """Plot the scores: against training time if the table has times, otherwise as bars.

    If logs of training hold validations, a second plot shows how each run came to its score.

    Args:
        results: the content of results.json.
        folder: where to write.
        beside: results of the same table on other numbers of training pairs; one more plot shows
            all scores against these numbers.

    Returns:
        the files written: bleu_against_time.svg and .png, or such as accuracy.svg and .png;
        learning_curves.svg and .png; scores_against_pairs.svg and .png.

    Raises:
        ImportError: matplotlib is missing.
    """
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it logs each font it looks at
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    if results["timed"]:
        plots = {"bleu_against_time": _draw_times}
    else:
        plots = {results["metrics"][0].replace(" ", "_"): _draw_bars}
    if learning_curves(results)[1]:
        plots["learning_curves"] = _draw_curves
    if beside:
        plots["scores_against_pairs"] = functools.partial(_draw_sizes, beside=beside)
    written = []
    with pyplot.rc_context({"svg.hashsalt": results["table"], "font.size": 9}):
        for name, draw in plots.items():
            figure = draw(pyplot, results)
            for kind, metadata in (("svg", {"Date": None}), ("png", {})):
                path = folder / f"{name}.{kind}"
                part = path.with_name(path.name + ".part")
                figure.savefig(str(part), format=kind, dpi=150, metadata=metadata)
                os.replace(part, path)
                written.append(path)
            pyplot.close(figure)
    return written


def learning_curves(results: Dict[str, Any]) -> Tuple[str, List[Curve]]:
    """How the runs learned.

    Returns:
        the first of `VALIDATION` that all runs were validated by, and the curve of each run. Hours
        are updates times the run's median time of one, after those of its training on other data.
    """
    runs = [
        (row["name"], run["seed"], run["training"])
        for row in results["rows"]
        for run in row["runs"]
        if run["training"].get("valid") and run["training"]["epoch_seconds"]
    ]
    for measure in VALIDATION:
        if runs and all(measure in point for *_, trained in runs for point in trained["valid"]):
            break
    else:
        return "", []
    curves = []
    for row, seed, trained in runs:
        begun = trained.get("first_seconds", 0) / 3600  # on other data
        hours = trained["epoch_seconds"] / trained["updates_per_epoch"] / 3600
        # a run that was killed repeats some
        points = {point["num_updates"]: point[measure] for point in trained["valid"]}
        times = [begun + updates * hours for updates in sorted(points)]
        curves.append(Curve(row, seed, times, [points[updates] for updates in sorted(points)]))
    return measure, curves


def _draw_curves(pyplot: Any, results: Dict[str, Any]) -> Any:
    measure, curves = learning_curves(results)
    rows = distinct([curve.row for curve in curves])
    figure, axis = pyplot.subplots(figsize=(6.5, 4.2))
    for curve in curves:
        first = curve.seed == min(other.seed for other in curves if other.row == curve.row)
        axis.plot(
            curve.hours, curve.values, color=f"C{rows.index(curve.row)}", linewidth=1,
            label=curve.row if first else None,
        )  # fmt: skip
    # leave the first quarter of each run out of the range: it is far below where the runs differ
    ends = sorted(value for curve in curves for value in curve.values[len(curve.values) // 4 :])
    room = 0.1 * (ends[-1] - ends[0]) or 1.0
    axis.set_ylim(ends[0] - room, ends[-1] + room)
    axis.set_xlabel("hours of training, without validation and saving")
    axis.set_ylabel(f"{measure} on valid, one checkpoint")
    axis.set_title("a line for each seed")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    return figure


def by_pairs(all_results: Sequence[Dict[str, Any]], metric: str) -> Dict[str, Dict[int, float]]:
    """The mean score over the seeds of each row, by the number of training pairs."""
    found: Dict[str, Dict[int, float]] = {}
    for results in sorted(all_results, key=lambda each: each["data"]["pairs"]["train"]):
        for row in results["rows"]:
            values = scores(row, metric)
            if values:
                pairs = results["data"]["pairs"]["train"]
                found.setdefault(row["name"], {})[pairs] = statistics.mean(values)
    return found


def _draw_sizes(pyplot: Any, results: Dict[str, Any], beside: Sequence[Dict[str, Any]]) -> Any:
    """Scores against the number of training pairs, beside published ones."""
    published = TABLES[results["table"]].by_pairs
    metric = published.metric if published else results["metrics"][0]
    figure, axis = pyplot.subplots(figsize=(6.5, 4.2))
    for number, (row, points) in enumerate(by_pairs([results, *beside], metric).items()):
        axis.plot(list(points), list(points.values()), marker=MARKERS[number % 8], label=row)
    if published:
        axis.plot(*zip(*published.points), "--", color="black", marker=".", label=published.source)
    axis.set_xscale("log")
    axis.set_xlabel("training pairs")
    axis.set_ylabel(f"test {metric}")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    return figure


def _draw_bars(pyplot: Any, results: Dict[str, Any]) -> Any:
    """Bars of the first metric: here with intervals over seeds and each seed, and in the paper."""
    metric, rows = results["metrics"][0], results["rows"][::-1]
    panels = [("here", [scores(row, metric) for row in rows])]
    if all(row["paper"] for row in rows):
        panels.insert(0, ("paper", [row["paper"]["scores"][:1] for row in rows]))
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(2 + 3.6 * len(panels), 1 + 0.36 * len(rows)), sharey=True,
        squeeze=False,
    )  # fmt: skip
    for axis, (title, values) in zip(axes[0], panels):
        ends: List[float] = []
        for place, (row, own) in enumerate(zip(rows, values)):
            if not own:
                axis.text(0.02, place, "not run", va="center", transform=axis.get_yaxis_transform())
                continue
            sample = Sample.of(own)
            half = half_interval(sample)
            if title == "paper":
                deviations = row["paper"]["deviations"]
                half = deviations[0] if deviations else None
            axis.barh(place, sample.mean, height=0.62, color="#9ecae1")
            axis.errorbar(sample.mean, place, xerr=half, color="black", capsize=3, linestyle="none")
            if title == "here":
                axis.plot(own, [place] * len(own), "o", ms=3, color="#d55e00")
            ends += [sample.mean - (half or 0), sample.mean + (half or 0), *own]
        if ends:
            room = 0.08 * (max(ends) - min(ends)) or 1.0
            axis.set_xlim(min(ends) - 3 * room, max(ends) + room)
        axis.set_title(title)
        axis.set_xlabel(f"test {metric} (the axis does not begin at 0)")
        axis.grid(axis="x", alpha=0.3)
    axes[0, 0].set_yticks(range(len(rows)))
    axes[0, 0].set_yticklabels([" ".join(row["labels"]) for row in rows])
    lines = "black: 95 % interval over seeds; orange: each seed"
    if len(panels) == 2:
        lines = f"here, {lines}; paper, black: its standard deviation, if published"
    figure.text(0.5, 0.005, lines, ha="center", fontsize=7)
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    return figure


def _draw_times(pyplot: Any, results: Dict[str, Any]) -> Any:
    """BLEU against training time, with a second panel for the paper's figures."""
    ratio = ratio_function(results)
    relative = any(ratio(results, row) for row in results["rows"])
    panels = 2 if has_paper(results) else 1
    figure, axes = pyplot.subplots(1, panels, figsize=(1.5 + 4 * panels, 4.2), squeeze=False)
    here = axes[0, -1]
    kinds: Dict[str, int] = {}  # last row number of each first label; a label has one colour
    for row in results["rows"]:
        kind = row["labels"][0]
        number = kinds[kind] = kinds.get(kind, -1) + 1
        style: Dict[str, Any] = {
            "color": f"C{list(kinds).index(kind)}",
            "marker": MARKERS[number % len(MARKERS)],
            "linestyle": "none",
            "label": row["name"],
        }
        values = scores(row, results["metrics"][0])
        time = ratio(results, row) if relative else epoch_seconds(row)
        if values and time:
            deviation = statistics.stdev(values) if len(values) > 1 else 0
            here.errorbar(time, statistics.mean(values), yerr=deviation or None, **style)
        else:
            here.plot([], [], **style)
        if panels == 2:
            axes[0, 0].plot(paper_ratio(results, row), row["paper"]["scores"][0], **style)
    relative_label = "time of an epoch, ratio to the Transformer"
    if panels == 2:
        axes[0, 0].set_title("paper")
        axes[0, 0].set_xlabel(relative_label)
    here.set_title(f"here, {results['data']['pairs']['train']:,} pairs")
    here.set_xlabel(relative_label if relative else "seconds per epoch")
    for each in axes[0]:
        each.set_ylabel(f"test {results['metrics'][0]}")
        each.grid(alpha=0.3)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center right", frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0, 1 - 1.9 / (1.5 + 4 * panels), 1))
    return figure


def write_table(results: Dict[str, Any], folder: Path) -> Path:
    with written_whole(folder / "table.md") as file:
        file.write(table(results))
    return folder / "table.md"
