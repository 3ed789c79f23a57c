"""Peak memory of a training step or an inference, on a CPU each in a fresh process.

    python -m fairseq_plugins benchmark memory --contender transformer --contender transformer_ftc
    python -m fairseq_plugins benchmark memory --contender ffn --contender mscffn --lengths 1024

Contenders as in `layer`; an architecture runs whole, or its encoder with --part encoder. "peak" is
the growth of the process over one run (on a GPU that of torch's allocations), which leaves out what
was there before: the program, parameters, their gradients, the optimizer's state. "allocated" is
that of torch's allocations on a CPU, with gradients. "kept" is what forward keeps for backward,
parameters left out. A run that does not fit --memory-limit is shown with the reason.
"""

import argparse
from typing import Any

import torch

from fairseq_plugins.arguments import add_number
from fairseq_plugins.progress import progress_bar

from . import layer, machine, modules, peak_memory, plots, results, workloads
from .peak_memory import GIB, MIB

LIMIT = 6.0  # default of --memory-limit on a CPU, in GiB


def add_arguments(parser: argparse.ArgumentParser) -> None:
    workloads.add_arguments(parser, tokens=4096)
    layer.add_lengths(parser, 256)
    modules.add_options(parser)
    add_limits(parser)
    machine.add_arguments(parser)


def add_limits(parser: argparse.ArgumentParser) -> None:
    text = f"memory that a process may use (default: {LIMIT:g}; on a GPU, all of its memory)"
    add_number(parser, "--memory-limit", text, least=0.5, kind=float, metavar="GIB")
    add_number(parser, "--patience", "seconds that a process may take", 600.0, 1, float)


def set_limit(args: argparse.Namespace, device: torch.device) -> None:
    """Set the default of --memory-limit."""
    if args.memory_limit is None:
        on_gpu = device.type == "cuda"
        total = torch.cuda.get_device_properties(device).total_memory if on_gpu else LIMIT * GIB
        args.memory_limit = total / GIB


def run(args: argparse.Namespace) -> results.Report:
    """Measure the memory of all contenders; the module's docstring describes the measurement.

    Raises:
        ConfigurationError: arguments are invalid.
    """
    layer.check_contenders(args.contender)
    layer.check_tokens(args.lengths, args.tokens)
    device = machine.choose_device(args)
    set_limit(args, device)
    rows: list[dict[str, Any]] = []
    with progress_bar(
        description="peaks", total=len(args.lengths) * len(args.contender), leave=False
    ) as bar:
        for length in args.lengths:
            setting = workloads.Setting(
                args.part, args.what, length, args.tokens // length,
                args.target_length or length, args.dtype, device.type, args.threads,
                args.options, layer.sizes_of(args), args.vocabulary,
            )  # fmt: skip
            first = None
            for words in args.contender:
                limit = int(args.memory_limit * GIB)
                peak = peak_memory.measure(words, setting, limit, args.patience, args.clock, True)
                first = peak if first is None else first
                rows.append(row_of(words, length, peak, first))
                bar.update(1)
    return results.Report(
        rows,
        [
            ("length", results.number("length", ",.0f")),
            ("contender", results.code("contender")),
            ("peak, ratio", results.number("peak_ratio")),
            ("peak, MiB", results.number("peak_bytes", ",.1f", 1 / MIB)),
            ("allocated, MiB", results.number("allocated_bytes", ",.1f", 1 / MIB)),
            ("kept, ratio", results.number("kept_ratio")),
            ("kept, MiB", results.number("kept_bytes", ",.1f", 1 / MIB)),
            ("parameters, M", results.number("parameters", ".2f", 1e-6)),
            ("", results.text("problem")),
        ],
        [f"{args.what}, {args.tokens} tokens a batch, {args.dtype}, part of architectures: "
         f"{args.part}, limit {args.memory_limit:.3g} GiB"],
        lambda path: draw(path, rows, args),
    )  # fmt: skip


def row_of(
    words: str, length: int, peak: peak_memory.Peak, baseline: peak_memory.Peak
) -> dict[str, Any]:
    def ratio(own: Any, base: Any) -> Any:
        return own / base if own is not None and base else None

    return {
        "length": length,
        "contender": words,
        "peak_bytes": peak.resident,
        "peak_ratio": ratio(peak.resident, baseline.resident),
        "allocated_bytes": peak.allocated,
        "allocated_ratio": ratio(peak.allocated, baseline.allocated),
        "kept_bytes": peak.kept,
        "kept_ratio": ratio(peak.kept, baseline.kept),
        "parameters": peak.parameters,
        "problem": peak.problem,
    }


def draw(path: Any, rows: list[dict[str, Any]], args: argparse.Namespace) -> None:
    title = f"{args.what}, {args.tokens:,} tokens"
    plots.by_length(path, rows, "peak_bytes", 1 / MIB, "peak, MiB", title)
