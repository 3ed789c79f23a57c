"""Step time and peak memory against length, depth or width.

    python -m fairseq_plugins benchmark growth --axis length --values 128,256,512 --tokens 8192 \\
        --contender transformer --contender fastformer_encoder --plot growth.svg

Contenders are architectures with options; whole models run, or encoders with --part encoder (with
fixed embeddings, a loss on the output, and Adam). Training is one step, forward one pass without
gradients in evaluation mode (with given targets, for a whole model). Batches are random tokens
without padding, always --tokens of them (the number of sentences falls as length grows), or
--sentences at every length.

--axis length   of the sources; targets are as long, or --target-length
--axis depth    layers of encoder and decoder each; an encoder of several blocks gets equal blocks
--axis width    d of encoder and decoder, inner dimension 4 d

At each value, peak memory is measured first, on a CPU in new processes; this shows whether a step
stays within --memory-limit and --longest-step. Those that do are then timed alternately in one
process. The others are shown with the reason, here and at all larger values. With --json, rerun to
resume: what the file has of the same measurement on the same machine and commit is kept.
"""

import argparse
import json
import statistics
from typing import Any

from fairseq_plugins.arguments import add_number
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.json_files import read_json
from fairseq_plugins.progress import progress_bar

from . import contenders, layer, machine, memory, peak_memory, plots, results, timing, workloads
from .operations import count_flops
from .peak_memory import GIB, MIB

AXES = ("length", "depth", "width")
BOTH = "both"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--axis", choices=AXES, default="length", help="default: %(default)s")
    parser.add_argument(
        "--values", type=layer.numbers, help="values on the axis, such as 128,256,512"
    )
    workloads.add_arguments(parser, tokens=4096, more=[BOTH])
    add_number(parser, "--length", "source length, if it is not the axis", 128)
    add_number(
        parser, "--sentences", "sentences in each batch, at every length, instead of --tokens"
    )
    add_number(parser, "--rounds", "how often each is timed", 5)
    add_number(
        parser, "--budget", "seconds per point; slower points get fewer rounds", 30.0, 0, float
    )
    add_number(parser, "--longest-step", "leave out steps that take more seconds", 60.0, 0, float)
    memory.add_limits(parser)
    machine.add_arguments(parser)


def run(args: argparse.Namespace) -> results.Report:
    """Measure all values; the module's docstring describes the measurement.

    Raises:
        ConfigurationError: arguments are invalid.
    """
    layer.check_contenders(args.contender)
    if not args.values:
        raise ConfigurationError("growth needs --values")
    args.values = sorted(set(args.values))
    lengths = args.values if args.axis == "length" else [args.length]
    layer.check_tokens(lengths, args.tokens if args.sentences is None else max(lengths))
    device = machine.choose_device(args)
    memory.set_limit(args, device)
    where = machine.describe(device, args.threads)
    whats = list(workloads.WHAT) if args.what == BOTH else [args.what]
    kept = kept_rows(args, where)
    # the file keeps those that are not asked for now
    rows = [r for r in kept if r["value"] not in args.values or r["what"] not in whats]
    left_out: dict[tuple[str, str], str] = {}
    batch = f"{args.tokens:,} tokens" if args.sentences is None else f"{args.sentences:,} sentences"
    notes = [
        f"part: {args.part}, {batch} a batch, {args.dtype}; limits {args.memory_limit:.3g} GiB and "
        f"{args.longest_step:g} s a step"
    ]
    report = results.Report(
        rows,
        [
            (args.axis, results.number("value", ",.0f")),
            ("what", results.text("what")),
            ("contender", lambda row: title_of(args, row["contender"], "`{}`")),
            ("time, ratio", results.number("time_ratio")),
            ("quartiles", results.quartiles("time_ratio_quartiles")),
            ("operations, ratio", results.number("flop_ratio")),
            ("seconds", results.number("median_seconds", ".3f")),
            ("peak, ratio", results.number("peak_ratio")),
            ("peak, MiB", results.number("peak_bytes", ",.0f", 1 / MIB)),
            ("", results.text("problem")),
        ],
        notes,
        lambda path: draw(path, rows, args, whats),
    )
    with progress_bar(
        description=args.axis, total=len(args.values) * len(whats), leave=False
    ) as bar:
        try:
            for value in args.values:
                for what in whats:
                    found = [r for r in kept if r["value"] == value and r["what"] == what]
                    smaller = [r for r in rows if r["value"] < value]
                    rows += found or point(args, device, value, what, smaller, left_out)
                    rows.sort(key=lambda row: row["value"])
                    left_out.update(
                        {(r["contender"], what): r["problem"] for r in found if r["problem"]}
                    )
                    bar.update(1)
                    if args.json:
                        results.write_report(args.json, args, where, report)
        except KeyboardInterrupt:
            if not rows:
                raise
            notes.append("interrupted: what is here is what was measured until then")
    return report


