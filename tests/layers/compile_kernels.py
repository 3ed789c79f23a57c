"""Compiles every Triton kernel for GPUs that need not be there.

Prints name, limit and use of shared memory.
"""

from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from fairseq_plugins.layers import kernels
from fairseq_plugins.layers.kernels import (
    activation,
    additive_attention,
    cross_entropy,
    pooling,
    products,
    projections,
    residual,
    sums,
)

# of a program on a GeForce RTX 30 and on an H100; no GPU since the A100 has less than the first
SHARED_MEMORY = {86: kernels.SHARED_MEMORY, 90: 227 * 1024}
OPTIONS = ("num_warps", "num_stages", "maxnreg")
FLOAT32 = {
    products: "grad_expand grad_expand_bias grad_contract grad_contract_bias",
    residual: "mean deviation out_mean out_deviation grad_parameters",
    additive_attention: "out out_sum out_max out_total maximum softmax_total grad_directions"
    " sums kept largest total summary weight",
    sums: "parts",
    pooling: "",
    activation: "sums",
    projections: "sums",
    cross_entropy: "losses",
}
NUMBERS = (
    "tokens tokens_of_part part_stride limit dim bsz length part_length stride_t stride_b"
    " direction_stride parts rows number size"
).split()


def type_of(module: Any, kernel: Any, argument: str) -> str:
    if argument in ("scale", "scaling", "epsilon", "share", "confidence"):
        return "fp32"
    if argument in FLOAT32[module].split():
        return "*fp32"
    if argument in NUMBERS:
        return "i32"
    numbers = dict.fromkeys(("seed", "starts", "pooled_starts", "sentence", "target"), "*i64")
    return {**numbers, "mask": "*i1", "counted": "*i1"}.get(argument, "*bf16")


def shared_memory(module: Any, name: str, blocks: dict[str, int], gpu: int) -> int:
    kernel = getattr(module, name)
    constants = {each: value for each, value in blocks.items() if each in kernel.arg_names}
    signature = {
        each: "constexpr" if each in constants else type_of(module, kernel, each)
        for each in kernel.arg_names
    }
    # as at a launch: addresses and sizes are multiples of 16, so that loads are pipelined
    multiples = {
        (place,): [["tt.divisibility", 16]]
        for place, each in enumerate(kernel.arg_names)
        if each not in constants
        and signature[each] != "fp32"
        and each not in kernel.do_not_specialize
    }
    places = {(kernel.arg_names.index(each),): value for each, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places, attrs=multiples)
    built = compile(
        source,
        target=GPUTarget("cuda", gpu, 32),
        options={each: blocks[each] for each in OPTIONS if each in blocks},
    )
    return int(built.metadata.shared)


def main() -> None:
    seed = torch.ones(1)
    for gpu, limit in SHARED_MEMORY.items():

        def report(
            module: Any, name: str, blocks: dict[str, int], label: str, gpu: int = gpu
        ) -> None:
            used = shared_memory(module, name, blocks, gpu)
            kind = module.__name__.split(".")[-1]
            print(f"sm_{gpu} {kind}{name} {label}", SHARED_MEMORY[gpu], used)

        names = {
            "forward": "_forward", "inner": "_backward_inner", "weights": "_backward_weights"
        }  # fmt: skip
        for size in (64, kernels.MAX_SUBSPACE):
            for kernel, name in names.items():
                blocks = products._blocks(kernel, 12 * size, size, 6 * size, seed, limit)
                report(products, name, blocks, str(size))
        for dim, heads in ((512, 16), (512, 32), (1024, 16)):
            half = kernels.MAX_ADDITIVE // 2
            if dim * heads > (kernels.MAX_ADDITIVE if limit >= kernels.LARGE else half):
                continue
            for kernel in ("forward", "backward"):
                blocks = additive_attention._blocks(kernel, dim, heads, seed, seed, seed, limit)
                report(additive_attention, "_" + kernel, blocks, f"{dim} {heads}")
            report(additive_attention, "_combine", {"DIM": dim}, f"{dim} {heads}")
        for dim in (512, kernels.MAX_FEATURES):
            blocks = residual._blocks(dim, seed, seed)
            report(residual, "_forward", blocks, str(dim))
            grads = {"USES": 2, "HAS_GRAD_SUM": 1}
            report(residual, "_backward", {**blocks, **grads}, str(dim))
            windows = {"window": 3, "features": 2, "MEAN": 1, "ADDS": 1, "FEATURES": 2}
            report(pooling, "_sum", {**pooling._blocks(dim // 2, 2), **windows}, str(dim))
            report(pooling, "_repeat", {**pooling._blocks(dim), **windows}, str(dim))
        for name in ("_forward", "_backward"):
            report(activation, name, {"dim": 2048, "DROPS": 1, **activation.BLOCKS}, "2048")
        report(projections, "_join", {"dim": 512, **projections.BLOCKS}, "512")
        sizes = {"vocabulary": 10152, "COUNTS": 1, "COLS": 4096, "num_warps": 8}
        report(cross_entropy, "_replace", sizes, "10152")
        report(sums, "_add", {"ROWS": 8, "COLS": 512}, "8")


if __name__ == "__main__":
    main()
