"""Time and memory of modules, encoders and models on random tokens without padding.

    fairseq-plugins benchmark layer --contender sdpa --contender fastformer --lengths 512
    fairseq-plugins benchmark memory --contender ffn --contender mscffn --lengths 1024
    fairseq-plugins benchmark growth --axis length --values 128,256,512 --tokens 8192 \\
        --contender transformer --contender fastformer_encoder --plot growth.svg
    fairseq-plugins benchmark figure2 --json figure2.json --plot figure2.svg

A contender is a module or an architecture, with options of its own; the first is the baseline.
Modules: softmax (fairseq's attention), sdpa (torch's fused attention), fastformer,
fastformer-plain, fastformer-reassociated, ffn, mscffn; summaries (a query of Fastformer), copy
(of its input: what memory can do); residual (dropout, residual and LayerNorm) and projections
(queries, keys and values), each also with -plain: as fairseq computes them. Training is one step
(forward and backward, with Adam for an encoder or a model), forward is evaluation without
gradients.

layer times modules or encoders. memory measures the peak of modules, models or encoders, on a CPU
each in a new process: "peak" is the growth of the process over one run (on a GPU that of torch's
allocations), which leaves out the program, parameters, their gradients and the optimizer's state;
"allocated" is that of torch's allocations on a CPU, with gradients; "kept" is what forward keeps
for backward, parameters left out. Both run at each of --lengths.

growth measures both, for models or encoders, at each value on an axis: the length of the sources
(targets are as long, or --target-length), the depth (layers of encoder and decoder each; an encoder
of several blocks gets equal blocks) or the width (d of both; the inner dimension is 4 d). Peak
memory comes first; this shows whether a step stays within --memory-limit and --longest-step. Those
that do are then timed in turn. The others are shown with the reason, here and at all larger values.
With --json, rerun to resume: what the file has of the same measurement on the same machine and
commit is kept. figure2 (of Fastformer) and table3 (of MSCFFN) are growth with a paper's encoders
and sizes.
"""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from fairseq_plugins.errors import ConfigurationError, flag
from fairseq_plugins.files import read_json
from fairseq_plugins.options.fields import option, values_of, with_default
from fairseq_plugins.system.progress import progress_bar

from . import contenders, harness, machine, modules, peak_memory, plots, prepared, workloads
from .harness import Column, Report, Row, Timed, Typed
from .peak_memory import GIB, MIB

AXES = ("length", "depth", "width")
BOTH = "both"
LIMIT = 6.0  # default of --memory-limit on a CPU, in GiB


# ---- options


def numbers(option: str, text: str) -> list[int]:
    """Convert "128,256" to [128, 256].

    Raises:
        ConfigurationError: the text is another one.
    """
    try:
        values = sorted({int(word) for word in text.split(",")})
    except ValueError:
        values = [0]
    if values[0] < 1:
        raise ConfigurationError(f"{option} {text}: give numbers above 0, such as 128,256")
    return values


@dataclass
class Contenders(Typed):
    """The options of every subcommand of this file, and what it measures.

    Attributes:
        titles: of contenders.
        times, peaks: whether time and peak memory are measured.
        details: whether also other figures of memory are.
        resumes: whether a rerun keeps what the file of --json has.
    """

    titles = dict[str, str]()
    times, peaks, details, resumes = True, True, False, False
    axis, longest_step, budget = "length", float("inf"), float("inf")

    contender: Sequence[str] = option(
        (), "a contender with its options; repeatable", metavar="WORDS", repeatable=True
    )
    options: str = option("", "options that all architectures get", metavar="WORDS")
    vocabulary: int = option(1000, "the size of the artificial vocabulary", least=8)
    what: str = option("training", "what is measured", choices=workloads.WHAT)
    tokens: int = option(4096, "the number of tokens in each batch", least=1)