def kept_rows(args: argparse.Namespace, where: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of an earlier run with these arguments on this machine, at any values."""

    def same(arguments: dict[str, Any]) -> dict[str, Any]:
        return {**json.loads(json.dumps(arguments)), "values": None}

    before = read_json(args.json) if args.json else None
    if not before or before.get("machine") != where:
        return []
    if same(before.get("arguments", {})) != same(results.arguments(args)):
        return []
    return before["rows"]


def point(
    args: argparse.Namespace,
    device: Any,
    value: int,
    what: str,
    before: list[dict[str, Any]],
    left_out: dict[tuple[str, str], str],
) -> list[dict[str, Any]]:
    """Measure one value: peak memory, then the times of all contenders in turn.

    Args:
        args: the arguments of the subcommand.
        device: the torch device.
        value: the length, depth or width.
        what: "training" or "forward".
        before: the rows of smaller values.
        left_out: why a (contender, what) is no longer run; extended in place.

    Returns:
        one row per contender.
    """
    rows: list[dict[str, Any]] = []
    for words in args.contender:
        row = {"axis": args.axis, "value": value, "what": what, "contender": words, "problem": ""}
        rows.append(row)
        reason = left_out.get((words, what)) or too_slow(args, value, what, words, before)
        if not reason:
            peak = peak_memory.measure(
                sized(args, words, value),
                setting_of(args, value, what, device),
                int(args.memory_limit * GIB),
                args.patience,
                args.clock,
            )
            row["peak_bytes"], row["first_seconds"] = peak.resident, peak.seconds
            reason = peak.problem
            if not reason and peak.seconds > args.longest_step:
                reason = f"a step takes {peak.seconds:.3g} s"
        if reason:
            row["problem"] = reason
            left_out[words, what] = reason
    add_times(args, device, value, what, [row for row in rows if not row["problem"]])
    base = rows[0].get("peak_bytes")
    for row in rows:
        if base and row.get("peak_bytes") is not None:
            row["peak_ratio"] = row["peak_bytes"] / base
    return rows


def add_times(
    args: argparse.Namespace, device: Any, value: int, what: str, rows: list[dict[str, Any]]
) -> None:
    """Time the contenders of these rows in turn; add times and operations to the rows."""
    if not rows:
        return
    setting = setting_of(args, value, what, device)
    loads = [workloads.build(sized(args, row["contender"], value), setting) for row in rows]
    expected = sum(row["first_seconds"] for row in rows)
    rounds = max(1, min(args.rounds, int(args.budget / max(expected, 1e-9))))
    names = [row["contender"] for row in rows]
    works = [lambda _, w=load: w.step() for load in loads]
    warmup = 1 if rounds > 1 else 0
    description = f"{what}, {args.axis} {value:,}"
    times = timing.interleave(works, [None], rounds, warmup, device, description, args.clock)
    flops = [count_flops(work, [None]) if expected < args.budget else None for work in works]
    baseline_is_here = names[0] == args.contender[0]
    for row, found, load in zip(rows, timing.comparison(names, times, flops), loads):
        row["rounds"] = rounds
        row["parameters"] = load.parameters()
        if baseline_is_here:
            row.update(found)
        else:
            row.update(seconds=found["seconds"], flops=found["flops"])
            row["median_seconds"] = statistics.median(found["seconds"])


def too_slow(
    args: argparse.Namespace, value: int, what: str, words: str, before: list[dict[str, Any]]
) -> str:
    """Why a step is not run: its time, extrapolated from the previous value, is over the limit.

    Returns:
        the reason, or "" if the step should run.
    """
    own = [r for r in before if r["contender"] == words and r["what"] == what]
    if not own or "first_seconds" not in own[-1]:
        return ""
    factor = value / own[-1]["value"]
    expected = own[-1]["first_seconds"] * (factor**2 if args.axis == "width" else factor)
    if expected <= args.longest_step:
        return ""
    # the same number of tokens takes at most, the same number of sentences at least that long
    bound = "up to" if args.sentences is None else "at least"
    return f"not run: {bound} {expected:.0f} s a step from {args.axis} {value:,} on"


def title_of(args: argparse.Namespace, words: str, form: str = "{}") -> str:
    """The name of a contender where the command has one, otherwise its words, formatted."""
    return getattr(args, "titles", {}).get(words) or form.format(words)


def setting_of(args: argparse.Namespace, value: int, what: str, device: Any) -> workloads.Setting:
    length = value if args.axis == "length" else args.length
    return workloads.Setting(
        args.part, what, length, args.sentences or args.tokens // length,
        args.target_length or length, args.dtype, device.type, args.threads, args.options, {},
        args.vocabulary,
    )  # fmt: skip


def sized(args: argparse.Namespace, words: str, value: int) -> str:
    """A contender's words, with the options that set the depth or width to `value`.

    Raises:
        ConfigurationError: the encoder has more blocks than layers.
    """
    if args.axis == "length":
        return words
    if args.axis == "width":
        sides = ("encoder", "decoder")
        dims = [f"--{side}-embed-dim {value} --{side}-ffn-embed-dim {4 * value}" for side in sides]
        return " ".join([words, *dims])
    model = contenders.configure(words, args.options, "none", "fp32", True).model
    blocks = str(getattr(model, "encoder_blocks", None) or value).count(",") + 1
    if value < blocks:
        raise ConfigurationError(
            f"--values {value}: `{words}` has {blocks} blocks, so give at least {blocks}"
        )
    if blocks == 1:
        return f"{words} --encoder-layers {value} --decoder-layers {value}"
    each = [value // blocks + (1 if index < value % blocks else 0) for index in range(blocks)]
    split = ",".join(map(str, each))
    return f"{words} --encoder-layers {value} --encoder-blocks {split} --decoder-layers {value}"


def draw(path: Any, rows: list[dict[str, Any]], args: argparse.Namespace, whats: list[str]) -> None:
    """Draw time on the left and memory on the right, one row each for training and inference."""
    with plots.figure(path, 2, len(whats)) as axes:
        for place, what in enumerate(whats):
            for side, (name, unit, scale) in enumerate(
                (("median_seconds", "seconds", 1.0), ("peak_bytes", "peak, MiB", 1 / MIB))
            ):
                lines = []
                for words in dict.fromkeys(args.contender):
                    own = [r for r in rows if r["contender"] == words and r["what"] == what]
                    here = [r for r in own if r.get(name) is not None and not r["problem"]]
                    reason = next((r["problem"] for r in own if r["problem"]), "")
                    lines.append(
                        plots.Curve(
                            title_of(args, words),
                            [r["value"] for r in here],
                            [r[name] * scale for r in here],
                            reason.split(":")[0],
                        )
                    )
                title = "training step" if what == "training" else "inference"
                plots.curves(axes[2 * place + side], lines, args.axis, unit, title)
        plots.legend(axes)
