"""The table and the plot of `reproduce`. Their only input is its results.json."""

import os
import statistics
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from fairseq_plugins.preparation.files import written_whole
from fairseq_plugins.reproduction.tables import BASELINE

PAPER_PAIRS = 160239
MARKERS = "osD^vP*X"


# --- figures of a row -----------------------------------------------------------------------------


def scores(row: Dict[str, Any]) -> List[float]:
    return [run["scoring"]["bleu"] for run in row["runs"] if run.get("scoring")]


def epoch_seconds(row: Dict[str, Any]) -> Optional[float]:
    """Seconds per epoch from the training logs: the median over the seeds of a row."""
    measured = [run["training"]["epoch_seconds"] for run in row["runs"]]
    measured = [seconds for seconds in measured if seconds is not None]
    return statistics.median(measured) if measured else None


def logged_ratio(results: Dict[str, Any], row: Dict[str, Any]) -> Optional[float]:
    baseline = next(other for other in results["rows"] if other["name"] == BASELINE)
    here, there = epoch_seconds(row), epoch_seconds(baseline)
    return here / there if here and there else None


def interleaved_ratio(results: Dict[str, Any], row: Dict[str, Any]) -> Optional[float]:
    found = ((results["interleaved"] or {}).get("rows") or {}).get(row["name"])
    return found["time_ratio"] if found else None


def ratio_function(results: Dict[str, Any]) -> Callable[[Dict[str, Any], Dict[str, Any]], Any]:
    """The function that computes the table's time ratio: the interleaved one if measured."""
    return interleaved_ratio if results["interleaved"] else logged_ratio


def paper_ratio(results: Dict[str, Any], row: Dict[str, Any]) -> float:
    baseline = next(other for other in results["rows"] if other["name"] == BASELINE)
    return row["paper"]["epoch_seconds"] / baseline["paper"]["epoch_seconds"]


# --- table ----------------------------------------------------------------------------------------


def cell(value: Optional[float], form: str) -> str:
    return "-" if value is None else form.format(value)


def spread(values: List[float]) -> str:
    """The mean; for several values also their standard deviation and number."""
    if not values:
        return "-"
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values):.2f} ({len(values)})" if len(values) > 1 else mean


def extent(values: List[int]) -> str:
    if not values:
        return "-"
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def distinct(values: List[Any]) -> List[Any]:
    return [value for number, value in enumerate(values) if value not in values[:number]]


def table(results: Dict[str, Any]) -> str:
    """The Markdown table, with the paper's figures if there are any, and notes on the conditions.

    Args:
        results: the content of results.json.
    """
    ratio = ratio_function(results)
    printed = has_paper(results)
    titles = [*results["columns"]]
    for title in ("BLEU", "s/epoch", "time ratio"):
        titles += [f"{title}, paper", f"{title}, here"] if printed else [title]
    lines = [*_markdown([*titles, "parameters", "updates"])]
    for row in results["rows"]:
        parameters = distinct([run["training"]["parameters"] for run in row["runs"]])
        figures = [
            spread(scores(row)),
            cell(epoch_seconds(row), "{:.4g}"),
            cell(ratio(results, row), "{:.3f}"),
        ]
        if printed:
            paper = row["paper"]
            theirs = [f"{paper['bleu']:.1f}", f"{paper['epoch_seconds']}"]
            theirs.append(f"{paper_ratio(results, row):.3f}")
            figures = [value for pair in zip(theirs, figures) for value in pair]
        figures.append(cell(parameters[0] / 1e6 if parameters else None, "{:.2f} M"))
        figures.append(extent([run["training"]["updates"] for run in row["runs"]]))
        lines.append("| " + " | ".join([*row["labels"], *figures]) + " |")
    lines += ["", *(f"- {note}" for note in notes(results)), *unfinished(results)]
    return "\n".join(lines) + "\n"


def has_paper(results: Dict[str, Any]) -> bool:
    return all(row["paper"] for row in results["rows"])


def unfinished(results: Dict[str, Any]) -> List[str]:
    """Lines with the progress of the runs without a test score."""
    if not results["unfinished"]:
        return []
    lines = ["", "Not finished. Rerun to resume:", ""]
    lines += _markdown(["run", "epoch", "updates", "valid BLEU", "best", "valid nll", "best"])
    for run in results["unfinished"]:
        cells = [run["run"], str(run["epoch"]), f"{run['updates']:,}"]
        for name, best in (("bleu", max), ("nll_loss", min)):
            values = [found[name] for found in run["valid"] if name in found]
            for value in [values[-1], best(values)] if values else [None, None]:
                cells.append(cell(value, "{:.2f}"))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _markdown(titles: List[str]) -> List[str]:
    return ["| " + " | ".join(titles) + " |", "| --- " * len(titles) + "|"]


