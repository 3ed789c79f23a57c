"""Compiles every Triton kernel for GPUs that need not be there.

Prints name, limit and use of shared memory.
"""

from typing import Dict

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from fairseq_plugins.modules import kernels
from fairseq_plugins.modules.kernels import products, summaries

# of a program on a GeForce RTX 30 and on an H100; no GPU since the A100 has less than the first
SHARED_MEMORY = {86: kernels.SHARED_MEMORY, 90: 227 * 1024}
OPTIONS = ("num_warps", "num_stages")
FLOAT32 = {
    "products": ("grad_expand", "grad_expand_bias", "grad_contract", "grad_contract_bias"),
    "summaries": (
        "keep out out_sum out_max out_total maximum softmax_total mean grad_directions "
        "sums kept largest total summary weight".split()
    ),
}
MASKS = {"products": ("keep",), "summaries": ("mask",)}
NUMBERS = (
    "tokens tokens_of_part part_stride dim size width bsz length heads stride_t stride_b "
    "direction_stride parts rows".split()
)


def type_of(module: str, argument: str) -> str:
    if argument in ("scale", "scaling"):
        return "fp32"
    if argument in NUMBERS:
        return "i32"
    if argument in MASKS[module]:
        return "*i1"
    return "*fp32" if argument in FLOAT32[module] else "*bf16"


def shared_memory(module: str, kernel, blocks: Dict[str, int], gpu: int) -> int:
    constants = {name: value for name, value in blocks.items() if name in kernel.arg_names}
    signature = {
        name: "constexpr" if name in constants else type_of(module, name)
        for name in kernel.arg_names
    }
    # as at a launch: addresses and sizes are multiples of 16, so that loads are pipelined
    multiples = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(kernel.arg_names)
        if name not in constants and type_of(module, name) != "fp32"
    }
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places, attrs=multiples)
    built = compile(
        source,
        target=GPUTarget("cuda", gpu, 32),
        options={name: blocks[name] for name in OPTIONS},
    )
    return built.metadata.shared


def main() -> None:
    mask = torch.ones(1, dtype=torch.bool)
    for gpu, limit in SHARED_MEMORY.items():
        for size in (64, kernels.MAX_SUBSPACE):
            for name in ("_forward", "_backward_inner", "_backward_weights"):
                shared = shared_memory(
                    "products", getattr(products, name), products._blocks(size, mask), gpu
                )
                print(f"sm_{gpu} products{name} {size}", limit, shared)
        for dim, heads in ((512, 16), (512, 32), (1024, 16)):
            assert dim * heads <= kernels.MAX_SUMMARIES
            for name in ("_forward", "_combine", "_backward"):
                blocks = summaries._blocks(dim, heads, mask, SHARED_MEMORY[gpu])
                shared = shared_memory("summaries", getattr(summaries, name), blocks, gpu)
                print(f"sm_{gpu} summaries{name} {dim} {heads}", limit, shared)


if __name__ == "__main__":
    main()
