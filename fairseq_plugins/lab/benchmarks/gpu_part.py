"""Measurements for the first minutes on a GPU, one PART at a time.

    python -m fairseq_plugins benchmark gpu-part launch DATA
    python -m fairseq_plugins benchmark gpu-part updates DATA --arch A --arch "A --cuda-graphs"

launch    the time to launch a kernel, eagerly and in a CUDA graph; memory bandwidth; products
flash     flash attention over sentences of any length, with empty ones, in memory full of NaN
equality  updates of each contender against the first: losses and parameters
updates   training for an epoch, or --updates: losses, time and memory of each contender
profile   a training step by torch's profiler: number and time of its kernels

All parts also run on a CPU, to try them; flash then compares the reference with itself.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError, check_range

from . import contenders, machine, plots, results, timing, train_step
from .results import Row

LAUNCHES = 1000
WINDOW = 50  # updates that a mean loss covers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("part", choices=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("data", type=Path, help="the prepared folder")
    parser.add_argument("--arch", action="append", default=[], help="a contender; repeatable")
    parser.add_argument("--options", default="", help="options that all models get")
    parser.add_argument("--max-tokens", type=int, default=4096, help="default: %(default)s")
    parser.add_argument(
        "--updates", type=int, default=0, help="default: 8, or for updates one epoch"
    )
    machine.add_arguments(parser)


def run(args: argparse.Namespace) -> results.Report:
    """Run one part. A failure becomes a row with its reason; other rows are kept.

    Raises:
        ConfigurationError: arguments are invalid, or no row has a figure.
    """
    check_range("--max-tokens", args.max_tokens, 1)
    check_range("--updates", args.updates, 0)
    if args.part in OF_MODELS and not args.arch:
        raise ConfigurationError(f"gpu-part {args.part} needs --arch")
    device = machine.choose_device(args)
    where = machine.describe(device, args.threads)
    report = results.Report(
        [],
        [
            ("what", results.code("contender")),
            ("time, ratio", results.number("time_ratio")),
            ("median, ms", results.number("median_seconds", ".3f", 1000)),
            ("", results.text("figure")),
        ],
        [f"{args.part}, {args.dtype}"],
        lambda path: plots.bars(path, report.rows, args.part),
    )
    for name, measure in PARTS[args.part](args, device):
        try:
            found = measure()
        except Exception as error:  # of torch, Triton or CUDA: any type
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            found = {"figure": f"failed: {reason}", "problem": reason}
        report.rows.append({"contender": name, **found})
        _compare(report.rows)
        if args.json:
            results.write_report(args.json, args, where, report)
    if all("problem" in row for row in report.rows):
        raise ConfigurationError(f"{args.part}: {report.rows[0]['figure']}")
    return report


def _compare(rows: list[Row]) -> None:
    """Add the ratio of times to the first row, where both are training steps."""
    base = rows[0].get("seconds_a_step")
    if base and "seconds_a_step" in rows[-1]:
        rows[-1]["median_seconds"] = rows[-1]["seconds_a_step"]
        rows[-1]["time_ratio"] = rows[-1]["seconds_a_step"] / base


Measures = Iterator[tuple[str, Callable[[], Row]]]


def launch(args: argparse.Namespace, device: torch.device) -> Measures:
    small = torch.zeros(256, device=device)
    large = torch.randn(2**28 if device.type == "cuda" else 2**20, device=device)
    side = 8192 if device.type == "cuda" else 256
    a, b = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    target = torch.empty_like(large)

    def many() -> None:
        for _ in range(LAUNCHES):
            small.add_(1.0)

    def eager() -> Row:
        many()
        _wait(device)
        begin = time.perf_counter()
        many()
        host = (time.perf_counter() - begin) / LAUNCHES
        _wait(device)
        return {"median_seconds": host, "figure": f"{host * 1e6:.1f} us a launch"}

    def recorded() -> Row:
        if device.type != "cuda":
            return {"figure": "needs a GPU"}
        many()
        _wait(device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            many()
        graph.replay()
        took = _median(lambda: graph.replay(), device) / LAUNCHES
        return {"median_seconds": took, "figure": f"{took * 1e6:.2f} us a kernel, replayed"}

    def copy() -> Row:
        took = _median(lambda: target.copy_(large), device)
        speed = 2 * large.numel() * large.element_size() / took
        return {"median_seconds": took, "figure": f"{speed / 1e12:.3f} TB/s read and written"}

    def product() -> Row:
        took = _median(lambda: a @ b, device)
        return {"median_seconds": took, "figure": f"{2 * side**3 / took / 1e12:.2f} TFLOP/s"}

    yield f"{LAUNCHES} small kernels", eager
    yield f"{LAUNCHES} small kernels in a CUDA graph", recorded
    yield f"copy of {large.numel() * 4 / 2**20:.0f} MiB", copy
    yield f"product of {side} x {side} in bf16", product


def flash(args: argparse.Namespace, device: torch.device) -> Measures:
    for title, lengths, behind in (
        ("no empty sentence", [7, 33, 1, 64], 0),
        ("empty ones in the middle and last", [7, 0, 33, 1, 0, 0], 0),
        ("the first one empty", [0, 5, 64], 0),
        ("9 rows behind the last sentence", [7, 33, 1], 9),
        ("all of 512 sentences empty but one", [40] + [0] * 511, 0),
    ):
        for causal in (False, True):
            name = f"{title}, causal" if causal else title
            yield name, partial(_attend, lengths, behind, causal, device)
    if device.type == "cuda":
        yield "recorded, then other lengths", partial(_attend_recorded, device)


def _attend(lengths: list[int], behind: int, causal: bool, device: torch.device) -> Row:
    """Distance from exact attention, of results and gradients, in memory that held NaN."""
    real = sum(lengths)
    torch.manual_seed(1)
    parts = [torch.randn(real + behind, 4, 64) for _ in range(4)]
    q, k, v = (x.to(device, torch.bfloat16).requires_grad_() for x in parts[:3])
    weights = parts[3].to(device)
    weights[real:] = 0.0
    starts = _starts(lengths, device)
    exact = [x.detach().float().requires_grad_() for x in (q, k, v)]
    expected = _exact(exact[0], exact[1], exact[2], lengths, causal)
    wanted = torch.autograd.grad((expected * weights[:real]).sum(), exact)
    _poison(device)
    out = _flash(q, k, v, starts, max(lengths), causal, lengths)
    _poison(device)
    gradients = torch.autograd.grad((out.float()[:real] * weights[:real]).sum(), (q, k, v))
    far = _distance(out[:real], expected)
    of_gradients = max(_distance(a[:real], b[:real]) for a, b in zip(gradients, wanted))
    written = all(bool(torch.isfinite(x[real:]).all()) for x in (out, *gradients))
    figure = f"relative error {far:.1e}, of gradients {of_gradients:.1e}"
    if behind:
        figure += f"; rows behind are {'finite' if written else 'NOT finite'}"
    row = {"error": far, "gradient_error": of_gradients, "finite_behind": written}
    good = far < 0.02 and of_gradients < 0.02  # NaN is not
    return {**row, "good": good, "figure": figure if good else f"WRONG: {figure}"}


def _attend_recorded(device: torch.device) -> Row:
    """One graph for batches of other lengths: lengths are data; only the longest is fixed."""
    first, second = [7, 33, 1, 0], [1, 2, 30, 8]
    torch.manual_seed(1)
    q, k, v = (torch.randn(41, 4, 64, device=device, dtype=torch.bfloat16) for _ in range(3))
    starts = _starts(first, device)
    with torch.no_grad():
        _flash(q, k, v, starts, 64, True, first)
        _wait(device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = _flash(q, k, v, starts, 64, True, first)
        starts.copy_(_starts(second, device))
        graph.replay()
        far = _distance(out, _exact(q.float(), k.float(), v.float(), second, True))
    return {"error": far, "good": far < 0.02, "figure": f"relative error {far:.1e}"}


def _starts(lengths: Sequence[int], device: torch.device) -> Tensor:
    ends = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0)
    return ends.to(device, torch.int32)


def _flash(
    q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, causal: bool, lengths: list[int]
) -> Tensor:
    if not q.is_cuda:
        out = _exact(q.float(), k.float(), v.float(), lengths, causal).to(q)
        return F.pad(out, (0, 0, 0, 0, 0, q.size(0) - out.size(0)))
    operator = torch.ops.aten._flash_attention_forward
    return operator(q, k, v, starts, starts, longest, longest, 0.0, causal, False)[0]


def _exact(q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int], causal: bool) -> Tensor:
    """Attention of each sentence on its own; rows x h x s."""
    outs, begin = [q[:0]], 0
    for length in lengths:
        rows = slice(begin, begin + length)
        scores = torch.einsum("qhs,khs->hqk", q[rows], k[rows]) * q.size(-1) ** -0.5
        if causal:
            scores = scores + torch.full_like(scores, float("-inf")).triu(1)
        outs.append(torch.einsum("hqk,khs->qhs", scores.softmax(-1), v[rows]))
        begin += length
    return torch.cat(outs)


def _distance(found: Tensor, exact: Tensor) -> float:
    return float((found.float() - exact).norm() / exact.norm())


def _poison(device: torch.device) -> None:
    """Fill memory with NaN and free it, so that unwritten results show NaN."""
    blocks = [torch.full((2**n,), float("nan"), device=device) for n in range(8, 18)]
    del blocks


def equality(args: argparse.Namespace, device: torch.device) -> Measures:
    kept: dict[str, Any] = {}

    def measure(words: str) -> Row:
        trainer, batches = _trainer(words, args, device, 3)
        logs = [
            trainer.train_step([batches[turn % len(batches)]], raise_oom=True)
            for turn in range(args.updates or 8)
        ]
        values = torch.cat([p.detach().float().flatten() for p in trainer.model.parameters()])
        row: Row = {
            "losses": [float(log["loss"]) for log in logs],
            "recordings": contenders.recordings(trainer),
        }
        if not kept:
            kept.update(row, values=values)
        differences = [abs(a / b - 1) for a, b in zip(row["losses"], kept["losses"])]
        row["difference_of_losses"] = differences
        row["difference"] = float((values - kept["values"]).abs().max())
        row["figure"] = (
            f"relative difference of the first loss {differences[0]:.1e}, of the last one "
            f"{differences[-1]:.1e}; parameters after {len(logs)} updates {row['difference']:.1e}"
        )
        return row

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for deterministic products
    # warns of operations that have no deterministic form
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        for words in args.arch:
            yield words, partial(measure, words)
    finally:
        torch.use_deterministic_algorithms(False)


def updates(args: argparse.Namespace, device: torch.device) -> Measures:
    def measure(words: str) -> Row:
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        trainer, batches = _trainer(words, args, device, args.updates)
        trainer.begin_epoch(1)
        shapes, losses, seconds = set(), [], []
        for batch in batches:
            shapes.add(_shape(batch))
            begin = time.perf_counter()
            losses.append(float(trainer.train_step([batch], raise_oom=True)["loss"]))
            seconds.append(time.perf_counter() - begin)
        means = [
            statistics.mean(losses[i : i + WINDOW]) for i in range(0, len(losses), WINDOW)
        ]  # fmt: skip
        row: Row = {
            "seconds_a_step": sum(seconds) / len(seconds),
            "seconds": seconds,
            "losses": losses,
            "shapes": len(shapes),
            "recordings": contenders.recordings(trainer),
        }
        figure = f"{len(losses)} updates of {len(shapes)} shapes in {sum(seconds):.1f} s"
        if device.type == "cuda":
            row["peak_bytes"] = torch.cuda.max_memory_allocated()
            row["reserved_bytes"] = torch.cuda.max_memory_reserved()
            figure += f"; peak {row['peak_bytes'] / 2**30:.2f} GiB, reserved "
            figure += f"{row['reserved_bytes'] / 2**30:.2f}"
        figure += "; mean losses " + " ".join(f"{mean:.3f}" for mean in means)
        return {**row, "figure": figure}

    for words in args.arch:
        yield words, partial(measure, words)


def _shape(batch: dict[str, Any]) -> tuple[int, ...]:
    if "rows" in batch:
        return batch["rows"].shape
    return (*batch["net_input"]["src_tokens"].shape, batch["target"].size(1))


def profile(args: argparse.Namespace, device: torch.device) -> Measures:
    from torch.profiler import ProfilerActivity

    kind = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU

    def measure(words: str) -> Row:
        trainer, batches = _trainer(words, args, device, 1)

        def step() -> None:
            trainer.train_step([batches[0]], raise_oom=True)

        for _ in range(3):
            step()
        took = statistics.median(timing.seconds(step, device) for _ in range(args.updates or 8))
        with torch.profiler.profile(activities=[kind]) as found:
            step()
            _wait(device)
        kernels = _kernels(found, device)
        busy = sum(time for _, _, time in kernels)
        count = sum(number for _, number, _ in kernels)
        return {
            "seconds_a_step": took,
            "kernels": count,
            "kernel_seconds": busy,
            "slowest": kernels[:40],
            "recordings": contenders.recordings(trainer),
            "figure": f"{count} kernels that take {busy * 1000:.2f} ms",
        }

    for words in args.arch:
        yield words, partial(measure, words)


def _kernels(found: Any, device: torch.device) -> list[tuple[str, int, float]]:
    """Name, number and seconds of each kernel, the slowest first; of operations on a CPU."""
    sums: dict[str, list[float]] = {}
    for event in found.events():
        on_gpu = event.device_type == torch.autograd.DeviceType.CUDA
        if on_gpu != (device.type == "cuda") or getattr(event, "is_user_annotation", False):
            continue
        took = event.time_range.elapsed_us() if on_gpu else event.self_cpu_time_total
        sums.setdefault(event.name[:120], []).append(took / 1e6)
    kernels = [(name, len(times), sum(times)) for name, times in sums.items()]
    return sorted(kernels, key=lambda kernel: -kernel[2])


def _trainer(
    words: str, args: argparse.Namespace, device: torch.device, count: int
) -> tuple[Any, list[Any]]:
    """fairseq's trainer of a contender, and its own `count` batches; with 0 those of an epoch."""
    model = contenders.build_on_data(
        words, args.options, args.data, args.dtype, device.type == "cpu"
    )
    trainer = contenders.build_trainer(model, args.max_tokens)
    return trainer, train_step.load_batches(model, args.max_tokens, count, device, trainer=trainer)


def _median(work: Callable[[], Any], device: torch.device) -> float:
    work()
    return statistics.median(timing.seconds(work, device) for _ in range(9))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


PARTS: dict[str, Callable[[argparse.Namespace, torch.device], Measures]] = {
    "launch": launch,
    "flash": flash,
    "equality": equality,
    "updates": updates,
    "profile": profile,
}
OF_MODELS = ("equality", "updates", "profile")
