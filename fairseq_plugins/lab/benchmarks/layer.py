"""Parts of a layer, or whole encoders, at several lengths with a constant number of tokens.

    python -m fairseq_plugins benchmark layer --contender sdpa --contender fastformer --lengths 512
    python -m fairseq_plugins benchmark layer --contender ffn --contender mscffn --dim 768
    python -m fairseq_plugins benchmark layer --contender transformer --contender transformer_ftc

A contender is a module or an architecture (then its encoder runs), with options of its own; the
first is the baseline. Modules: softmax (fairseq's attention), sdpa (torch's fused attention),
fastformer, fastformer-plain, fastformer-reassociated, ffn, mscffn; summaries (one of Fastformer's
two), copy (of its input: what memory can do); residual (dropout, residual and LayerNorm) and
projections (queries, keys and values), each also with -plain: as fairseq computes them. Training is
forward and backward (with Adam for an encoder), forward is evaluation without gradients.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from fairseq_plugins.errors import ConfigurationError

from . import machine, modules, plots, results, timing, workloads
from .operations import count_flops


def add_arguments(parser: argparse.ArgumentParser) -> None:
    workloads.add_arguments(parser, tokens=8192, models=False)
    add_lengths(parser, 1024)
    timing.add_arguments(parser, rounds=7)
    modules.add_options(parser)
    machine.add_arguments(parser)


def add_lengths(parser: argparse.ArgumentParser, default: int) -> None:
    """Add --lengths, with this one length as its default."""
    text = f"source lengths, such as 512,8192 (default: {default})"
    parser.add_argument("--lengths", type=numbers, default=[default], help=text)


def numbers(text: str) -> list[int]:
    """Convert "128,256" to [128, 256]; raises a ValueError, which argparse reports."""
    values = [int(word) for word in text.split(",")]
    if not values or min(values) < 1:
        raise ValueError
    return values


def sizes_of(args: argparse.Namespace) -> dict[str, Any]:
    """The subcommand's options that set the sizes of single modules."""
    names = ("dim", "heads", "inner", "subspaces", "expansion", "dropout")
    return {name: getattr(args, name) for name in names}


def check_contenders(given: Sequence[str]) -> None:
    """Raise a ConfigurationError if there is nothing to measure."""
    if not given:
        raise ConfigurationError("give at least one --contender")


def check_tokens(lengths: list[int], tokens: int) -> None:
    if tokens < max(lengths):
        raise ConfigurationError(
            f"--tokens {tokens} is less than one sentence of {max(lengths)}: at least that many"
        )


def run(args: argparse.Namespace) -> results.Report:
    """Time all contenders at each length; the module's docstring describes the measurement.

    Raises:
        ConfigurationError: arguments are invalid.
    """
    check_contenders(args.contender)
    check_tokens(args.lengths, args.tokens)
    device = machine.choose_device(args)
    rows: list[dict[str, Any]] = []
    for length in args.lengths:
        setting = workloads.Setting(
            "encoder", args.what, length, args.tokens // length, 8, args.dtype, device.type,
            args.threads, args.options, sizes_of(args), args.vocabulary,
        )  # fmt: skip
        loads = [workloads.build(words, setting) for words in args.contender]
        works = [partial(_step, load) for load in loads]
        times = timing.interleave(
            works,
            [None],
            args.rounds,
            args.warmup,
            device,
            f"length {length:,}",
            args.clock,
            queued=True,
        )
        flops = [count_flops(work, [None]) for work in works]
        for row, load in zip(timing.comparison(args.contender, times, flops), loads):
            rows.append({"length": length, **row, "parameters": load.parameters()})
    return results.Report(
        rows,
        [("length", results.number("length", ",.0f")), *results.COMPARISON],
        [f"{args.what}, {args.tokens} tokens a batch, {args.dtype}, {args.rounds} rounds"],
        lambda path: draw(path, rows, args),
    )


def _step(load: Any, _: None) -> None:
    load.step()


def draw(path: Any, rows: list[dict[str, Any]], args: argparse.Namespace) -> None:
    if len(args.lengths) == 1:
        return plots.bars(path, rows, f"{args.what}, length {args.lengths[0]:,}")
    title = f"{args.what}, {args.tokens:,} tokens"
    plots.by_length(path, rows, "median_seconds", 1, "seconds", title)
