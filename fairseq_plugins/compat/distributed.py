"""Repairs of training in several processes, with and without GPUs."""

import logging
import os
import socket
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from fairseq_plugins.compat import stopping
from fairseq_plugins.compat.patch import repair
from fairseq_plugins.errors import ConfigurationError, counted
from fairseq_plugins.system import cpu

logger = logging.getLogger(__name__)


class Launch(NamedTuple):
    """The rank of this process among those that torchrun or srun started."""

    rank: int
    local_rank: int
    world_size: int

    @classmethod
    def from_environment(cls) -> Optional["Launch"]:
        """Read torchrun's variables, or srun's; None if neither started this process."""
        for rank, local_rank, world_size in (
            ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
            ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"),
        ):
            if rank in os.environ and world_size in os.environ:
                number = int(os.environ[rank])
                return cls(
                    number, int(os.environ.get(local_rank, number)), int(os.environ[world_size])
                )
        return None


@repair(distributed_utils, "call_main")
def complete_distributed_launch(
    original: Callable, cfg: Any, main: Callable, **kwargs: Any
) -> None:
    """Make processes started by torchrun, srun or --distributed-world-size train together.

    fairseq assumes that several processes mean several GPUs. Without GPUs, torchrun's processes
    each train separately into one folder, `--distributed-world-size 2` fails,
    `--distributed-init-method` trains nothing and exits with status 0, and the default backends
    need a GPU. It also fails on nodes with one GPU each. This sets the flags from the environment
    variables of torchrun or srun.
    """
    distributed = cfg.distributed_training
    if cfg.common.tpu or distributed.pipeline_model_parallel:
        return original(cfg, main, **kwargs)
    on_cpu = cfg.common.cpu or not torch.cuda.is_available()
    launch = Launch.from_environment()
    if launch is not None and launch.world_size > 1:
        _join(launch, distributed, on_cpu)
    alone = distributed.distributed_world_size == 1 and distributed.distributed_init_method is None
    if on_cpu and not alone:
        if distributed.distributed_backend == "nccl":
            distributed.distributed_backend = "gloo"
        if distributed.ddp_backend in ("c10d", "pytorch_ddp"):
            distributed.ddp_backend = "legacy_ddp"
        if not distributed.distributed_no_spawn:
            return _spawn_on_cpu(cfg, main, kwargs)
    return original(cfg, main, **kwargs)


def _join(launch: Launch, distributed: Any, on_cpu: bool) -> None:
    """Set the rank, world size and device of this process, unless fairseq finds them itself."""
    spawns = distributed.distributed_init_method is not None and not on_cpu
    if spawns and not distributed.distributed_no_spawn:
        if distributed.distributed_world_size > launch.world_size:
            return  # srun started one process per machine; fairseq starts one per GPU
    if distributed.distributed_init_method is None:
        if not {"MASTER_ADDR", "MASTER_PORT"} <= set(os.environ):
            return
        if distributed.distributed_port > 0 and not on_cpu:
            return  # fairseq's own support of srun
        distributed.distributed_init_method = "env://"
    device = launch.local_rank
    if not on_cpu:
        gpus = torch.cuda.device_count()
        processes = int(os.environ.get("LOCAL_WORLD_SIZE", 0))
        if processes > gpus:
            raise ConfigurationError(
                f"{processes} processes were started on this machine, but it has "
                f"{counted(gpus, 'GPUs')}: use --nproc_per_node {gpus}, or --cpu"
            )
        device %= gpus  # srun may show each process only its own GPU
    distributed.distributed_world_size = launch.world_size
    distributed.distributed_rank = launch.rank
    distributed.device_id = device
    distributed.distributed_no_spawn = True


def _spawn_on_cpu(cfg: Any, main: Callable, kwargs: dict[str, Any]) -> None:
    """Start `--distributed-world-size` processes on this machine, as fairseq does for GPUs."""
    distributed = cfg.distributed_training
    size = distributed.distributed_world_size
    method = distributed.distributed_init_method
    if method is not None:
        raise ConfigurationError(
            f"--distributed-init-method {method} would train nothing, because fairseq starts "
            "one process per GPU, but there is no GPU: use torchrun, or only "
            "--distributed-world-size to start processes here, or start each yourself with "
            "--distributed-no-spawn and --distributed-rank"
        )
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    distributed.distributed_init_method = f"tcp://localhost:{port}"
    distributed.distributed_rank = None  # distributed_main sets it in each process
    os.environ.setdefault("OMP_NUM_THREADS", str(cpu.available_threads(size)))
    stopping.spawn(
        distributed_utils.distributed_main,
        args=(main, cfg, dict(kwargs, start_rank=0)),
        nprocs=size,
    )


