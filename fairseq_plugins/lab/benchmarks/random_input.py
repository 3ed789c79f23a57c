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

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, make_dataclass
from types import SimpleNamespace
from typing import Any

import torch

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import read_json
from fairseq_plugins.options.fields import option, with_default
from fairseq_plugins.system.progress import progress_bar

from . import contenders, harness, machine, modules, peak_memory, plots, prepared, workloads
from .harness import Report, Row, Timed, Typed
from .peak_memory import GIB, MIB

AXES = ("length", "depth", "width")
BOTH = "both"
LIMIT = 6.0  # default of --memory-limit on a CPU, in GiB
SIZES = ("dim", "heads", "inner", "subspaces", "expansion", "dropout")  # of single modules


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
    """The options of every subcommand of this file."""

    contender: Sequence[str] = option(
        (), "a contender with its options; repeatable", metavar="WORDS", repeatable=True
    )
    options: str = option("", "options that all architectures get", metavar="WORDS")
    vocabulary: int = option(1000, "the size of the artificial vocabulary", least=8)
    what: str = option("training", "what is measured", choices=workloads.WHAT)
    tokens: int = option(4096, "the number of tokens in each batch", least=1)


@dataclass
class Architectures(Contenders):
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

    lengths: str = option("1024", "the source lengths, such as 512,8192")
    tokens: int = with_default(Contenders, "tokens", 8192)
    rounds: int = with_default(Timed, "rounds", 7)


@dataclass
class Memory(Architectures, modules.Sizes):
    """The options of `memory`."""

    lengths: str = option("256", "the source lengths, such as 512,8192")


@dataclass
class Growth(Architectures):
    """The options of `growth`."""

    titles = dict[str, str]()  # of contenders
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


def check(args: Contenders, lengths: list[int], tokens: int) -> None:
    """Raise a ConfigurationError if there is no contender, or a batch holds no sentence."""
    if not args.contender:
        raise ConfigurationError("give at least one --contender")
    if tokens < max(lengths):
        raise ConfigurationError(
            f"--tokens {tokens} is less than one sentence of {max(lengths)}: at least that many"
        )


def limit_of(args: Architectures, device: torch.device) -> float:
    """The value of --memory-limit, or its default."""
    if args.memory_limit is None and device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory / GIB
    return LIMIT if args.memory_limit is None else args.memory_limit


def setting_of(args: Any, device: torch.device, length: int, what: str = "") -> workloads.Setting:
    """The workload of a length."""
    given = vars(args)
    return workloads.Setting(
        given.get("part", "encoder"), what or args.what, length,
        given.get("sentences") or args.tokens // length, given.get("target_length") or length,
        args.dtype, device.type, args.threads, args.options,
        {name: given[name] for name in SIZES if name in given}, args.vocabulary,
    )  # fmt: skip


# ---- layer and memory


def run_layer(args: Layer) -> Report:
    """Time all contenders at each length.

    Raises:
        ConfigurationError: arguments are invalid.
    """
    lengths = numbers("--lengths", args.lengths)
    check(args, lengths, args.tokens)
    device = harness.choose_device(args)
    rows: list[Row] = []
    for length in lengths:
        setting = setting_of(args, device, length)._replace(target_length=8)
        loads = [workloads.build(words, setting) for words in args.contender]
        works = [lambda _, load=load: load.step() for load in loads]
        name = f"length {length:,}"
        compared = harness.compare(args.contender, works, [None], args, device, name, queued=True)
        for row, load in zip(compared, loads):
            rows.append({"length": length, **row, "parameters": load.parameters()})
    return Report(
        rows,
        [("length", harness.number("length", ",.0f")), *harness.COMPARISON],
        [f"{args.what}, {args.tokens} tokens a batch, {args.dtype}, {args.rounds} rounds"],
        lambda path: draw_lengths(path, rows, args, "median_seconds", 1, "seconds"),
    )


