"""What newer releases of torch and fairseq ask of each other, mended in this one place.

fairseq imports its user-dir before it reads the command line, so `apply()`, called by the package's
`__init__`, is in time for training, validation, generation, `from_pretrained`, and the processes
they start. Every item is a function of its own that says why it exists and for which versions, and
changes nothing where it is not needed. Importing this module changes nothing by itself.

"ff" below is fairseq-fixed 0.12.3.1 (fairseq's main branch of 2023/24); 0.12.2 is the last release.
"""

import functools
import importlib.util
import logging
import os
import pickle
import re
import socket
import sys
from collections import defaultdict
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import numpy as np
import torch
import torch.distributed as dist
from fairseq import checkpoint_utils, options, utils
from fairseq.data import data_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.search import DiverseBeamSearch
from fairseq.trainer import Trainer

from fairseq_plugins import bf16_products
from fairseq_plugins.errors import ConfigurationError

logger = logging.getLogger(__name__)


def apply() -> None:
    """Mend everything. Prints nothing; a second call does nothing."""
    allow_types_of_fairseq_checkpoints()
    explain_refused_checkpoints()
    drop_fused_copies_of_encoder_weights()
    copy_checkpoints_in_one_step()
    keep_the_last_batch()
    keep_bf16_off_the_tpu()
    multiply_bf16_in_float32_where_it_is_slow()
    count_no_gpus_for_the_cpu()
    validate_without_a_task()
    complete_distributed_launch()
    refuse_training_alone()
    gather_lists_without_a_gpu()
    end_process_groups()
    refuse_asynchronous_writing_without_iopath()
    number_diverse_beams_within_the_batch()
    ban_repeated_ngrams()
    copy_unknown_words_without_a_dictionary()


def _wrap(owner: Any, name: str, mend: str, make: Callable[[Callable], Callable]) -> None:
    """Replace `owner.name` by `make(original)`, once for each `mend`."""
    original = getattr(owner, name)
    done = getattr(original, "mended_by", ())
    if mend in done:
        return
    replacement = functools.wraps(original)(make(original))
    replacement.mended_by = done + (mend,)  # type: ignore[attr-defined]
    static = isinstance(vars(owner)[name], staticmethod)
    setattr(owner, name, staticmethod(replacement) if static else replacement)


# --------------------------------------------------------------------------------------------------
# Checkpoints


def allow_types_of_fairseq_checkpoints() -> None:
    """torch >= 2.6 refuses to unpickle any type it was not told of, and so fairseq's checkpoints.

    That default keeps a checkpoint from running code, so it stays, and exactly the types that
    fairseq writes are allowed. `Namespace` holds the options of the command line; numpy's types
    come with meters and scores; the rest is what rank 0 sends to the other processes on resuming.
    """
    if not hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"):  # before torch 2.6
        return
    torch.serialization.add_safe_globals(_checkpoint_types())


def _checkpoint_types() -> List[Any]:
    import typing
    from argparse import Namespace

    from omegaconf import DictConfig, ListConfig, base, nodes

    array = np.zeros(1)
    reconstruct = array.__reduce__()[0]
    scalar = array[0].__reduce__()[0]
    types: List[Any] = [Namespace, dict, list, int, defaultdict, typing.Any]
    types += [np.ndarray, np.dtype]
    # numpy 2 moved numpy.core to numpy._core: files written by one are read by the other
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        types += [(reconstruct, module + "._reconstruct"), (scalar, module + ".scalar")]
    # from numpy 1.25 on, each dtype has a class of its own
    numbers = (np.bool_, np.int32, np.int64, np.float16, np.float32, np.float64)
    types += {type(np.dtype(number)) for number in numbers}
    types += [DictConfig, ListConfig, base.ContainerMetadata, base.Metadata]
    types += [nodes.AnyNode, distributed_utils._TensorPlaceholder]
    return types


class RefusedCheckpoint(ConfigurationError, pickle.UnpicklingError):
    """A checkpoint that asks for something fairseq never writes."""