@repair(Trainer, "__init__")
def check_the_machine(
    original: Callable, self: Trainer, cfg: Any, *args: Any, **kwargs: Any
) -> None:
    """Check the trainer's options against the machine.

    - One of several processes would train separately and overwrite shared checkpoints: an error.
    - `--fp16` without a GPU fails later in fairseq: an error of one line.
    - `--amp` without a GPU does nothing: a warning.
    - `--bf16` on a CPU that emulates it is slow: a warning.
    """
    launch = Launch.from_environment()
    together = dist.is_available() and dist.is_initialized()
    if launch is not None and launch.world_size > 1 and not together:
        raise ConfigurationError(
            f"this is process {launch.rank} of {launch.world_size}, but each would train "
            "separately and overwrite the others' checkpoints: with srun set MASTER_ADDR "
            "and MASTER_PORT; with fairseq-hydra-train set the options of the group "
            "distributed_training"
        )
    common = getattr(cfg, "common", cfg)
    if common.cpu or not torch.cuda.is_available():
        if common.fp16 and not common.memory_efficient_fp16:
            raise ConfigurationError("--fp16 needs a GPU: remove it on a CPU")
        if common.amp:
            logger.warning("--amp has no effect without a GPU: training in float32")
        if common.bf16:
            warn_if_emulated()
    _check_quant_noise(cfg)
    original(self, cfg, *args, **kwargs)


def warn_if_emulated() -> None:
    """Warn if this CPU emulates bf16, which is slower than float32."""
    if not cpu.has_bf16():
        logger.warning(
            "--bf16 is slow here: this CPU has no instructions for bf16, torch emulates them, and "
            "a step took 11 times as long as in float32 (torch 2.13). Train in float32, in "
            "another --save-dir, without --bf16"
        )


def _check_quant_noise(cfg: Any) -> None:
    """Raise a ConfigurationError if --quant-noise-pq would destroy the weights.

    fairseq writes the noise into the weights at each forward. Only the float32 copy of --fp16 and
    --bf16 restores them, after each update.
    """
    common, model = getattr(cfg, "common", cfg), getattr(cfg, "model", cfg)
    noise = getattr(model, "quant_noise_pq", 0) or 0
    copied = (common.fp16 and not common.memory_efficient_fp16) or (
        common.bf16 and not common.memory_efficient_bf16
    )
    if noise > 0 and not copied:
        raise ConfigurationError(
            f"--quant-noise-pq {noise} needs --bf16 or --fp16, not memory-efficient: in float32 "
            "fairseq sets weights to zero for good"
        )


@repair(distributed_utils, "all_gather_list")
def gather_lists_without_a_gpu(
    original: Callable, data: Any, group: Any = None, max_size: int = 16384
) -> list[Any]:
    """Use torch's `all_gather_object` with gloo: `all_gather_list` needs a GPU.

    fairseq-validate calls it, and so does training with criterions whose logs cannot be summed.
    """
    group = group if group is not None else distributed_utils.get_global_group()
    if dist.get_backend(group) != "gloo":
        return original(data, group, max_size)
    gathered: list[Any] = [None] * distributed_utils.get_world_size(group)
    dist.all_gather_object(gathered, data, group=group)
    return gathered


@repair()
def end_process_groups() -> None:
    """Destroy the process group after training, so that each process exits with status 0.

    fairseq never does. At the interpreter's exit gloo's threads then sometimes abort the process
    ("terminate called without an active exception"), and torchrun reports a finished training as
    failed.

    The replacement has a name in this module, so that processes which fairseq spawns find it, and
    with it all repairs, before they read --user-dir.
    """
    distributed_utils.distributed_main = main_of_a_process


_main_of_a_process = distributed_utils.distributed_main


def main_of_a_process(*args: Any, **kwargs: Any) -> None:
    """fairseq's `distributed_main`, which ends with a barrier; then all processes are done."""
    _main_of_a_process(*args, **kwargs)
    if dist.is_initialized():
        dist.destroy_process_group()
