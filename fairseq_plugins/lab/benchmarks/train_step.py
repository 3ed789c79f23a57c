"""Training steps of several architectures side by side, on real batches.

    fairseq-plugins benchmark train-step DATA --arch transformer --arch transformer_ftc \\
        --arch "transformer_ftc --encoder-ffn mscffn --criterion NAME --bf16" \\
        [--options "--encoder-embed-dim 256 ..."]
    fairseq-plugins benchmark gpu-part updates DATA --arch A --arch "A --cuda-graphs"

A contender is an architecture with any options of fairseq-train; the first is the baseline. A step
is fairseq's own (Trainer.train_step): forward, loss, backward, clipping, optimizer, in the number
type given. All contenders take the same batches in turn: of sentences alike in length, as in
training, or with --order random of any. --part encoder runs only the encoder, forward and backward
of the sum of its output; --part loss runs only the projection to the vocabulary and the criterion,
forward and backward from random features that stand for the decoder's.

gpu-part has further measurements for a GPU, which also run on a CPU, to try them:

launch    the time to launch a kernel, eagerly and in a CUDA graph; memory bandwidth; products
equality  updates of each contender against the first: losses and parameters
updates   training for an epoch, or --updates: losses, time and memory of each contender
profile   a training step by torch's profiler: number and time of its kernels
"""

import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.fields import argument, option, with_default

from . import contenders, harness, machine, plots
from .harness import Report, Row, Timed, Typed

PARTS = ("model", "encoder", "loss")
ORDERS = ("length", "random")
LAUNCH, LAUNCHES = "launch", 1000
WINDOW = 50  # updates that a mean loss covers


@dataclass
class Models(Typed):
    """The options of both subcommands."""

    arch: Sequence[str] = option(
        (), "an architecture and its options; repeatable", metavar="WORDS", repeatable=True
    )
    options: str = option("", "options that all models get", metavar="WORDS")
    max_tokens: int = option(2048, "the maximum number of tokens in a batch", least=1)


@dataclass
class TrainStep(Timed, Models):
    """The options of `train-step`."""

    data: Path = argument("the prepared folder", "DATA")
    part: str = option("model", "what is timed", choices=PARTS)
    order: str = option("length", "batch by length, as in training, or randomly", choices=ORDERS)
    batches: int = option(8, "the number of different batches", least=1)
    leave_out_failing: bool = option(
        False, "a contender whose first step fails becomes a row with the reason, if not the first"
    )


def run_train_step(args: TrainStep) -> Report:
    """Time training steps; the module's docstring describes the measurement.

    Raises:
        ConfigurationError: arguments or data are invalid.
    """
    if not args.arch:
        raise ConfigurationError("give at least one --arch")
    device = harness.choose_device(args)
    rows: list[Row] = []
    failed: list[Row] = []
    works: list[Callable[[int], None]] = []
    sizes: list[list[tuple[int, int]]] = []
    for words in args.arch:
        try:
            model, trainer = build(words, args, device)
            # the same sentences for all, but captured steps need them packed
            own = trainer if args.part == "model" else None
            batches = load_batches(model, args.max_tokens, args.batches, device, args.order, own)
            sizes.append([size(batch) for batch in batches])
            step = step_of(trainer, args.part)
            work = lambda number, step=step, batches=batches: step(batches[number])  # noqa: E731
            if args.leave_out_failing:
                work(0)
        except Exception as error:  # of torch, Triton or CUDA: any type
            if not (args.leave_out_failing and works):
                raise
            failed.append({"contender": words, "problem": harness.one_line(error)})
            continue
        part = model.model.encoder if args.part == "encoder" else model.model
        rows.append({"parameters": contenders.count_parameters(part), "trainer": trainer})
        works.append(work)
    names = [words for words in args.arch if words not in [row["contender"] for row in failed]]
    numbers = range(args.batches)
    compared = harness.compare(names, works, numbers, args, device, "training steps")
    for row, figures in zip(rows, compared):
        row.update(figures, captures=contenders.captures(row.pop("trainer")))
    captured = any(row["captures"] is not None for row in rows)
    real, positions = map(sum, zip(*sizes[0]))
    return Report(
        rows + failed,
        [
            *harness.COMPARISON,
            ("parameters, M", harness.number("parameters", ".2f", 1e-6)),
            *([("captures", harness.number("captures", ".0f"))] if captured else []),
            *([("", harness.text("problem"))] if failed else []),
        ],
        [
            f"{args.batches} batches of at most {args.max_tokens} tokens, filled by {args.order} "
            f"({real} real target tokens, {real / positions:.0%} of the positions) x {args.rounds} "
            f"rounds, {args.dtype}, part: {args.part}"
        ],
        lambda path: plots.bars(path, rows, f"Training step: {args.part}, ratio to the first"),
    )