def run_memory(args: Memory) -> Report:
    """Measure the memory of all contenders at each length.

    Raises:
        ConfigurationError: arguments are invalid.
    """
    lengths = numbers("--lengths", args.lengths)
    check(args, lengths, args.tokens)
    device = harness.choose_device(args)
    args.memory_limit = limit_of(args, device)
    rows: list[Row] = []
    points = [(length, words) for length in lengths for words in args.contender]
    for length, words in progress_bar(points, description="peaks", leave=False):
        limit = int(args.memory_limit * GIB)
        setting = setting_of(args, device, length)
        peak = peak_memory.measure(words, setting, limit, args.patience, args.clock, True)
        row = {"length": length, "contender": words, **peak._asdict()}
        first = next((other for other in rows if other["length"] == length), row)
        rows.append(row)
        for name in ("peak", "allocated", "kept"):
            own, base = row[f"{name}_bytes"], first[f"{name}_bytes"]
            row[f"{name}_ratio"] = own / base if own is not None and base else None
    mib = 1 / MIB
    return Report(
        rows,
        [
            ("length", harness.number("length", ",.0f")),
            ("contender", harness.code("contender")),
            ("peak, ratio", harness.number("peak_ratio")),
            ("peak, MiB", harness.number("peak_bytes", ",.1f", mib)),
            ("allocated, MiB", harness.number("allocated_bytes", ",.1f", mib)),
            ("kept, ratio", harness.number("kept_ratio")),
            ("kept, MiB", harness.number("kept_bytes", ",.1f", mib)),
            ("parameters, M", harness.number("parameters", ".2f", 1e-6)),
            ("", harness.text("problem")),
        ],
        [
            f"{args.what}, {args.tokens} tokens a batch, {args.dtype}, part of architectures: "
            f"{args.part}, limit {args.memory_limit:.3g} GiB"
        ],
        lambda path: draw_lengths(path, rows, args, "peak_bytes", mib, "peak, MiB"),
    )


def draw_lengths(
    path: Any, rows: list[Row], args: Contenders, column: str, scale: float, unit: str
) -> None:
    """Bars at one length, otherwise a line for each contender."""
    lengths = {row["length"] for row in rows}
    if len(lengths) == 1 and column == "median_seconds":
        return plots.bars(path, rows, f"{args.what}, length {lengths.pop():,}")
    lines = [
        plots.line(name, [row for row in rows if row["contender"] == name], "length", column, scale)
        for name in dict.fromkeys(args.contender)
    ]
    with plots.figure(path, width=6.5) as (axis,):
        plots.curves(axis, lines, "length", unit, f"{args.what}, {args.tokens:,} tokens")
        plots.legend([axis])


# ---- growth