@dataclass
class Limited(Contenders):
    """Of those that measure whole models, too, and limit their memory."""

    part: str = option("model", "the part of an architecture", choices=workloads.PARTS)
    target_length: int | None = option(None, "the target length (default: the source's)", least=1)
    memory_limit: float | None = option(
        None, f"the memory of a process (default: {LIMIT:g}; on a GPU, all of its memory)",
        least=0.5, metavar="GIB",
    )  # fmt: skip
    patience: float = option(600.0, "the seconds that a process may take", least=1)


@dataclass
class Layer(Timed, Contenders, modules.Sizes):
    """The options of `layer`."""

    peaks = False
    lengths: str = option("1024", "the source lengths, such as 512,8192")
    tokens: int = with_default(Contenders, "tokens", 8192)
    rounds: int = with_default(Timed, "rounds", 7)


@dataclass
class Memory(Limited, modules.Sizes):
    """The options of `memory`."""

    times, details = False, True
    lengths: str = option("256", "the source lengths, such as 512,8192")


@dataclass
class Growth(Limited):
    """The options of `growth`."""

    resumes = True
    axis: str = option("length", "what grows", choices=AXES)
    values: str | None = option(None, "the values on the axis, such as 128,256,512")
    what: str = option(BOTH, "what is measured", choices=(*workloads.WHAT, BOTH))
    length: int = option(128, "the source length, if it is not the axis", least=1)
    sentences: int | None = option(None, "the sentences of a batch, in place of --tokens", least=1)
    rounds: int = option(5, "how often each is timed", least=1)
    budget: float = option(30.0, "the seconds per point; slow points get fewer rounds", least=0)
    longest_step: float = option(60.0, "skip steps that take more than N seconds", least=0)


def growth_of(paper: str) -> type[Growth]:
    """The options of `growth`, with those of a paper's measurement as defaults."""
    known = prepared.PAPERS[paper]
    titles = {words: title for title, words in known["encoders"].items()}
    defaults = {**known["defaults"], "contender": tuple(titles)}
    changed = [
        (each.name, each.type, with_default(Growth, each.name, defaults[each.name]))
        for each in fields(Growth)
        if each.name in defaults
    ]
    return make_dataclass(paper, changed, bases=(Growth,), namespace={"titles": titles})


def read_values(args: Any) -> list[int]:
    """The values on the axis.

    Raises:
        ConfigurationError: there are none, there is no contender, or a batch holds no sentence.
    """
    name = "values" if isinstance(args, Growth) else "lengths"
    if not getattr(args, name):
        raise ConfigurationError("growth needs --values")
    values = numbers(flag(name), getattr(args, name))
    longest = max(values) if args.axis == "length" else args.length
    if not args.contender:
        raise ConfigurationError("give at least one --contender")
    if args.tokens < longest and not getattr(args, "sentences", None):
        raise ConfigurationError(
            f"--tokens {args.tokens} is less than one sentence of {longest}: at least that many"
        )
    return values


def setting_of(args: Any, device: torch.device, value: int, what: str) -> workloads.Setting:
    """The workload of a value on the axis."""
    given, length = vars(args), value if args.axis == "length" else args.length
    return workloads.Setting(
        given.get("part", "encoder"), what, length,
        given.get("sentences") or args.tokens // length, given.get("target_length") or length,
        args.dtype, device.type, args.threads, args.options,
        values_of(args, modules.Sizes) if isinstance(args, modules.Sizes) else {}, args.vocabulary,
    )  # fmt: skip


# ---- the measurement