def explain_refused_checkpoints() -> None:
    """torch >= 2.6: say in one line which checkpoint was refused, why, and what to do."""

    def make(original: Callable) -> Callable:
        def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> Dict[str, Any]:
            try:
                return original(path, *args, **kwargs)
            except pickle.UnpicklingError as error:
                refused = re.search(r"GLOBAL (\S+)", str(error))
                if refused is None:
                    raise
                raise RefusedCheckpoint(
                    "checkpoint {} is refused and nothing in it was run: it asks for '{}', which "
                    "fairseq never writes, so the file may be malicious. Use a checkpoint from a "
                    "source you trust; if you wrote this one and know that type, pass it to "
                    "torch.serialization.add_safe_globals() in your user-dir.".format(
                        path, refused.group(1)
                    )
                ) from None

        return load_checkpoint_to_cpu

    _wrap(checkpoint_utils, "load_checkpoint_to_cpu", "explain_refused_checkpoints", make)


_FUSED_COPY = re.compile(r"(.*\.layers\.\d+\.)(in_proj|out_proj|fc1|fc2)_(weight|bias)")


def drop_fused_copies_of_encoder_weights() -> None:
    """fairseq 0.12.2 wrote the weights of an encoder layer twice, once more for a fused kernel.

    ff has no place for the copies and refuses the checkpoint. They hold nothing that the layer's
    own weights do not, and 0.12.2 rebuilds them on loading, so they are dropped everywhere.
    """

    def make(original: Callable) -> Callable:
        def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> Dict[str, Any]:
            state = original(path, *args, **kwargs)
            model = state.get("model") or {}
            for key in list(model):
                copy = _FUSED_COPY.fullmatch(key)
                if copy is not None and copy.group(1) + "self_attn.q_proj.weight" in model:
                    del model[key]
            return state

        return load_checkpoint_to_cpu

    _wrap(checkpoint_utils, "load_checkpoint_to_cpu", "drop_fused_copies", make)


def copy_checkpoints_in_one_step() -> None:
    """Every version writes checkpoint_last.pt as a plain copy of the checkpoint saved before it.

    A process killed meanwhile leaves half a file, and the training cannot be resumed from it. Copy
    beside it and rename, as fairseq does itself for the first file.
    """

    def make(original: Callable) -> Callable:
        def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
            if not overwrite or not PathManager.supports_rename(dst_path):
                return original(src_path, dst_path, overwrite=overwrite)
            copied = original(src_path, dst_path + ".tmp", overwrite=True)
            os.replace(dst_path + ".tmp", dst_path)
            return copied

        return copy

    _wrap(PathManager, "copy", "copy_checkpoints_in_one_step", make)


# --------------------------------------------------------------------------------------------------
# Batches


def keep_the_last_batch() -> None:
    """ff throws the last batch away unless its size is a multiple of 8 (not in 0.12.2).

    100 sentences give 96 translations and a score printed as if they were all; fewer than 8 give
    an error. What the original leaves out is the end of `indices`: one batch, within all limits.
    """

    def make(original: Callable) -> Callable:
        def batch_by_size(indices: Any, *args: Any, **kwargs: Any) -> List[Any]:
            if not isinstance(indices, np.ndarray):
                indices = np.fromiter(indices, dtype=np.int64, count=-1)
            if len(indices) == 0:
                raise ConfigurationError(
                    "no sentence to make a batch of: the data is empty, or every sentence is "
                    "longer than --max-source-positions, --max-target-positions or --max-tokens"
                )
            batches = original(indices, *args, **kwargs)
            rest = indices[sum(len(batch) for batch in batches) :]
            return batches + [rest] if len(rest) > 0 else batches

        return batch_by_size

    _wrap(data_utils, "batch_by_size", "keep_the_last_batch", make)


# --------------------------------------------------------------------------------------------------
# The command line


def _given(option: str, words: Optional[List[str]]) -> bool:
    """Whether the command line, or `words` in its place, has `option`."""
    words = sys.argv[1:] if words is None else words
    return any(str(word).split("=")[0] == option for word in words)


def keep_bf16_off_the_tpu() -> None:
    """`--bf16` is taken to mean a TPU, and fails for want of torch_xla (0.12.2 and ff)."""

    def make(original: Callable) -> Callable:
        def parse_args_and_arch(parser: Any, input_args: Any = None, *args: Any, **kw: Any) -> Any:
            if _given("--bf16", input_args) and _given("--fp16", input_args):
                raise ConfigurationError("--bf16 and --fp16 exclude each other: give one of them")
            parsed = original(parser, input_args, *args, **kw)
            options_read = parsed[0] if isinstance(parsed, tuple) else parsed
            if getattr(options_read, "bf16", False) and not _given("--tpu", input_args):
                options_read.tpu = False
            return parsed

        return parse_args_and_arch

    _wrap(options, "parse_args_and_arch", "keep_bf16_off_the_tpu", make)


