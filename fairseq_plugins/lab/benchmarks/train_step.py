"""Training steps of several architectures side by side, on real batches.

    python -m fairseq_plugins benchmark train-step DATA --arch transformer --arch transformer_ftc \\
        --arch "transformer_ftc --encoder-ffn mscffn --criterion NAME --bf16" \\
        [--options "--encoder-embed-dim 256 ..."]

A contender is an architecture with any options of fairseq-train; the first is the baseline. A step
is fairseq's own (Trainer.train_step): forward, loss, backward, clipping, optimizer, in the number
type given. All contenders take the same batches in turn: of sentences alike in length, as in
training, or with --order random of any. --part encoder runs only the encoder, forward and backward
of the sum of its output; --part loss runs only the projection to the vocabulary and the criterion,
forward and backward from random features that stand for the decoder's.
"""

import argparse
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairseq_plugins.arguments import add_flag, add_number
from fairseq_plugins.errors import ConfigurationError

from . import contenders, machine, plots, results, timing
from .operations import count_flops

PARTS = ("model", "encoder", "loss")
ORDERS = ("length", "random")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="the prepared folder")
    parser.add_argument(
        "--arch", action="append", required=True, help="an architecture and its options; repeatable"
    )
    parser.add_argument("--options", "--model", default="", help="options that all models get")
    parser.add_argument("--part", choices=PARTS, default="model", help="default: %(default)s")
    add_number(parser, "--max-tokens", "maximum tokens in a batch", 2048)
    parser.add_argument(
        "--order",
        choices=ORDERS,
        default="length",
        help="group sentences by length, as in training, or randomly (default: %(default)s)",
    )
    add_number(parser, "--batches", "number of different batches", 8)
    add_flag(
        parser, "--leave-out-failing", "a contender whose first step fails becomes a row with the "
        "reason, if not the first",
    )  # fmt: skip
    timing.add_arguments(parser, rounds=5)
    machine.add_arguments(parser)


def run(args: argparse.Namespace) -> results.Report:
    """Time training steps; the module's docstring describes the measurement.

    Raises:
        ConfigurationError: arguments or data are invalid.
    """
    device = machine.choose_device(args)
    on_cpu = device.type == "cpu"
    models: list[contenders.Contender] = []
    trainers: list[Any] = []
    works: list[Callable[[int], None]] = []
    failed: list[dict[str, Any]] = []
    sizes: list[list[tuple[int, int]]] = []
    for words in args.arch:
        try:
            model = contenders.build_on_data(words, args.options, args.data, args.dtype, on_cpu)
            trainer = contenders.build_trainer(model, args.max_tokens)
            # the same sentences for all, but recorded steps need them as rows
            own = trainer if args.part == "model" else None
            batches = load_batches(model, args.max_tokens, args.batches, device, args.order, own)
            sizes.append([size(batch) for batch in batches])
            work = partial(_step, step_of(trainer, args.part), batches)
            if args.leave_out_failing:
                work(0)
        except Exception as error:  # of torch, Triton or CUDA: any type
            if not (args.leave_out_failing and works):
                raise
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            failed.append({"contender": words, "problem": reason})
            continue
        models.append(model)
        trainers.append(trainer)
        works.append(work)
    numbers = range(args.batches)
    times = timing.interleave(
        works, numbers, args.rounds, args.warmup, device, "training steps", args.clock
    )
    flops = [count_flops(work, numbers) for work in works]
    rows = timing.comparison([model.name for model in models], times, flops)
    for row, model, trainer in zip(rows, models, trainers):
        row["recordings"] = contenders.recordings(trainer)
        part = model.model.encoder if args.part == "encoder" else model.model
        row["parameters"] = contenders.count_parameters(part)
    recorded = any(row["recordings"] is not None for row in rows)
    real, positions = map(sum, zip(*sizes[0]))
    return results.Report(
        rows + failed,
        [
            *results.COMPARISON,
            ("parameters, M", results.number("parameters", ".2f", 1e-6)),
            *([("recordings", results.number("recordings", ".0f"))] if recorded else []),
            *([("", lambda row: row.get("problem", ""))] if failed else []),
        ],
        [
            f"{args.batches} batches of at most {args.max_tokens} tokens, filled by {args.order} "
            f"({real} real target tokens, {real / positions:.0%} of the positions) x {args.rounds} "
            f"rounds, {args.dtype}, part: {args.part}"
        ],
        lambda path: plots.bars(path, rows, f"Training step: {args.part}, ratio to the first"),
    )


def size(batch: dict[str, Any]) -> tuple[int, int]:
    """How many real target tokens and target positions a batch has."""
    rows = batch.get("rows")
    if rows is not None:
        return rows.tokens, rows.shape.target
    return batch["ntokens"], batch["target"].numel()


def _step(step: Callable[[dict[str, Any]], None], batches: list[Any], number: int) -> None:
    step(batches[number])


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
        trainer: if its steps are recorded, the batches get the rows that these need.

    Raises:
        ConfigurationError: there is no training set, or it has fewer batches.
    """
    from fairseq import utils

    from fairseq_plugins.data.rows import Collate

    task = contender.task
    try:
        task.load_dataset("train")
    except FileNotFoundError as error:
        raise ConfigurationError(f"no training set in {contender.cfg.task.data}: {error}") from None
    dataset = task.dataset("train")
    if order == "random":
        permutation = np.random.default_rng(1).permutation(len(dataset))
        dataset.ordered_indices = lambda: permutation
    iterator = task.get_batch_iterator(
        dataset,
        max_tokens=max_tokens,
        max_positions=utils.resolve_max_positions(
            task.max_positions(), contender.model.max_positions(), max_tokens
        ),
        ignore_invalid_inputs=True,
        required_batch_size_multiple=8,
        seed=1,
    )
    step = getattr(getattr(trainer, "optimizer", None), "recorded_step", None)
    if step is not None:
        iterator.collate_fn = Collate(iterator.collate_fn, step.spec)
    iterator = iterator.next_epoch_itr(shuffle=True)
    batches = list(itertools.islice(iterator, count or None))
    if device.type == "cuda":
        batches = [utils.move_to_cuda(batch) for batch in batches]  # not the rows
        for batch in batches if step is not None else ():
            batch["rows"] = batch["rows"].pin_memory()
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
