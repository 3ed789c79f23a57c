"""The notes below a table: data, scoring, seeds, timing, machine, and every known limitation."""

import re
from typing import Any

from fairseq_plugins.lab.reproduction.agreement import AGREEMENT_NOTE
from fairseq_plugins.lab.reproduction.figures import distinct, extent, has_paper
from fairseq_plugins.lab.reproduction.tables import BASELINE


def notes(results: dict[str, Any]) -> list[str]:
    """Data, scoring, seeds, timing and machine of the figures, with every known limitation."""
    runs = [run for row in results["rows"] for run in row["runs"]]
    found = [*data_notes(results), *results.get("remarks", [])]
    if results["cited"]:
        found.append("cited: figures of other work that the paper quotes; they are not run.")
    failed = [f"Failed: {failure['run']}: {failure['message']}" for failure in results["failures"]]
    if not runs:
        return [*found, "No run is finished.", *failed]
    found += [*score_notes(results, runs), *test_notes(results), *not_run(results)]
    found += seed_notes(results)
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
    machines = [run["training"]["machine"] for run in runs]
    found += [describe_machine(machine) for machine in distinct(machines)]
    found.append(f"Settings: `{results['settings']}`.")
    return [*found, *failed]


def data_notes(results: dict[str, Any]) -> list[str]:
    """Notes of the data, and of the paper's where it differs."""
    data, paper = results["data"], results.get("data_of_paper", {})
    here = {**data["pairs"], **({"classes": data["classes"]} if "classes" in data else {})}
    found = [f"Data: {_counts(here)}, {data['name']}."]
    # papers round: 287.1k
    if any(abs(here.get(name, 0) - count) > 0.001 * count for name, count in paper.items()):
        found.append(
            f"The paper's data: {_counts(paper)}. Compare the rows here with each other, not with "
            "the paper's column."
        )
    return found


def score_notes(results: dict[str, Any], runs: list[dict[str, Any]]) -> list[str]:
    """Notes of how scores were computed."""
    found = []
    scored = [run["scoring"]["scores"] for run in runs if run.get("scoring")]
    for metric in results["metrics"]:
        kind = " of lower-case tokens, not smoothed" if metric == "BLEU" else ""
        signatures = [scores[metric]["signature"] for scores in scored if metric in scores]
        found += [f"{metric}{kind}: `{signature}`." for signature in distinct(signatures)]
    if any("interval" in score for scores in scored for score in scores.values()):
        found.append(
            "[...] in the table: 95 % bootstrap interval of the test texts, its ends averaged over "
            "the seeds; it does not cover the choice of the seed."
        )
    return found


def seed_notes(results: dict[str, Any]) -> list[str]:
    """Notes of the seeds, by rows if they differ; at least one run is finished."""
    seeds = {
        row["name"]: sorted(run["seed"] for run in row["runs"])
        for row in results["rows"] if row["runs"]
    }  # fmt: skip
    told = {name: ", ".join(map(str, own)) for name, own in seeds.items()}
    if len(set(told.values())) == 1:
        found = [f"Seeds: {next(iter(told.values()))}."]
    else:
        found = [f"Seeds differ: {'; '.join(f'{name} {own}' for name, own in told.items())}."]
    if max(map(len, seeds.values())) > 1:
        found.append("Scores: mean ± standard deviation (seeds).")
    return found


def test_notes(results: dict[str, Any]) -> list[str]:
    """Notes of the checkpoints and options of the tests, by runs if they differ."""
    runs: dict[tuple[str, str], list[str]] = {}
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
        return [f"Tested once, in different ways: {'; '.join(ways)}."]
    found = []
    for checkpoint, words in runs:
        found.append(f"Tested once, with {checkpoint}.")
        if words:
            found.append(f"Generation was changed by `--generate`: `{words}`.")
    return found


def precision_notes(results: dict[str, Any]) -> list[str]:
    """A note of the precision of training, by runs if it differs."""
    runs: dict[str, list[str]] = {}
    for row in results["rows"]:
        for run in row["runs"]:
            words = " ".join(run["training"]["command"])
            half = re.search(r"(?<!\S)--(?:memory-efficient-)?(bf16|fp16|amp)(?!\S)", words)
            name = half.group(1) if half else "fp32"
            runs.setdefault(name, []).append(f"{row['name']} {run['seed']}")
    if len(runs) == 1:
        return [f"Precision of training: {name}." for name in runs]
    by_name = (f"{name} ({', '.join(each)})" for name, each in runs.items())
    return [f"Precision of training differs: {'; '.join(by_name)}."]


def not_run(results: dict[str, Any]) -> list[str]:
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


def _counts(counts: dict[str, int]) -> str:
    return " / ".join(f"{count:,} {name}" for name, count in counts.items())


def time_notes(results: dict[str, Any], runs: list[dict[str, Any]]) -> list[str]:
    found = [
        "s/epoch: median time of an update by the training log x updates of an epoch; the first "
        "updates of each start, validation and saving are left out."
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


def describe_machine(machine: dict[str, Any], word: str = "Machine") -> str:
    return (
        "{}: {device} ({cores} cores, {threads} thread(s) a process), Python {python}, "
        "torch {torch}, fairseq {fairseq}, commit {commit}.".format(word, **machine)
    )