def multiply_bf16_in_float32_where_it_is_slow() -> None:
    """`--bf16` on a CPU without bf16 instructions: a step took 11 times as long (torch 2.13)."""

    def make(original: Callable) -> Callable:
        def step(self: Trainer, *args: Any, **kwargs: Any) -> Any:
            dtype = torch.bfloat16 if self.cfg.common.bf16 else torch.float32
            with bf16_products.at_full_speed(dtype, self.device):
                return original(self, *args, **kwargs)

        return step

    for name in ("train_step", "valid_step"):
        _wrap(Trainer, name, "multiply_bf16_in_float32", make)


def count_no_gpus_for_the_cpu() -> None:
    """`--cpu` on a machine with several GPUs starts a process for each of them (0.12.2 and ff)."""

    def make(original: Callable) -> Callable:
        def parse_args_and_arch(parser: Any, input_args: Any = None, *args: Any, **kw: Any) -> Any:
            size_given = _given("--distributed-world-size", input_args)
            if _given("--cpu", input_args) and not size_given:
                parser.set_defaults(distributed_world_size=1)
            return original(parser, input_args, *args, **kw)

        return parse_args_and_arch

    _wrap(options, "parse_args_and_arch", "count_no_gpus_for_the_cpu", make)


def validate_without_a_task() -> None:
    """fairseq-validate has no default for `--task` and fails with `KeyError: None` (0.12.2 and ff).

    The task itself comes from the checkpoint; the name only decides which options are read.
    """

    def make(original: Callable) -> Callable:
        def parse_args_and_arch(parser: Any, *args: Any, **kw: Any) -> Any:
            if parser.get_default("task") is None:
                parser.set_defaults(task="translation")
            return original(parser, *args, **kw)

        return parse_args_and_arch

    _wrap(options, "parse_args_and_arch", "validate_without_a_task", make)


# --------------------------------------------------------------------------------------------------
# Several processes


class Launch(NamedTuple):
    """This process among those that torchrun or srun started."""

    rank: int
    local_rank: int
    world_size: int

    @classmethod
    def from_environment(cls) -> Optional["Launch"]:
        """Read torchrun's variables, or srun's; None for a process started by itself."""
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


def complete_distributed_launch() -> None:
    """Make the processes that were started train together (0.12.2 and ff).

    fairseq assumes that several processes mean several GPUs. Without them torchrun's processes each
    train alone into one folder, `--distributed-world-size 2` fails, `--distributed-init-method`
    trains nothing and exits 0, and the default backends ask for a GPU. ff does the same on nodes of
    one GPU each. The flags are completed from what torchrun or srun put in the environment.
    """

    def make(original: Callable) -> Callable:
        def call_main(cfg: Any, main: Callable, **kwargs: Any) -> None:
            distributed = cfg.distributed_training
            if cfg.common.tpu or distributed.pipeline_model_parallel:
                return original(cfg, main, **kwargs)
            on_cpu = cfg.common.cpu or not torch.cuda.is_available()
            launch = Launch.from_environment()
            if launch is not None and launch.world_size > 1:
                _join(launch, distributed, on_cpu)
            alone = (
                distributed.distributed_world_size == 1
                and distributed.distributed_init_method is None
            )
            if on_cpu and not alone:
                if distributed.distributed_backend == "nccl":
                    distributed.distributed_backend = "gloo"
                if distributed.ddp_backend in ("c10d", "pytorch_ddp"):
                    distributed.ddp_backend = "legacy_ddp"
                if not distributed.distributed_no_spawn:
                    return _spawn_on_cpu(cfg, main, kwargs)
            return original(cfg, main, **kwargs)

        return call_main

    _wrap(distributed_utils, "call_main", "complete_distributed_launch", make)