def build(words: str, args: Any, device: torch.device) -> tuple[contenders.Contender, Any]:
    """A contender and fairseq's trainer of it."""
    on_cpu = device.type == "cpu"
    model = contenders.build_on_data(words, args.options, args.data, args.dtype, on_cpu)
    return model, contenders.build_trainer(model, args.max_tokens)


def size(batch: dict[str, Any]) -> tuple[int, int]:
    """How many real target tokens and target positions a batch has."""
    packed = batch.get("packed")
    if packed is not None:
        return packed.tokens, packed.shape.target
    return batch["ntokens"], batch["target"].numel()


def load_batches(
    contender: contenders.Contender,
    max_tokens: int,
    count: int,
    device: torch.device,
    order: str = "length",
    trainer: Any = None,
) -> list[Any]:
    """Batches of the training set, shuffled with a fixed seed so that all lengths occur.

    Args:
        contender: sets the task and the length limits.
        max_tokens: tokens in a batch, padding included.
        count: number of batches; 0 for those of an epoch.
        device: the torch device of the batches.
        order: "length" groups sentences of similar length, as fairseq does in training; "random"
            does not.
        trainer: if its steps are captured, the batches are packed for them.

    Raises:
        ConfigurationError: there is no training set, or it has fewer batches.
    """
    from fairseq import utils

    from fairseq_plugins.data.packed_batches import Collate

    task = contender.task
    try:
        task.load_dataset("train")
    except FileNotFoundError as error:
        raise ConfigurationError(f"no training set in {contender.cfg.task.data}: {error}") from None
    dataset = task.dataset("train")
    if order == "random":
        permutation = np.random.default_rng(1).permutation(len(dataset))
        dataset.ordered_indices = lambda: permutation
    limits = task.max_positions(), contender.model.max_positions(), max_tokens
    iterator = task.get_batch_iterator(
        dataset,
        max_tokens=max_tokens,
        max_positions=utils.resolve_max_positions(*limits),
        ignore_invalid_inputs=True,
        required_batch_size_multiple=8,
        seed=1,
    )
    step = getattr(getattr(trainer, "optimizer", None), "captured_step", None)
    if step is not None:
        iterator.collate_fn = Collate(iterator.collate_fn, step.spec)
    iterator = iterator.next_epoch_itr(shuffle=True)
    batches = list(itertools.islice(iterator, count or None))
    if device.type == "cuda":
        batches = [utils.move_to_cuda(batch) for batch in batches]  # not what is packed
        for batch in batches if step is not None else ():
            batch["packed"] = batch["packed"].pin_memory()
    if len(batches) < count:
        raise ConfigurationError(
            f"--batches {count}: the training set has {len(batches)} of --max-tokens {max_tokens}"
        )
    return batches


def step_of(trainer: Any, part: str) -> Callable[[dict[str, Any]], None]:
    """The function to time, which takes a batch."""
    if part == "model":
        return lambda batch: trainer.train_step([batch], raise_oom=True)
    return loss_of(trainer) if part == "loss" else encoder_of(trainer)


def encoder_of(trainer: Any) -> Callable[[dict[str, Any]], None]:
    """A function that runs the encoder forward, and backward from the sum of its output."""
    encoder = trainer.model.encoder.train()

    def run_encoder(batch: dict[str, Any]) -> None:
        words = batch["net_input"]
        source, lengths = (words[n].to(trainer.device) for n in ("src_tokens", "src_lengths"))
        encoder.zero_grad(set_to_none=True)
        with contenders.forward_precision(trainer):
            output = encoder(source, lengths)["encoder_out"][0]
        output.float().sum().backward()

    return run_encoder


def loss_of(trainer: Any) -> Callable[[dict[str, Any]], None]:
    """A function that runs output projection and criterion on random features, with backward.

    The random features replace the decoder's features, B x T x C. The model's encoder and decoder
    are patched in place.
    """
    model = trainer.model.train()
    parameter = next(model.parameters())
    features: dict[int, torch.Tensor] = {}
    current: list[torch.Tensor] = []
    model.encoder.forward = lambda *args, **named: None
    model.decoder.extract_features = lambda *args, **named: (current[0], {"attn": [None]})

    def run_loss(batch: dict[str, Any]) -> None:
        key = id(batch)
        if key not in features:
            torch.manual_seed(1)
            shape = (*batch["target"].shape, model.decoder.output_embed_dim)
            features[key] = torch.randn(shape).to(parameter).requires_grad_()
        current[:] = [features[key]]
        current[0].grad = None
        model.zero_grad(set_to_none=True)
        batch, _ = trainer._prepare_sample(batch)
        with contenders.forward_precision(trainer):
            loss = trainer.criterion(model, batch)[0]
        loss.backward()

    return run_loss


