"""Block sizes of the Triton kernels on a GPU, each against those in use.

    fairseq-plugins benchmark blocks --dtype bf16
    fairseq-plugins benchmark blocks --dtype bf16 --kernel products-weights

The sizes in use are the first of each kernel. Work is forward and backward at the sizes of the
speed goals, or only forward for kernels of forward. What does not compile or has no
room is named. To use other sizes, change `BLOCKS` in `layers/kernels/`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.fields import option, with_default

from . import harness, plots
from .harness import Report, Row, Timed

Change = tuple[Any, Any, Any]  # a dictionary, a key, and the value to try
# what is timed, and changes to try, each with a name; the first one changes nothing
Kernel = tuple[Callable[[], Any], list[tuple[str, Change]]]


def _changed(change: Change, work: Callable[[], Any], _: Any) -> None:
    where, key, value = change
    with mock.patch.dict(where, {key: value}):
        work()


def _products(kernel: str, device: torch.device, dtype: torch.dtype, part: int) -> Kernel:
    """MSCFFN 768/3072 with 12 subspaces. Blocks: tokens, width, warps, stages."""
    from fairseq_plugins.layers.kernels import products

    tokens, dim, size, width = 4096 // part, 768, 64, 384
    if part > 64:
        dim, size, width = 48, 8, 16
    subspaces = dim // size
    shapes = [(tokens, dim), (subspaces, size, width), (subspaces, 1, width)]
    shapes += [(subspaces // 2, width, size), (subspaces // 2, 1, size)]
    leaves = [
        (0.1 * torch.randn(shape)).to(device, dtype).requires_grad_(kernel != "forward")
        for shape in shapes
    ]
    tried = {
        "forward": [(128, 64, 8, 2), (128, 64, 8, 4), (64, 64, 4, 2), (64, 64, 4, 3),
                    (128, 128, 8, 2), (128, 128, 8, 3), (64, 128, 4, 2), (128, 32, 8, 3)],
        "inner": [(64, 64, 4, 3), (128, 64, 8, 2), (128, 64, 8, 3), (64, 32, 4, 2),
                  (64, 32, 4, 3), (128, 32, 8, 3)],
        "weights": [(64, 64, 4, 3), (32, 64, 4, 2), (32, 64, 4, 3), (64, 128, 8, 2),
                    (64, 128, 8, 3), (32, 128, 8, 3)],
    }  # fmt: skip
    key = (kernel, 64, True)
    return (
        partial(_work, lambda: products.KernelProducts.apply(*leaves, 0.0, None), leaves),
        [
            (",".join(str(number) for number in blocks), (products.BLOCKS, key, blocks))
            for blocks in [products.BLOCKS[key], *tried[kernel]]
        ],
    )


def _summaries(kernel: str, device: torch.device, dtype: torch.dtype, part: int) -> Kernel:
    """128 sentences of 2,048 positions with 1,024 features, 16 heads."""
    from fairseq_plugins.layers.kernels import additive_attention

    dim = 1024 if part <= 64 else 64
    leaves = [torch.randn(2048 // part, max(1, 128 // part), dim), torch.randn(16, dim)]
    leaves = [leaf.to(device, dtype).requires_grad_(kernel == "backward") for leaf in leaves]
    own = additive_attention.BLOCKS[kernel]
    tried = [
        {"TIMES": times, "num_stages": stages, **registers}
        for times in (16, 32)
        for stages in (2, 3, 4)
        for registers in ({}, {"maxnreg": 128})
    ]
    return (
        partial(
            _work,
            lambda: additive_attention.KernelSums.apply(*leaves, None, dim**-0.5, 0.0, None)[0],
            leaves,
        ),
        [
            (",".join(f"{name}={number}" for name, number in blocks.items()),
             (additive_attention.BLOCKS, kernel, blocks))
            for blocks in [own, *(each for each in tried if each != own)]
        ],
    )  # fmt: skip


def _rows(kernel: str, device: torch.device, dtype: torch.dtype, part: int) -> Kernel:
    """4,096 positions of 512 features (2,048 in the network, 10,152 words), with dropout."""
    from fairseq_plugins.layers.dropout import new_seed
    from fairseq_plugins.layers.kernels import activation, cross_entropy, projections, residual

    positions, dim, inner = 4096 // part, (512,), (2048,)
    x = (positions, 512)
    choices: dict[str, Any] = {
        "residual": ([x, dim, x, dim, dim], residual.BLOCKS, "tile", (512, 1024, 4096, 8192)),
        "activation": ([(positions, 2048), inner], activation.BLOCKS, "ROWS", (4, 8, 32, 64)),
        "projections": ([x, (1536, 512), (1536,)], projections.BLOCKS, "ROWS", (4, 8, 32, 64)),
        "cross_entropy": ([(positions, 10152)], cross_entropy.BLOCKS, "most", (1024, 2048, 8192)),
    }
    shapes, blocks, key, tried = choices[kernel]
    leaves = [torch.randn(shape).to(device, dtype).requires_grad_() for shape in shapes]
    seed = new_seed(leaves[0], 0.3)
    target = torch.zeros(positions, dtype=torch.int64, device=device)
    forward = {
        "residual": lambda: residual.KernelResidual.apply(*leaves, 1e-5, 0.3, seed)[1],
        "activation": lambda: activation.KernelActivation.apply(*leaves, 0.3, seed),
        "projections": lambda: sum(projections.KernelProjections.apply(*leaves)),
        "cross_entropy": lambda: cross_entropy.Losses.apply(*leaves, target, None, 1e-5, 0.9),
    }[kernel]
    return (
        partial(_work, forward, leaves),
        [(str(number), (blocks, key, number)) for number in dict.fromkeys((blocks[key], *tried))],
    )


def _work(forward: Callable[[], Tensor], leaves: list[Tensor]) -> None:
    out = forward()
    if out.requires_grad:
        torch.autograd.grad(out, [leaf for leaf in leaves if leaf.requires_grad], out.detach())


KERNELS: dict[str, Callable[[torch.device, torch.dtype, int], Kernel]] = {
    "products-forward": partial(_products, "forward"),
    "products-inner": partial(_products, "inner"),
    "products-weights": partial(_products, "weights"),
    "summaries-forward": partial(_summaries, "forward"),
    "summaries-backward": partial(_summaries, "backward"),
    **{
        name: partial(_rows, name)
        for name in ("residual", "activation", "projections", "cross_entropy")
    },
}


@dataclass
class Blocks(Timed):
    """The options of the subcommand."""

    kernel: Sequence[str] = option(
        (), "measure only this kernel; repeatable", choices=tuple(KERNELS), repeatable=True
    )
    part: int = option(1, "take an Nth of the tokens of the goals", least=1)
    rounds: int = with_default(Timed, "rounds", 15)


def run(args: Blocks) -> Report:
    """Time all candidates of each kernel in turn.

    Raises:
        ConfigurationError: arguments are invalid, or no kernel runs here.
    """
    device = harness.choose_device(args)
    rows: list[Row] = []
    for name in args.kernel or KERNELS:
        torch.manual_seed(1)
        timed, candidates = KERNELS[name](device, harness.DTYPES[args.dtype], args.part)
        works = {}
        for label, change in candidates:
            work = partial(_changed, change, timed)
            try:
                work(None)
            except Exception as error:  # whatever the compiler or the driver raises
                reason = harness.one_line(error, -1)[:80]
                rows.append({"contender": f"{name} {label}", "problem": reason})
                continue
            works[f"{name} {label}"] = work
        compared = harness.compare(
            list(works), list(works.values()), [None], args, device, name, lambda _: False, True
        )
        rows += [{**row, "problem": ""} for row in compared]
    columns = [
        ("kernel and blocks", harness.code("contender")),
        ("time, ratio", harness.number("time_ratio")),
        ("quartiles", harness.quartiles("time_ratio_quartiles")),
        ("median, us", harness.number("median_seconds", ".1f", 1e6)),
        ("", harness.text("problem")),
    ]
    notes = [f"{args.dtype}, {args.rounds} rounds"]
    measured = [row for row in rows if not row["problem"]]
    if not measured:
        raise ConfigurationError(f"no kernel runs here: {rows[0]['problem']}")
    return Report(rows, columns, notes, lambda path: plots.bars(path, measured, "blocks"))


COMMANDS = {"blocks": (Blocks, run)}