def _join(launch: Launch, distributed: Any, on_cpu: bool) -> None:
    """Fill in this process's place among the others, unless fairseq itself can find it."""
    if distributed.distributed_init_method is None:
        if not {"MASTER_ADDR", "MASTER_PORT"} <= set(os.environ):
            return
        if distributed.distributed_port > 0 and not on_cpu:
            return  # fairseq's own way with srun
        distributed.distributed_init_method = "env://"
    device = launch.local_rank
    if not on_cpu:
        gpus = torch.cuda.device_count()
        processes = int(os.environ.get("LOCAL_WORLD_SIZE", 0))
        if processes > gpus:
            raise ConfigurationError(
                "{} processes were started on this machine, but it has {} GPU(s): use "
                "--nproc_per_node {}, or --cpu to train without them".format(processes, gpus, gpus)
            )
        device %= gpus  # srun may show a process its own GPU only
    distributed.distributed_world_size = launch.world_size
    distributed.distributed_rank = launch.rank
    distributed.device_id = device
    distributed.distributed_no_spawn = True


def _spawn_on_cpu(cfg: Any, main: Callable, kwargs: Dict[str, Any]) -> None:
    """Start `--distributed-world-size` processes on this machine, as fairseq does for GPUs."""
    distributed = cfg.distributed_training
    size = distributed.distributed_world_size
    if distributed.distributed_init_method is not None:
        raise ConfigurationError(
            "--distributed-init-method {} would train nothing, as there is no GPU to start a "
            "process for: use torchrun, or --distributed-world-size alone to start processes "
            "here, or start each yourself with --distributed-no-spawn and --distributed-rank"
            "".format(distributed.distributed_init_method)
        )
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    distributed.distributed_init_method = "tcp://localhost:{}".format(port)
    distributed.distributed_rank = None  # each process takes its own
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // size)))
    torch.multiprocessing.spawn(
        distributed_utils.distributed_main,
        args=(main, cfg, dict(kwargs, start_rank=0)),
        nprocs=size,
    )


def refuse_training_alone() -> None:
    """The trainer checks what it was asked for against what it has (0.12.2 and ff).

    One of several processes that does not know of the others trains a model of its own and
    overwrites their checkpoints: an error. `--fp16` without a GPU fails deep inside: a clear error.
    `--amp` without a GPU does nothing: a warning.
    """

    def make(original: Callable) -> Callable:
        def __init__(self: Trainer, cfg: Any, *args: Any, **kwargs: Any) -> None:
            launch = Launch.from_environment()
            together = dist.is_available() and dist.is_initialized()
            if launch is not None and launch.world_size > 1 and not together:
                raise ConfigurationError(
                    "this is process {} of {}, and each would train alone and overwrite the "
                    "others' checkpoints: with srun set MASTER_ADDR and MASTER_PORT; with "
                    "fairseq-hydra-train set the distributed_training options as the README "
                    "says".format(launch.rank, launch.world_size)
                )
            common = getattr(cfg, "common", cfg)
            if common.cpu or not torch.cuda.is_available():
                if common.fp16:
                    raise ConfigurationError(
                        "--fp16 needs a GPU: leave it out, or use --bf16 on a CPU"
                    )
                if common.amp:
                    logger.warning("--amp has no effect without a GPU: training in float32")
                if common.bf16 and bf16_products.are_slow():
                    logger.warning(
                        "this CPU has no instructions for bf16: products are computed in float32 "
                        "and rounded, and --bf16 saves no time here"
                    )
            original(self, cfg, *args, **kwargs)

        return __init__

    _wrap(Trainer, "__init__", "refuse_training_alone", make)


def gather_lists_without_a_gpu() -> None:
    """`all_gather_list` goes through GPU memory (0.12.2 and ff): with gloo let torch gather.

    fairseq-validate needs it, and training with a criterion whose logs cannot be summed.
    """

    def make(original: Callable) -> Callable:
        def all_gather_list(data: Any, group: Any = None, max_size: int = 16384) -> List[Any]:
            group = group if group is not None else distributed_utils.get_global_group()
            if dist.get_backend(group) != "gloo":
                return original(data, group, max_size)
            gathered: List[Any] = [None] * distributed_utils.get_world_size(group)
            dist.all_gather_object(gathered, data, group=group)
            return gathered

        return all_gather_list

    _wrap(distributed_utils, "all_gather_list", "gather_lists_without_a_gpu", make)


# --------------------------------------------------------------------------------------------------
# Others