def run(args: Any) -> Report:
    """Measure all contenders at all values.

    Raises:
        ConfigurationError: arguments are invalid.
    """
    values, device = read_values(args), harness.choose_device(args)
    where = machine.describe(device, args.threads)
    sentences, limit = getattr(args, "sentences", None), LIMIT
    notes = [f"{args.tokens:,} tokens" if sentences is None else f"{sentences:,} sentences"]
    notes[0] += f" a batch, {args.dtype}"
    if args.peaks:
        if device.type == "cuda":
            limit = torch.cuda.get_device_properties(device).total_memory / GIB
        args.memory_limit = args.memory_limit or limit
        notes[0] += f", part of architectures: {args.part}, limit {args.memory_limit:.3g} GiB"
        notes[0] += f" and {args.longest_step:g} s a step" * isinstance(args, Growth)
    whats = list(workloads.WHAT) if args.what == BOTH else [args.what]
    kept = kept_rows(args, where) if args.resumes else []
    # the file keeps those that are not asked for now
    rows = [r for r in kept if r["value"] not in values or r["what"] not in whats]
    left_out: dict[tuple[str, str], str] = {}
    report = Report(rows, columns_of(args), notes, lambda path: draw(path, rows, args, whats))
    points = [(value, what) for value in values for what in whats]
    try:
        for value, what in progress_bar(points, description=args.axis, leave=False):
            before = [row for row in kept if (row["value"], row["what"]) == (value, what)]
            smaller = [row for row in rows if row["value"] < value]
            rows += before or point(args, device, value, what, smaller, left_out)
            rows.sort(key=lambda row: row["value"])
            left_out.update({(r["contender"], what): r["problem"] for r in before if r["problem"]})
            if args.json:
                harness.write_report(args.json, args, where, report)
    except KeyboardInterrupt:
        if not rows:
            raise
        notes.append("interrupted: what is here is what was measured until then")
    return report


def columns_of(args: Any) -> list[Column]:
    """The columns of the table."""
    columns: list[Column] = [
        (args.axis, harness.number("value", ",.0f")),
        ("what", harness.text("what")),
        ("contender", lambda row: title_of(args, row["contender"], "`{}`")),
    ]
    if args.times:
        columns += harness.COMPARISON[1:]
    for name in [*["peak"] * args.peaks, *["allocated", "kept"] * args.details]:
        columns.append((f"{name}, ratio", harness.number(f"{name}_ratio")))
        columns.append((f"{name}, MiB", harness.number(f"{name}_bytes", ",.1f", 1 / MIB)))
    columns.append(("parameters, M", harness.number("parameters", ".2f", 1e-6)))
    return [*columns, *[("", harness.text("problem"))] * args.peaks]


def kept_rows(args: Growth, where: Row) -> list[Row]:
    """The rows of an earlier run with these arguments on this machine, at any values."""

    def same(arguments: Row) -> Row:
        return {**json.loads(json.dumps(arguments)), "values": None}

    before = read_json(args.json) if args.json else None
    if not before or before.get("machine") != where:
        return []
    kept = same(before.get("arguments", {})) == same(harness.arguments(args))
    return before["rows"] if kept else []


def point(
    args: Any,
    device: torch.device,
    value: int,
    what: str,
    before: list[Row],
    left_out: dict[tuple[str, str], str],
) -> list[Row]:
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
    setting = setting_of(args, device, value, what)
    rows: list[Row] = []
    for words in args.contender:
        row: Row = {"axis": args.axis, "value": value, "what": what, "contender": words}
        row["problem"] = left_out.get((words, what)) or too_slow(args, value, what, words, before)
        if args.peaks and not row["problem"]:
            limit, own = int(args.memory_limit * GIB), sized(args, words, value)
            peak = peak_memory.measure(own, setting, limit, args.patience, args.clock, args.details)
            row.update(peak._asdict(), first_seconds=peak.seconds)
            if peak.seconds is not None and peak.seconds > args.longest_step:
                row["problem"] = f"a step takes {peak.seconds:.3g} s"
            del row["seconds"]
        if row["problem"]:
            left_out[words, what] = row["problem"]
        rows.append(row)
    if args.times:
        add_times(args, device, setting, [row for row in rows if not row["problem"]])
    for name in ("peak", "allocated", "kept"):
        base = rows[0].get(f"{name}_bytes")
        for row in rows if base else ():
            own_bytes = row.get(f"{name}_bytes")
            row[f"{name}_ratio"] = None if own_bytes is None else own_bytes / base
    return rows


