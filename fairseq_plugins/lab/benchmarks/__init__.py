"""Benchmarks of models and layers: the subcommands of `benchmark`, over one harness.

`harness` times contenders in turn, counts operations and writes reports; `contenders` and `modules`
build what is compared, `workloads` runs it on random input, `peak_memory` measures within a limit,
`machine` describes the device and software, and `plots` draws. Files with subcommands have
`COMMANDS`: by name the dataclass of the options, and a function that takes them and returns a
`harness.Report`. `prepared.yaml` has the measurements that `goals`, `speed`, `figure2`, `table3`
and `gpu-report` make.
"""

FILES = {  # of each subcommand, and what it measures
    "train-step": ("train_step", "training steps of several architectures, on real batches"),
    "layer": ("random_input", "modules or encoders at several lengths"),
    "generate": ("generate", "beam search over real sentences"),
    "memory": ("random_input", "peak memory, and what forward keeps for backward"),
    "growth": ("random_input", "step time and peak memory against length, depth or width"),
    "figure2": ("random_input", "figure 2 of Fastformer: seven encoders against length"),
    "table3": ("random_input", "table 3 of MSCFFN: training steps per second"),
    "blocks": ("blocks", "block sizes of the Triton kernels on a GPU"),
    "goals": ("goals", "the speed goals on a CPU"),
    "speed": ("speed", "README's ratios of time against the stored ones"),
    "gpu-part": ("train_step", "parts of the prepared runs on a GPU"),
}