def end_process_groups() -> None:
    """Processes that trained together end with status 0.

    fairseq leaves the process group to the interpreter's end, where gloo's threads sometimes abort
    the process ("terminate called without an active exception"), and torchrun then calls a training
    failed that is done.
    """

    def make(distributed_main: Callable) -> Callable:
        def main_and_end(*args: Any, **kwargs: Any) -> None:
            distributed_main(*args, **kwargs)  # ends with a barrier: nobody is still waited for
            if dist.is_initialized():
                dist.destroy_process_group()

        return main_and_end

    _wrap(distributed_utils, "distributed_main", "end_process_groups", make)


def refuse_asynchronous_writing_without_iopath() -> None:
    """`--write-checkpoints-asynchronously` without iopath trains nothing and exits 0 (both)."""

    def make(original: Callable) -> Callable:
        def call_main(cfg: Any, main: Callable, **kwargs: Any) -> None:
            asynchronous = cfg.checkpoint.write_checkpoints_asynchronously
            if asynchronous and importlib.util.find_spec("iopath") is None:
                raise ConfigurationError(
                    "--write-checkpoints-asynchronously needs a package that is not installed: "
                    "pip install iopath, or leave the flag out"
                )
            return original(cfg, main, **kwargs)

        return call_main

    _wrap(distributed_utils, "call_main", "refuse_asynchronous_writing", make)


def number_diverse_beams_within_the_batch() -> None:
    """ff's `--diverse-beam-groups` looks a sentence up by its number in the data (not in 0.12.2).

    What it looks in has one row a sentence of the batch, so most numbers are an IndexError, and the
    others are some other sentence's row. Sentences leave a batch as they are finished: what counts
    is the place in the batch as it was at the first step.
    """

    def make(original: Callable) -> Callable:
        def step(
            self: DiverseBeamSearch,
            step: int,
            lprobs: torch.Tensor,
            scores: Optional[torch.Tensor],
            prev_output_tokens: Optional[torch.Tensor] = None,
            original_batch_idxs: Optional[torch.Tensor] = None,
        ) -> Any:
            if original_batch_idxs is not None:
                if step == 0:
                    self.ids_of_batch = original_batch_idxs
                same = original_batch_idxs.unsqueeze(1) == self.ids_of_batch.unsqueeze(0)
                original_batch_idxs = same.long().argmax(dim=1)
            return original(self, step, lprobs, scores, prev_output_tokens, original_batch_idxs)

        return step

    _wrap(DiverseBeamSearch, "step", "number_diverse_beams_within_the_batch", make)


def ban_repeated_ngrams() -> None:
    """`--no-repeat-ngram-size` does nothing (0.12.2 and ff) where its CUDA extension is not built.

    What it compares with is the end of the whole buffer, which is padding, instead of the last
    tokens that were generated.
    """
    NGramRepeatBlock._no_repeat_ngram = _no_repeat_ngram


def _no_repeat_ngram(
    self: NGramRepeatBlock,
    tokens: torch.Tensor,
    lprobs: torch.Tensor,
    bsz: int,
    beam_size: int,
    step: int,
) -> torch.Tensor:
    """Set to -inf, in `lprobs` (hypotheses x vocabulary), what would complete an n-gram again.

    `tokens` (hypotheses x longest) holds the start symbol and `step` generated tokens.
    """
    size = self.no_repeat_ngram_size
    generated = tokens[:, 1 : step + 1]
    if size > step:
        return lprobs
    ngrams = generated.unfold(1, size, 1)
    last = generated[:, step - size + 1 :].unsqueeze(1)
    again = (ngrams[:, :, : size - 1] == last).all(dim=2)
    banned = torch.zeros_like(lprobs).scatter_add_(1, ngrams[:, :, size - 1], again.to(lprobs))
    return lprobs.masked_fill_(banned > 0, float("-inf"))


def copy_unknown_words_without_a_dictionary() -> None:
    """`--replace-unk` without a value asks for a dictionary in a file named "@@ " (both)."""

    def make(original: Callable) -> Callable:
        def load_align_dict(replace_unk: Optional[str]) -> Optional[Dict[str, str]]:
            return original("" if replace_unk == "@@ " else replace_unk)

        return load_align_dict

    _wrap(utils, "load_align_dict", "copy_unknown_words_without_a_dictionary", make)