def add_times(args: Any, device: torch.device, setting: workloads.Setting, rows: list[Row]) -> None:
    """Time the contenders of these rows in turn; add times and operations to the rows."""
    if not rows:
        return
    expected = sum(row.get("first_seconds", 0) for row in rows)
    rounds = int(max(1, min(args.rounds, args.budget / max(expected, 1e-9))))
    names = [row["contender"] for row in rows]
    loads = [workloads.build(sized(args, name, rows[0]["value"]), setting) for name in names]
    works = [lambda _, load=load: load.step() for load in loads]
    warmup = getattr(args, "warmup", int(rounds > 1))
    how = SimpleNamespace(rounds=rounds, warmup=warmup, clock=args.clock)
    description = f"{setting.what}, {args.axis} {rows[0]['value']:,}"
    compared = harness.compare(
        names, works, [None], how, device, description, lambda _: expected < args.budget,
        queued=not args.peaks,
    )  # fmt: skip
    ratios = ("time_ratio", "time_ratio_quartiles", "flop_ratio", "ratio_to_flop_limit")
    for row, figures, load in zip(rows, compared, loads):
        if names[0] != args.contender[0]:  # the baseline is not here
            figures = {name: value for name, value in figures.items() if name not in ratios}
        row.update(figures, rounds=rounds, parameters=load.parameters())


def too_slow(args: Growth, value: int, what: str, words: str, before: list[Row]) -> str:
    """Why a step is not run, or "": its time, extrapolated from the previous value, is too long."""
    own = [r for r in before if r["contender"] == words and r["what"] == what]
    if not own or own[-1].get("first_seconds") is None:
        return ""
    factor = value / own[-1]["value"]
    expected = own[-1]["first_seconds"] * (factor**2 if args.axis == "width" else factor)
    if expected <= args.longest_step:
        return ""
    # the same number of tokens takes at most, the same number of sentences at least that long
    bound = "up to" if args.sentences is None else "at least"
    return f"not run: {bound} {expected:.0f} s a step from {args.axis} {value:,} on"


