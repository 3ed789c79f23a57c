"""The speed goals on a CPU: measures each, and says whether it is reached.

    fairseq-plugins benchmark goals DATA --out DIR --cpu --clock processor

`prepared.yaml` has them; `gpu-report` measures those for a GPU. DATA is prepared IWSLT'14 text.
Each measurement is a run of another subcommand in a process of its own, on one thread unless
--threads says otherwise, and writes NAME.json and NAME.md to --out. Finished ones are kept: rerun
to resume, or to repeat those that failed. It takes about half an hour.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import read_json
from fairseq_plugins.options.fields import REQUIRED, argument, option

from . import harness, machine, plots, prepared
from .harness import Report, Row


@dataclass
class Goals(harness.Measurement):
    """The options of the subcommand."""

    data: Path = argument("the prepared folder", "DATA")
    out: Path = option(REQUIRED, "the folder to write", metavar="DIR")


def run(args: Goals) -> Report:
    """Run the missing measurements and judge all goals.

    Raises:
        ConfigurationError: arguments are invalid.
    """
    device = harness.choose_device(args)
    if device.type != "cpu":
        raise ConfigurationError(
            "benchmark goals is for a CPU, add --cpu: gpu-report has the goals on a GPU"
        )
    args.out.mkdir(parents=True, exist_ok=True)
    where = machine.describe(device, args.threads)
    measurements: dict[str, Row] = {}
    problems = dict.fromkeys(prepared.GOALS, "its turn has not come yet")
    more = ["--cpu", "--threads", str(args.threads), "--clock", args.clock]
    for number, (name, part) in enumerate(prepared.GOALS.items(), 1):
        path = args.out / f"{name}.json"
        if not fits(path, part, args, where):
            print(f"[{number}/{len(prepared.GOALS)}] {name}", file=sys.stderr, flush=True)
            if not part.measure({"DATA": args.data}, path, more):
                problems[name] = "it failed; rerun to repeat it"
                continue
        measurements[name] = read_json(path)
        if args.json:  # the table so far, should this be stopped
            harness.write_report(args.json, args, where, report(measurements, problems))
    return report(measurements, problems)


def report(measurements: dict[str, Row], problems: dict[str, str]) -> Report:
    """The table of all goals, from the measurements that exist."""
    rows = []
    for goal in prepared.JUDGED:
        measured = measurements.get(goal["in"])
        row = measured["rows"][goal["row"]] if measured else {"problem": problems[goal["in"]]}
        rows.append(judge(goal, row))
    commits = sorted({str(each["machine"]["commit"]) for each in measurements.values()})
    columns = [
        ("what", harness.text("what")),
        ("against", harness.text("against")),
        ("goal", harness.number("goal")),
        ("ratio", harness.number("time_ratio")),
        ("quartiles", harness.quartiles("time_ratio_quartiles")),
        ("operations, ratio", harness.number("flop_ratio")),
        ("", harness.text("verdict")),
    ]
    shown = [row for row in rows if row["time_ratio"] is not None]
    return Report(
        rows, columns, ["measured at commit " + ", ".join(commits)],
        lambda path: plots.bars(path, shown, "Ratio to the baseline"),
    )  # fmt: skip


def fits(path: Path, part: prepared.Part, args: Goals, where: Row) -> bool:
    """Whether an earlier run measured this, as it is defined now, on this machine.

    Of the machine all but the commit counts, which the table names.
    """
    before = read_json(path)
    if not isinstance(before, dict):
        return False
    had, same = before.get("arguments", {}), {"data": str(args.data), "clock": args.clock}
    other = [name for name, value in same.items() if had.get(name, value) != value]
    other += ["definition"] if before.get(prepared.DEFINITION) != part.definition else []
    then = before.get("machine", {})
    other += [name for name in where if name != "commit" and then.get(name) != where[name]]
    if other:
        print(f"{path} has another {', '.join(other)}: measuring again", file=sys.stderr)
    return not other


def judge(goal: Row, row: Row) -> Row:
    """Convert a row of a measurement to the table row of its goal."""
    memory = goal.get("memory", False)
    ratio, limit = row.get("peak_ratio" if memory else "time_ratio"), goal.get("goal")
    verdict = ""
    if ratio is None:
        verdict = "not measured: " + (row.get("problem") or "no figure")
    elif limit is not None:
        verdict = "reached" if ratio <= limit else f"missed by {ratio - limit:.3f}"
    return {
        "what": goal["what"],
        "contender": goal["what"],
        "against": goal["against"],
        "goal": limit,
        "time_ratio": ratio,
        "time_ratio_quartiles": None if memory else row.get("time_ratio_quartiles"),
        "flop_ratio": None if memory else row.get("flop_ratio"),
        "verdict": verdict,
    }


COMMANDS = {"goals": (Goals, run)}
