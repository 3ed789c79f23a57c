"""The speed goals: measures each, and says whether it is reached.

    python -m fairseq_plugins benchmark goals DATA --out DIR --cpu --clock processor

They are for a CPU; those for a GPU are in `lab.gpu_report`. DATA is prepared IWSLT'14 text.
Each measurement is a run of another subcommand in a process of its own, on one thread unless
--threads says otherwise, and writes NAME.json and NAME.md to --out. Finished ones are kept: rerun
to resume, or to repeat those that failed. It takes about half an hour.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.arguments import add_path
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.json_files import read_json, write_json

from . import machine, plots, results

SIZES = "--share-decoder-input-output-embed --dropout 0.3"
TRANSFORMER, FTC = "transformer_iwslt_de_en", "transformer_ftc_iwslt_de_en"
LOSS = "--criterion label_smoothed_cross_entropy_fused"
FUSED = f"{FTC} {LOSS}"
DEEP = "transformer_ftc_deep_iwslt_de_en"
PLAIN = TRANSFORMER + " --plain"  # with fairseq's own search
ATTENTION = (
    "--encoder-layers 2 --encoder-embed-dim 512 --encoder-attention-heads 8"
    " --encoder-ffn-embed-dim 1024 --attention-dropout 0.1"
)
DEFINITION = "measurement"  # in the file of one: what it was


class Measurement(NamedTuple):
    """A run of the benchmark.

    Args:
        words: the subcommand and its options; DATA stands for the folder.
        contenders: what is compared; the first is the baseline.
        options: options of all architectures.
    """

    words: str
    contenders: list[str]
    options: str = ""

    def command(self, data: Path) -> list[str]:
        """The words of the command line after `benchmark`."""
        words = [str(data) if word == "DATA" else word for word in self.words.split()]
        option = "--arch" if words[0] == "train-step" else "--contender"
        for contender in self.contenders:
            words += [option, contender]
        return words + (["--options", self.options] if self.options else [])

    def shorter(self, rounds: int) -> "Measurement":
        """The same with this number of rounds."""
        return self._replace(words=f"{self.words} --rounds {rounds}")


MEASUREMENTS: dict[str, Measurement] = {
    "training_step": Measurement(
        "train-step DATA --max-tokens 4000 --batches 4 --rounds 3",
        [
            TRANSFORMER,
            FTC + " --training-path plain",
            FTC,
            FUSED,
            FUSED + " --bf16",
            TRANSFORMER + " --bf16",
        ],
        SIZES,
    ),
    "loss": Measurement(
        "train-step DATA --part loss --max-tokens 4000 --batches 4 --rounds 4",
        [TRANSFORMER, FUSED],
        SIZES,
    ),
    "loss_random_order": Measurement(
        "train-step DATA --part loss --order random --max-tokens 4000 --batches 4 --rounds 4",
        [TRANSFORMER, FUSED],
        SIZES,
    ),
    **{
        f"mscffn_{dim}{name}": Measurement(
            f"{command} --dim {dim} --tokens 4096 --lengths 128{rounds}",
            [f"ffn --inner {inner}", f"mscffn --subspaces {subspaces}"],
        )
        for command, name, rounds in (("layer", "", " --rounds 25"), ("memory", "_memory", ""))
        for dim, inner, subspaces in ((768, 3072, 12), (512, 1024, 8))
    },
    "fastformer_encoder": Measurement(
        "train-step DATA --part encoder --max-tokens 4000 --batches 4 --rounds 3",
        [TRANSFORMER, "fastformer_encoder_iwslt_de_en"],
        SIZES,
    ),
    "fastformer_8192": Measurement(
        "layer --dim 512 --heads 8 --tokens 8192 --lengths 8192", ["sdpa", "fastformer"]
    ),
    "fastformer_forms": Measurement(
        "layer --dim 256 --heads 16 --tokens 8192 --lengths 2048,8192",
        ["fastformer-plain", "fastformer-reassociated"],
    ),
    **{
        f"generation_{size}": Measurement(
            f"generate DATA --batch-size {size} --batches {batches}", [PLAIN, *deep], SIZES
        )
        for size, batches, deep in (
            (32, 4, [DEEP, DEEP + " --int8"]),
            (1, 64, [DEEP + " --int8"]),
            (8, 8, [DEEP + " --int8"]),
        )
    },
    "attention_dropout": Measurement(
        "growth --part encoder --values 1024,4096 --tokens 4096 --what training --rounds 3"
        " --budget 60",
        ["transformer", "fastformer_encoder --encoder-token-mixer softmax --training-path fast"],
        ATTENTION,
    ),
}


class Goal(NamedTuple):
    """A ratio from a measurement, and its upper limit.

    Args:
        what, against: what is measured, and its baseline.
        measurement: the key in `MEASUREMENTS`.
        row: the row in the table of the measurement, from 0.
        limit: the largest ratio that reaches the goal; None for a ratio without a goal.
        memory: whether the ratio is of peak memory instead of time.
    """

    what: str
    against: str
    measurement: str
    row: int
    limit: float | None = None
    memory: bool = False


GOALS = [
    Goal("FTC 2x3 training step, fused loss, fast path", "Transformer", "training_step", 3, 0.75),
    Goal("FTC 2x3 step, fairseq's criterion (the default)", "Transformer", "training_step", 2),
    Goal("FTC 2x3 step, plain path", "Transformer", "training_step", 1),
    Goal(
        "FTC 2x3 step, fused loss, fast path, bf16", "Transformer, fp32", "training_step", 4, 0.45
    ),
    Goal("Transformer's step, bf16", "Transformer, fp32", "training_step", 5),
    Goal("projection and loss, fused", "fairseq's", "loss", 1, 0.47),
    Goal("projection and loss, sentences of any length", "fairseq's", "loss_random_order", 1),
    Goal("MSCFFN 768/3072, 12 subspaces", "standard network", "mscffn_768", 1, 0.33),
    Goal("MSCFFN 512/1024, 8 subspaces", "standard network", "mscffn_512", 1, 0.78),
    Goal("MSCFFN 768/3072, peak memory", "standard network", "mscffn_768_memory", 1, 1.0, True),
    Goal("MSCFFN 512/1024, peak memory", "standard network", "mscffn_512_memory", 1, 1.0, True),
    Goal("Fastformer's encoder, IWSLT lengths", "the Transformer's", "fastformer_encoder", 1, 0.87),
    Goal("Fastformer layer, length 8,192, d 512", "fused attention", "fastformer_8192", 1, 1 / 15),
    Goal(
        "Fastformer re-associated, d 256, 2,048", "as in the paper", "fastformer_forms", 1, 1 / 1.8
    ),
    Goal(
        "Fastformer re-associated, d 256, 8,192", "as in the paper", "fastformer_forms", 3, 1 / 1.8
    ),
    Goal("beam 5, batch 32, FTC 6,6 + 1", "Transformer", "generation_32", 1, 1 / 2.7),
    Goal("beam 5, batch 32, FTC 6,6 + 1, --int8", "Transformer", "generation_32", 2),
    Goal("beam 5, batch 1, FTC 6,6 + 1, --int8", "Transformer", "generation_1", 1, 1 / 4),
    Goal("beam 5, batch 8, FTC 6,6 + 1, --int8", "Transformer", "generation_8", 1, 1 / 4),
    Goal("attention dropout, length 1,024", "fairseq's", "attention_dropout", 1),
    Goal("its peak memory, length 1,024", "fairseq's", "attention_dropout", 1, None, True),
    Goal("attention dropout, length 4,096", "fairseq's", "attention_dropout", 3),
    Goal("its peak memory, length 4,096", "fairseq's", "attention_dropout", 3, None, True),
]


COLUMNS = [
    ("what", results.text("what")),
    ("against", results.text("against")),
    ("goal", results.number("goal")),
    ("ratio", results.number("time_ratio")),
    ("quartiles", results.quartiles("time_ratio_quartiles")),
    ("operations, ratio", results.number("flop_ratio")),
    ("", results.text("verdict")),
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="the prepared folder")
    add_path(parser, "--out", "DIR", "output folder", required=True)
    machine.add_arguments(parser, argparse.SUPPRESS)  # each goal has its own --dtype


def run(args: argparse.Namespace) -> results.Report:
    """Run the missing measurements and judge all goals.

    Raises:
        ConfigurationError: arguments are invalid.
    """
    if args.dtype != "fp32":
        raise ConfigurationError("--dtype: each goal has its own number type: remove it")
    device = machine.choose_device(args)
    if device.type != "cpu":
        raise ConfigurationError(
            "benchmark goals is for a CPU, add --cpu: lab.gpu_report has the goals on a GPU"
        )
    measurements, goals = MEASUREMENTS, GOALS
    args.out.mkdir(parents=True, exist_ok=True)
    where = machine.describe(device, args.threads)
    found: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for number, (name, measurement) in enumerate(measurements.items(), 1):
        path = args.out / f"{name}.json"
        if not _fits(path, measurement, args, where):
            print(f"[{number}/{len(measurements)}] {name}", file=sys.stderr, flush=True)
            if not measure(measurement, path, args, device.type):
                print(f"{name} failed, see above", file=sys.stderr, flush=True)
                problems[name] = "it failed; rerun to repeat it"
                continue
        found[name] = json.loads(path.read_text(encoding="utf-8"))
        if args.json:  # the table so far, should this be stopped
            results.write_report(args.json, args, where, judge_all(goals, found, problems))
    return judge_all(goals, found, problems)


def judge_all(
    goals: Sequence[Goal], found: dict[str, Any], problems: dict[str, str]
) -> results.Report:
    """The table of all goals, from the measurements that were found."""
    rows = []
    for goal in goals:
        missing = {"problem": problems.get(goal.measurement, "its turn has not come yet")}
        measured = found.get(goal.measurement)
        rows.append(judge(goal, measured["rows"][goal.row] if measured else missing))
    commits = sorted({str(each["machine"]["commit"]) for each in found.values()})
    return results.Report(
        rows, COLUMNS, ["measured at commit " + ", ".join(commits)], lambda path: draw(path, rows)
    )


def draw(path: Path, rows: list[dict[str, Any]]) -> None:
    """Draw the rows that have a ratio. Ratios of memory have no quartiles."""
    shown = [
        {**row, "time_ratio_quartiles": row["time_ratio_quartiles"] or [row["time_ratio"]] * 2}
        for row in rows
        if row["time_ratio"] is not None
    ]
    plots.bars(path, shown, "Ratio to the baseline")


def _fits(
    path: Path, measurement: Measurement, args: argparse.Namespace, where: dict[str, Any]
) -> bool:
    """Whether an earlier run measured this, as it is defined now, on this machine.

    Of the machine all but the commit counts, which the table names.
    """
    before = read_json(path)
    if not isinstance(before, dict):
        return False
    had, same = before.get("arguments", {}), {"data": str(args.data), "clock": args.clock}
    other = [name for name, value in same.items() if had.get(name, value) != value]
    other += ["definition"] if before.get(DEFINITION) != _definition(measurement) else []
    then = before.get("machine", {})
    other += [name for name in where if name != "commit" and then.get(name) != where[name]]
    if other:
        print(f"{path} has another {', '.join(other)}: measuring again", file=sys.stderr)
    return not other


def _definition(measurement: Measurement) -> list[str]:
    """What decides the figures, apart from the data and the machine."""
    return measurement.command(Path("DATA"))


def measure(measurement: Measurement, path: Path, args: argparse.Namespace, device: str) -> bool:
    """Run a measurement in a new process; return whether it wrote its files."""
    words = measurement.command(args.data)
    command = [sys.executable, "-m", "fairseq_plugins", "benchmark", *words]
    command += ["--cpu"] if device == "cpu" else []
    command += ["--json", str(path)]
    command += ["--threads", str(args.threads), "--clock", args.clock]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0 or not path.exists():
        return False
    path.with_suffix(".md").write_text(done.stdout, encoding="utf-8")
    write_json(path, {**(read_json(path) or {}), DEFINITION: _definition(measurement)})
    return True


def judge(goal: Goal, row: dict[str, Any]) -> dict[str, Any]:
    """Convert a row of a measurement to the table row of its goal."""
    ratio = row.get("peak_ratio" if goal.memory else "time_ratio")
    verdict = ""
    if ratio is None:
        verdict = "not measured: " + (row.get("problem") or "no figure")
    elif goal.limit is not None:
        missed = f"missed by {ratio - goal.limit:.3f}"
        verdict = "reached" if ratio <= goal.limit else missed
    return {
        "what": goal.what,
        "contender": goal.what,
        "against": goal.against,
        "goal": goal.limit,
        "time_ratio": ratio,
        "time_ratio_quartiles": None if goal.memory else row.get("time_ratio_quartiles"),
        "flop_ratio": None if goal.memory else row.get("flop_ratio"),
        "verdict": verdict,
    }