def sized(args: Growth, words: str, value: int) -> str:
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
    layers = f"{words} --encoder-layers {value} --decoder-layers {value}"
    if blocks == 1:
        return layers
    each = [value // blocks + (1 if index < value % blocks else 0) for index in range(blocks)]
    return f"{layers} --encoder-blocks {','.join(map(str, each))}"


def title_of(args: Growth, words: str, form: str = "{}") -> str:
    """The name of a contender where the command has one, otherwise its words, formatted."""
    return args.titles.get(words) or form.format(words)


def draw(path: Path, rows: list[Row], args: Any, whats: list[str]) -> None:
    """Draw time on the left and memory on the right, one row each for training and inference."""
    columns = [("median_seconds", "seconds", 1.0)] * args.times
    columns += [("peak_bytes", "peak, MiB", 1 / MIB)] * args.peaks
    values = {row["value"] for row in rows}
    if len(values) == 1 and not args.peaks:
        plots.bars(path, rows, f"{args.what}, {args.axis} {values.pop():,}")
        return
    with plots.figure(path, len(columns), len(whats)) as axes:
        panels = iter(axes)
        for what, (name, unit, scale) in itertools.product(whats, columns):
            lines = []
            for words in dict.fromkeys(args.contender):
                own = [r for r in rows if r["contender"] == words and r["what"] == what]
                here = [row for row in own if not row["problem"] and row.get(name) is not None]
                ends = next((r["problem"] for r in own if r["problem"]), "").split(":")[0]
                up = [row[name] * scale for row in here]
                lines.append((title_of(args, words), [row["value"] for row in here], up, ends))
            title = "training step" if what == "training" else "inference"
            plots.curves(next(panels), lines, args.axis, unit, title)
        plots.legend(axes)


# ---- the papers


def run_figure2(args: Growth) -> Report:
    """Figure 2 of Fastformer: `growth`, and where Fastformer is the fastest, as in the paper."""
    report = run(args)
    notes = list(report.notes)
    for what in workloads.WHAT:
        lengths: dict[bool, list[str]] = {True: [], False: []}
        for value in sorted({row["value"] for row in report.rows}):
            seconds = {
                title_of(args, row["contender"]): row["median_seconds"]
                for row in report.rows
                if row["what"] == what and row["value"] == value and "median_seconds" in row
            }
            own = seconds.pop("Fastformer", None)
            if own and seconds:
                name = min(seconds, key=lambda title: seconds[title])
                share = f"{value:,} ({name} takes {seconds[name] / own:.2f} of its time)"
                lengths[own < seconds[name]].append(share)
        for faster, longest in lengths.items():
            if longest:
                notes.append(
                    f"{what}: Fastformer is {'' if faster else 'not '}the fastest "
                    f"({'agrees' if faster else 'disagrees'} with the paper) at length, with the "
                    f"next one: {', '.join(longest)}"
                )
    return report._replace(notes=notes)


def run_table3(args: Growth) -> Report:
    """Table 3 of MSCFFN: `growth`, as steps per second beside the paper's."""
    report = run(args)
    steps = prepared.PAPERS["table3"]["steps"]  # published, by title and length
    rows = {(row["value"], title_of(args, row["contender"])): row for row in report.rows}
    here, paper = [], []
    for (length, title), row in rows.items():
        row["title"], row["paper"] = title, (steps.get(title) or {}).get(length)
        row["steps"] = 1 / row["median_seconds"] if row.get("median_seconds") else None
        base = rows.get((length, title.rstrip("+")), {})
        if title.endswith("+") and base:
            theirs = (steps.get(title.rstrip("+")) or {}).get(length)
            if row["paper"] and theirs:
                row["paper_gain"] = row["paper"] / theirs
                paper.append(row["paper_gain"])
            if row["steps"] and base["steps"]:
                # of each round, as all contenders are timed in turn
                gain = harness.spread(harness.ratios(base["seconds"], row["seconds"]))
                row["gain"], row["gain_quartiles"] = gain.median, [gain.low, gain.high]
                here.append(gain)
    notes = list(report.notes)
    if here:
        medians = [gain.median for gain in here]
        line = (
            f"with MSCFFN an encoder is faster in {sum(gain.low > 1 for gain in here)} of "
            f"{len(here)} comparisons (the lower quartile is above 1), with {min(medians):.2f} to "
            f"{max(medians):.2f} times as many steps"
        )
        if paper:
            line += (
                f"; in the paper in {sum(gain > 1 for gain in paper)} of {len(paper)}, with "
                f"{min(paper):.2f} to {max(paper):.2f} times as many"
            )
        notes.append(line)
    columns = [
        ("length", harness.number("value", ",.0f")),
        ("encoder", harness.text("title")),
        ("steps/s, paper", harness.number("paper", ".3g")),
        ("steps/s, here", harness.number("steps", ".3g")),
        ("gain by MSCFFN, paper", harness.number("paper_gain", ".3g")),
        ("gain by MSCFFN, here", harness.number("gain", ".2f")),
        ("quartiles", harness.quartiles("gain_quartiles")),
        ("peak, MiB", harness.number("peak_bytes", ",.0f", 1 / MIB)),
        ("", harness.text("problem")),
    ]
    return report._replace(columns=columns, notes=notes)


COMMANDS = {
    "layer": (Layer, run),
    "memory": (Memory, run),
    "growth": (Growth, run),
    "figure2": (growth_of("figure2"), run_figure2),
    "table3": (growth_of("table3"), run_table3),
}