def run_growth(args: Growth) -> Report:
    """Measure time and memory at all values.

    Raises:
        ConfigurationError: arguments are invalid.
    """
    if not args.values:
        raise ConfigurationError("growth needs --values")
    values = numbers("--values", args.values)
    lengths = values if args.axis == "length" else [args.length]
    check(args, lengths, args.tokens if args.sentences is None else max(lengths))
    device = harness.choose_device(args)
    args.memory_limit = limit_of(args, device)
    where = machine.describe(device, args.threads)
    whats = list(workloads.WHAT) if args.what == BOTH else [args.what]
    kept = kept_rows(args, where)
    # the file keeps those that are not asked for now
    rows = [r for r in kept if r["value"] not in values or r["what"] not in whats]
    left_out: dict[tuple[str, str], str] = {}
    batch = f"{args.tokens:,} tokens" if args.sentences is None else f"{args.sentences:,} sentences"
    notes = [
        f"part: {args.part}, {batch} a batch, {args.dtype}; limits {args.memory_limit:.3g} GiB and "
        f"{args.longest_step:g} s a step"
    ]
    columns = [
        (args.axis, harness.number("value", ",.0f")),
        ("what", harness.text("what")),
        ("contender", lambda row: title_of(args, row["contender"], "`{}`")),
        ("time, ratio", harness.number("time_ratio")),
        ("quartiles", harness.quartiles("time_ratio_quartiles")),
        ("operations, ratio", harness.number("flop_ratio")),
        ("seconds", harness.number("median_seconds", ".3f")),
        ("peak, ratio", harness.number("peak_ratio")),
        ("peak, MiB", harness.number("peak_bytes", ",.0f", 1 / MIB)),
        ("", harness.text("problem")),
    ]
    report = Report(rows, columns, notes, lambda path: draw_growth(path, rows, args, whats))
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
    args: Growth,
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
    setting = setting_of(args, device, value if args.axis == "length" else args.length, what)
    rows: list[Row] = []
    for words in args.contender:
        row: Row = {"axis": args.axis, "value": value, "what": what, "contender": words}
        reason = left_out.get((words, what)) or too_slow(args, value, what, words, before)
        if not reason:
            limit = int(limit_of(args, device) * GIB)
            own = sized(args, words, value)
            peak = peak_memory.measure(own, setting, limit, args.patience, args.clock)
            row["peak_bytes"], row["first_seconds"] = peak.peak_bytes, peak.seconds
            reason = peak.problem
            if peak.seconds is not None and peak.seconds > args.longest_step:
                reason = f"a step takes {peak.seconds:.3g} s"
        if reason:
            left_out[words, what] = reason
        rows.append({**row, "problem": reason})
    add_times(args, device, setting, [row for row in rows if not row["problem"]])
    base = rows[0].get("peak_bytes")
    for row in rows:
        if base and row.get("peak_bytes") is not None:
            row["peak_ratio"] = row["peak_bytes"] / base
    return rows


def add_times(
    args: Growth, device: torch.device, setting: workloads.Setting, rows: list[Row]
) -> None:
    """Time the contenders of these rows in turn; add times and operations to the rows."""
    if not rows:
        return
    expected = sum(row["first_seconds"] for row in rows)
    rounds = max(1, min(args.rounds, int(args.budget / max(expected, 1e-9))))
    names = [row["contender"] for row in rows]
    loads = [workloads.build(sized(args, name, rows[0]["value"]), setting) for name in names]
    works = [lambda _, load=load: load.step() for load in loads]
    how = SimpleNamespace(rounds=rounds, warmup=int(rounds > 1), clock=args.clock)
    description = f"{setting.what}, {args.axis} {rows[0]['value']:,}"
    counted = lambda name: expected < args.budget  # noqa: E731
    compared = harness.compare(names, works, [None], how, device, description, counted)
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


def draw_growth(path: Any, rows: list[Row], args: Growth, whats: list[str]) -> None:
    """Draw time on the left and memory on the right, one row each for training and inference."""
    columns = (("median_seconds", "seconds", 1.0), ("peak_bytes", "peak, MiB", 1 / MIB))
    with plots.figure(path, 2, len(whats)) as axes:
        for place, what in enumerate(whats):
            for side, (name, unit, scale) in enumerate(columns):
                lines = []
                for words in dict.fromkeys(args.contender):
                    own = [r for r in rows if r["contender"] == words and r["what"] == what]
                    here = [row for row in own if not row["problem"]]
                    ends = next((r["problem"] for r in own if r["problem"]), "").split(":")[0]
                    title = title_of(args, words)
                    lines.append(plots.line(title, here, "value", name, scale, ends))
                title = "training step" if what == "training" else "inference"
                plots.curves(axes[2 * place + side], lines, args.axis, unit, title)
        plots.legend(axes)


# ---- the papers


def run_figure2(args: Growth) -> Report:
    """Figure 2 of Fastformer: `growth`, and where Fastformer is the fastest, as in the paper."""
    report = run_growth(args)
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
    report = run_growth(args)
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
    "layer": (Layer, run_layer),
    "memory": (Memory, run_memory),
    "growth": (Growth, run_growth),
    "figure2": (growth_of("figure2"), run_figure2),
    "table3": (growth_of("table3"), run_table3),
}