def notes(results: Dict[str, Any]) -> List[str]:
    """Data, scoring, seeds, timing and machine of the figures, with every known limitation."""
    runs = [run for row in results["rows"] for run in row["runs"]]
    pairs = results["data"]["pairs"]
    found = ["Data: {} pairs, {}.".format(
        " / ".join(f"{count:,} {split}" for split, count in pairs.items()), results["data"]["name"]
    )]  # fmt: skip
    if has_paper(results) and pairs["train"] != PAPER_PAIRS:
        found.append(
            f"The paper trained on {PAPER_PAIRS:,} pairs: compare BLEU between the rows here, not "
            "with the paper's column."
        )
    failed = [f"Failed: {failure['run']}: {failure['message']}" for failure in results["failures"]]
    if not runs:
        return [*found, "No run is finished.", *failed]
    scored = [run["scoring"] for run in runs if run.get("scoring")]
    for signature in distinct([score["signature"] for score in scored]):
        found.append(f"BLEU: of lower-case tokens, not smoothed, `{signature}`.")
    checkpoints = distinct([score["checkpoint"] for score in scored])
    if checkpoints:
        found.append(f"Test set translated once, beam 5, by: {'; '.join(checkpoints)}.")
    changed = distinct([" ".join(score.get("generate", [])) for score in scored])
    for words in filter(None, changed):
        found.append(f"Translation was changed by `--generate`: `{words}`.")
    seeds = {
        row["name"]: tuple(sorted(run["seed"] for run in row["runs"]))
        for row in results["rows"] if row["runs"]
    }  # fmt: skip
    if len(set(seeds.values())) == 1:
        found.append(f"Seeds: {', '.join(map(str, next(iter(seeds.values()))))}.")
    else:
        each = (f"{name} {', '.join(map(str, own))}" for name, own in seeds.items())
        found.append(f"Seeds differ: {'; '.join(each)}.")
    if max(map(len, seeds.values())) > 1:
        found.append("BLEU: mean ± standard deviation (seeds).")
    if len({run["training"]["updates"] for run in runs}) > 1:
        found.append("The rows were not trained for the same number of updates.")
    found += time_notes(results, runs)
    for machine in distinct([run["training"]["machine"] for run in runs]):
        found.append(describe_machine(machine))
    found.append(f"Settings: `{results['settings']}`.")
    return [*found, *failed]


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
        "{}: {device} ({cores} cores, {threads} thread(s) a run), Python {python}, torch {torch}, "
        "fairseq {fairseq}, commit {commit}.".format(word, **machine)
    )


# --- plot -----------------------------------------------------------------------------------------


def plot(results: Dict[str, Any], stem: Path) -> List[Path]:
    """Plot BLEU against training time, with a second panel for the paper's figures.

    Returns:
        the files written: stem.svg and stem.png.

    Raises:
        ImportError: matplotlib is missing.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ratio = ratio_function(results)
    relative = any(ratio(results, row) for row in results["rows"])
    with pyplot.rc_context({"svg.hashsalt": results["table"], "font.size": 9}):
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
            values = scores(row)
            time = ratio(results, row) if relative else epoch_seconds(row)
            if values and time:
                deviation = statistics.stdev(values) if len(values) > 1 else 0
                here.errorbar(time, statistics.mean(values), yerr=deviation or None, **style)
            else:
                here.plot([], [], **style)
            if panels == 2:
                axes[0, 0].plot(paper_ratio(results, row), row["paper"]["bleu"], **style)
        relative_label = "time of an epoch, ratio to the Transformer"
        if panels == 2:
            axes[0, 0].set_title("paper")
            axes[0, 0].set_xlabel(relative_label)
        here.set_title(f"here, {results['data']['pairs']['train']:,} pairs")
        here.set_xlabel(relative_label if relative else "seconds per epoch")
        for each in axes[0]:
            each.set_ylabel("test BLEU")
            each.grid(alpha=0.3)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="center right", frameon=False, fontsize=8)
        figure.tight_layout(rect=(0, 0, 1 - 1.9 / (1.5 + 4 * panels), 1))
        written = []
        for kind, metadata in (("svg", {"Date": None}), ("png", {})):
            path = stem.with_name(f"{stem.name}.{kind}")
            part = path.with_name(path.name + ".part")
            figure.savefig(str(part), format=kind, dpi=150, metadata=metadata)
            os.replace(part, path)
            written.append(path)
        pyplot.close(figure)
    return written


def write_table(results: Dict[str, Any], folder: Path) -> Path:
    with written_whole(folder / "table.md") as file:
        file.write(table(results))
    return folder / "table.md"