# ---- parts for a GPU


def run_gpu_part(args: "GpuPart") -> Report:
    """Run one part. A failure becomes a row with its reason; other rows are kept.

    Raises:
        ConfigurationError: arguments are invalid, or no row has a figure.
    """
    if args.measured != LAUNCH and not args.arch:
        raise ConfigurationError(f"gpu-part {args.measured} needs --arch")
    device = harness.choose_device(args)
    where = machine.describe(device, args.threads)
    rows: list[Row] = []
    report = Report(
        rows,
        [
            ("what", harness.code("contender")),
            ("time, ratio", harness.number("time_ratio")),
            ("ms", harness.number("median_seconds", ".3f", 1000)),
            ("", harness.text("figure")),
        ],
        [f"{args.measured}, {args.dtype}"],
        lambda path: plots.bars(path, rows, args.measured),
    )
    kept: dict[str, Any] = {}  # of the first contender
    works = [
        (words, partial(GPU_PARTS[args.measured], words, args, device, kept)) for words in args.arch
    ]
    for name, measure in launches(device) if args.measured == LAUNCH else works:
        try:
            figures = measure()
        except Exception as error:  # of torch, Triton or CUDA: any type
            reason = harness.one_line(error)
            figures = {"figure": f"failed: {reason}", "problem": reason}
        row = {"contender": name, **figures}
        rows.append(row)
        if "seconds_a_step" in rows[0].keys() & row.keys():
            row["median_seconds"] = row["seconds_a_step"]
            row["time_ratio"] = row["seconds_a_step"] / rows[0]["seconds_a_step"]
        if args.json:
            harness.write_report(args.json, args, where, report)
    if all("problem" in row for row in rows):
        raise ConfigurationError(f"{args.measured}: {rows[0]['figure']}")
    return report


