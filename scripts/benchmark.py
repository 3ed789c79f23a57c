#!/usr/bin/env python3
"""Time training steps of several architectures side by side, on real batches.

    python scripts/benchmark.py train-step DATA_BIN --arch transformer --arch transformer_ftc \
        --arch "transformer_ftc --encoder-ffn mscffn" [--model "--encoder-embed-dim 256 ..."]

The first architecture is the baseline. All take the same batches in turn (A B C A B C ...), each
step forward, loss, backward and Adam, so that a machine whose speed drifts slows all of them alike.
Shown are the median ratio to the baseline over the pairs with its quartiles, the ratio of floating
point operations beside it, and parameters. The absolute time only says what machine it was.
"""

import argparse
import json
import platform
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence
from unittest import mock

import torch

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "fairseq_plugins"
sys.path.insert(0, str(ROOT))


class Contender(NamedTuple):
    """A model in training, and where its batches come from."""

    name: str
    task: Any
    model: torch.nn.Module
    criterion: Any
    optimizer: torch.optim.Optimizer


def build(words: str, common: str, data: str, device: torch.device) -> Contender:
    """A model as fairseq-train would build it from these words of a command line."""
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    name, *more = shlex.split(words)
    command = [data, "--user-dir", str(PLUGIN), "--arch", name, "--task", "translation"]
    command += ["--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"]
    command += [*shlex.split(common), *more]
    with mock.patch.object(sys, "argv", ["benchmark", "--user-dir", str(PLUGIN)]):
        parser = options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, command))
    task = tasks.setup_task(cfg.task)
    torch.manual_seed(1)
    model = task.build_model(cfg.model).to(device).train()
    criterion = task.build_criterion(cfg.criterion)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98))
    return Contender(words, task, model, criterion, optimizer)


def load_batches(task: Any, max_tokens: int, count: int, device: torch.device) -> List[Any]:
    """Batches of the training set, spread evenly over its lengths."""
    from fairseq import utils

    task.load_dataset("train")
    iterator = task.get_batch_iterator(
        task.dataset("train"),
        max_tokens=max_tokens,
        max_positions=(1024, 1024),
        ignore_invalid_inputs=True,
        required_batch_size_multiple=8,
        seed=1,
    ).next_epoch_itr(shuffle=True)
    batches = [batch for _, batch in zip(range(count), iterator)]
    return [utils.move_to_cuda(b) if device.type == "cuda" else b for b in batches]


def train_step(contender: Contender, batch: Dict[str, Any]) -> None:
    loss, size, _ = contender.criterion(contender.model, batch)
    contender.optimizer.zero_grad(set_to_none=True)
    (loss / size).backward()
    contender.optimizer.step()


def seconds(work: Callable[[], None], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def count_flops(contender: Contender, batches: List[Any]) -> Optional[int]:
    """Floating point operations of the matrix products, forward and backward."""
    try:
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError:  # before torch 2.1
        return None
    with FlopCounterMode(display=False) as counter:
        for batch in batches:
            contender.criterion(contender.model, batch)[0].backward()
    contender.optimizer.zero_grad(set_to_none=True)
    return counter.get_total_flops()


def compare_training_steps(args: argparse.Namespace) -> List[Dict[str, Any]]:
    device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
    contenders = [build(words, args.model, args.data, device) for words in args.arch]
    batches = load_batches(contenders[0].task, args.max_tokens, args.batches, device)
    times: List[List[float]] = [[] for _ in contenders]
    for round_number in range(-args.warmup, args.rounds):
        for batch in batches:
            for contender, spent in zip(contenders, times):
                took = seconds(lambda c=contender, b=batch: train_step(c, b), device)
                if round_number >= 0:
                    spent.append(took)
        if sys.stderr.isatty():
            print(f"\rround {round_number + 1}/{args.rounds}", end="", file=sys.stderr)
    flops = [count_flops(contender, batches) for contender in contenders]
    rows = []
    for contender, spent, operations in zip(contenders, times, flops):
        low, middle, high = statistics.quantiles([t / b for t, b in zip(spent, times[0])], n=4)
        rows.append(
            {
                "model": contender.name,
                "time_ratio": middle,
                "time_ratio_quartiles": [low, high],
                "flop_ratio": operations / flops[0] if operations and flops[0] else None,
                "median_seconds": statistics.median(spent),
                "parameters": sum(p.numel() for p in contender.model.parameters()),
            }
        )
    return rows


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    step = commands.add_parser("train-step", help="forward, loss, backward and Adam")
    step.add_argument("data", help="folder that fairseq-preprocess made")
    step.add_argument("--arch", action="append", required=True, help="and options; repeatable")
    step.add_argument("--model", default="", help="options that all models get")
    step.add_argument("--max-tokens", type=int, default=2048, help="size of a batch")
    step.add_argument("--batches", type=int, default=8, help="different batches")
    step.add_argument("--rounds", type=int, default=5, help="times each batch is counted")
    step.add_argument("--warmup", type=int, default=1, help="rounds that are not counted")
    step.add_argument("--threads", type=int, default=1, help="processor threads")
    step.add_argument("--cpu", action="store_true", help="leave the GPU alone")
    step.add_argument("--json", type=Path, help="write the figures there too")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    rows = compare_training_steps(args)
    print(
        f"torch {torch.__version__}, {platform.machine()}, {args.threads} thread(s), "
        f"{args.batches} batches of {args.max_tokens} tokens x {args.rounds} rounds"
    )
    print("| model | time | quartiles | operations | parameters |\n|---|---|---|---|---|")
    for row in rows:
        low, high = row["time_ratio_quartiles"]
        flops = "-" if row["flop_ratio"] is None else f"{row['flop_ratio']:.3f}"
        print(
            f"| `{row['model']}` | {row['time_ratio']:.3f} | {low:.3f} - {high:.3f} | {flops} | "
            f"{row['parameters'] / 1e6:.2f} M |"
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