def launches(device: torch.device) -> Iterator[tuple[str, Callable[[], Row]]]:
    """What tells the speed of a GPU, by names: launches, memory bandwidth, products."""
    on_gpu = device.type == "cuda"
    small = torch.zeros(256, device=device)
    large = torch.randn(2**28 if on_gpu else 2**20, device=device)
    side = 8192 if on_gpu else 256
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

    def captured() -> Row:
        many()
        _wait(device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            many()
        took = _median(graph.replay, device) / LAUNCHES
        return {"median_seconds": took, "figure": f"{took * 1e6:.2f} us a kernel, replayed"}

    def rate(work: Callable[[], Any], amount: int, unit: str) -> Row:
        took = _median(work, device)
        return {"median_seconds": took, "figure": f"{amount / took / 1e12:.3f} {unit}"}

    copied = 2 * large.numel() * large.element_size()
    yield f"{LAUNCHES} small kernels", eager
    if on_gpu:
        yield f"{LAUNCHES} small kernels in a CUDA graph", captured
    copy = partial(rate, lambda: target.copy_(large), copied, "TB/s read and written")
    yield f"copy of {copied / 2**21:.0f} MiB", copy
    product = partial(rate, lambda: a @ b, 2 * side**3, "TFLOP/s")
    yield f"product of {side} x {side} in bf16", product


def equality(words: str, args: "GpuPart", device: torch.device, first: dict[str, Any]) -> Row:
    """Losses and parameters after some updates, against those of the first contender."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for deterministic products
    # warns of operations that have no deterministic form
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        trainer, batches = _trainer(words, args, device, 3)
        trainer.cfg.common.log_interval = 1  # each step returns its loss
        logs = [
            trainer.train_step([batches[turn % len(batches)]], raise_oom=True)
            for turn in range(args.updates or 8)
        ]
    finally:
        torch.use_deterministic_algorithms(False)
    values = torch.cat([p.detach().float().flatten() for p in trainer.model.parameters()])
    losses = [float(log["loss"]) for log in logs]
    if not first:
        first.update(losses=losses, values=values)
    differences = [abs(a / b - 1) for a, b in zip(losses, first["losses"])]
    far = float((values - first["values"]).abs().max())
    return {
        "losses": losses,
        "captures": contenders.captures(trainer),
        "difference_of_losses": differences,
        "difference": far,
        "figure": f"relative difference of the first loss {differences[0]:.1e}, of the last "
        f"one {differences[-1]:.1e}; parameters after {len(logs)} updates {far:.1e}",
    }


def updates(words: str, args: "GpuPart", device: torch.device, _: Any) -> Row:
    """Losses, time and memory of the updates of an epoch."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    trainer, batches = _trainer(words, args, device, args.updates)
    trainer.cfg.common.log_interval = 1  # each step returns its loss
    trainer.begin_epoch(1)
    shapes, losses, seconds = set(), [], []
    for batch in batches:
        source = batch["net_input"]["src_tokens"].shape
        shapes.add(batch["packed"].shape if "packed" in batch else (source, size(batch)[1]))
        begin = time.perf_counter()
        losses.append(float(trainer.train_step([batch], raise_oom=True)["loss"]))
        seconds.append(time.perf_counter() - begin)
    row: Row = {
        "seconds_a_step": statistics.mean(seconds),
        "seconds": seconds,
        "losses": losses,
        "shapes": len(shapes),
        "captures": contenders.captures(trainer),
    }
    figure = f"{len(losses)} updates of {len(shapes)} shapes in {sum(seconds):.1f} s"
    if on_gpu:
        row["peak_bytes"] = torch.cuda.max_memory_allocated()
        row["reserved_bytes"] = torch.cuda.max_memory_reserved()
        gib = [row[name] / 2**30 for name in ("peak_bytes", "reserved_bytes")]
        figure += "; peak {:.2f} GiB, reserved {:.2f}".format(*gib)
    means = [statistics.mean(losses[i : i + WINDOW]) for i in range(0, len(losses), WINDOW)]
    figure += "; mean losses " + " ".join(f"{mean:.3f}" for mean in means)
    return {**row, "figure": figure}


def profile(words: str, args: "GpuPart", device: torch.device, _: Any) -> Row:
    """The kernels of a step, by torch's profiler."""
    from torch.profiler import ProfilerActivity

    kind = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU
    trainer, batches = _trainer(words, args, device, 1)

    def step() -> None:
        trainer.train_step([batches[0]], raise_oom=True)

    for _ in range(2):
        step()
    took = _median(step, device, args.updates or 8)
    with torch.profiler.profile(activities=[kind]) as traced:
        step()
        _wait(device)
    kernels = _kernels(traced, device)
    busy = sum(time for _, _, time in kernels)
    count = sum(number for _, number, _ in kernels)
    return {
        "seconds_a_step": took,
        "kernels": count,
        "kernel_seconds": busy,
        "slowest": kernels[:40],
        "captures": contenders.captures(trainer),
        "figure": f"{count} kernels that take {busy * 1000:.2f} ms",
    }


def _kernels(traced: Any, device: torch.device) -> list[tuple[str, int, float]]:
    """Name, number and seconds of each kernel, the slowest first; of operations on a CPU."""
    sums: dict[str, list[float]] = {}
    for event in traced.events():
        on_gpu = event.device_type == torch.autograd.DeviceType.CUDA
        if on_gpu != (device.type == "cuda") or getattr(event, "is_user_annotation", False):
            continue
        took = event.time_range.elapsed_us() if on_gpu else event.self_cpu_time_total
        sums.setdefault(event.name[:120], []).append(took / 1e6)
    kernels = [(name, len(times), sum(times)) for name, times in sums.items()]
    return sorted(kernels, key=lambda kernel: -kernel[2])


def _trainer(
    words: str, args: "GpuPart", device: torch.device, count: int
) -> tuple[Any, list[Any]]:
    """fairseq's trainer of a contender, and its own `count` batches; with 0 those of an epoch."""
    model, trainer = build(words, args, device)
    return trainer, load_batches(model, args.max_tokens, count, device, trainer=trainer)


def _median(work: Callable[[], Any], device: torch.device, times: int = 9) -> float:
    work()
    return statistics.median(harness.seconds(work, device) for _ in range(times))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


GPU_PARTS: dict[str, Any] = {"equality": equality, "updates": updates, "profile": profile}


@dataclass
class GpuPart(Models):
    """The options of `gpu-part`."""

    measured: str = argument(
        f"{', '.join(GPU_PARTS)} or {LAUNCH}", "PART", choices=(LAUNCH, *GPU_PARTS)
    )
    data: Path = argument("the prepared folder", "DATA")
    max_tokens: int = with_default(Models, "max_tokens", 4096)
    updates: int = option(0, "the number of updates (default: 8, or one epoch)", least=0)


COMMANDS = {"train-step": (TrainStep, run_train_step), "gpu-part": (GpuPart, run_gpu_part)}
