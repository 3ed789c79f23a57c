"""--cuda-graphs: forward and backward of a training step, captured once per batch shape.

The host launches some 1,500 kernels per step, which can take longer than they run. A replay is
one launch. Batches are packed (`data/packed_batches.py`), which leaves only some dozens of shapes
per epoch, and models compute on packed sequences (`models/packed.py`). Norm, clipping and optimizer
are another graph (`flat_optimizer.py`), and the host reads their results when it writes the log
(`deferred_log.py`). Everything else is fairseq's.
"""

import gc
import logging
from argparse import Namespace
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from fairseq import options
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.distributed import utils as distributed
from fairseq.logging import metrics
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.modules import MultiheadAttention
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.trainer import Trainer
from fairseq.utils import has_parameters, move_to_cpu
from torch import Tensor

from fairseq_plugins.compat.patch import after_parsing, around
from fairseq_plugins.data.packed_batches import Collate, PackedBatch, Shape, Spec, pack
from fairseq_plugins.errors import ConfigurationError, first_cause
from fairseq_plugins.graphs import deferred_log
from fairseq_plugins.graphs.cuda_graph import capture, graph_class
from fairseq_plugins.graphs.deferred_log import DeferredLog
from fairseq_plugins.graphs.flat_optimizer import FlatOptimizer, views
from fairseq_plugins.layers import kernels
from fairseq_plugins.layers.dropout import seeds_at_once
from fairseq_plugins.layers.packed import largest_flash_head
from fairseq_plugins.layers.token_mixers import TokenMixer
from fairseq_plugins.losses import (
    LabelSmoothedCrossEntropyFused,
    LabelSmoothedCrossEntropyRDrop,
    LabelSmoothedCrossEntropySimCut,
)
from fairseq_plugins.losses.label_smoothed import find_projection, in_chunks
from fairseq_plugins.models import packed
from fairseq_plugins.models.options import CUDA_GRAPHS_HELP

logger = logging.getLogger(__name__)

MOST = 64  # captured graphs
STEP = 64  # positions of a batch are a multiple of it
LOSS = "captured_loss"  # attribute of a task, see `captured_loss.py`
SMALLER = (
    "give smaller batches (--max-tokens, --batch-size), or train without captured graphs (--eager)"
)
CRITERIONS = (
    CrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyFused,
    LabelSmoothedCrossEntropyRDrop,
    LabelSmoothedCrossEntropySimCut,
)


class Capture(NamedTuple):
    """A captured step, its input (the numbers of the batch) and its output (the sums)."""

    graph: Any
    numbers: Tensor
    sums: Tensor


class Captures:
    """What a criterion logs of packed batches, computed by one CUDA graph per shape.

    A subclass has `once`, the work of a batch, which returns the sums of the logging output.

    Args:
        model: without wrappers; `packed.find_obstacle` finds nothing.
        criterion: one of `CRITERIONS`.
        spec: the layout of batches.
        new_graph: from `graph_class`.
    """

    once: Callable[[Shape, Tensor], Tensor]
    of_what = ""  # what is captured, for a message

    def __init__(self, model: Any, criterion: Any, spec: Spec, new_graph: Callable[[], Any]):
        self.model, self.criterion, self.spec, self.new_graph = model, criterion, spec, new_graph
        self.device = next(model.parameters()).device
        self.captures: dict[Shape, Capture] = {}
        self.most = MOST
        self.names: list[str] = []  # names of the sums

    def can_capture(self, batch: PackedBatch) -> bool:
        """Whether the shape of a batch is not captured yet, and may be."""
        return batch.shape not in self.captures and len(self.captures) < self.most

    def capture(self, batch: PackedBatch) -> None:
        """Capture the work of a shape; if that fails, nothing else is captured."""
        # random numbers must not depend on whether this shape was captured earlier
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            try:
                self.add(batch)
            except RuntimeError as error:
                self.most = len(self.captures)
                reason = first_cause(error)
                logger.warning(
                    f"--cuda-graphs: capture{self.of_what} stopped after {self.most} shapes of "
                    f"batches: {reason}; if memory is short, {SMALLER}"
                )

    def drop(self) -> None:
        """Free the memory of the captured graphs, if there are any, and capture nothing else."""
        if not self.captures:
            return
        logger.warning(
            f"--cuda-graphs: memory is short, so the captured graphs are dropped; {SMALLER}"
        )
        self.captures.clear()
        self.most = 0
        torch.cuda.empty_cache()

    def add(self, batch: PackedBatch) -> None:
        """Capture the work of a shape.

        Raises:
            RuntimeError: it cannot be captured.
        """
        numbers = batch.numbers.to(self.device, copy=True)
        sums: Tensor | None = None

        def work() -> None:
            nonlocal sums
            found = self.once(batch.shape, numbers)
            # a copy, out of the shared memory pool
            sums = found.clone() if sums is None else sums.copy_(found)

        graph = capture(self.new_graph, work)
        assert sums is not None
        self.captures[batch.shape] = Capture(graph, numbers, sums)

    def replay(self, batch: PackedBatch) -> Tensor | None:
        """The sums of a batch on the CPU; None if its shape is not captured."""
        captured = self.captures.get(batch.shape)
        if captured is None:
            return None
        captured.graph.load(captured.numbers, batch.numbers)
        captured.graph.replay()
        return captured.sums.clone()

    def stack(self, log: dict[str, Any], dtype: torch.dtype) -> Tensor:
        """The sums in a logging output."""
        self.names = [name for name, value in log.items() if isinstance(value, Tensor)]
        return torch.stack([log[name].detach().to(dtype) for name in self.names])

    def outputs(self, batch: PackedBatch, sums: Tensor) -> tuple[Tensor, int, dict[str, Any]]:
        """What a criterion returns: the loss, the sample size and the logging output."""
        size = batch.sentences if self.criterion.sentence_avg else batch.tokens
        log: dict[str, Any] = dict(zip(self.names, sums.unbind()))
        log.update(ntokens=batch.tokens, nsentences=batch.sentences, sample_size=size)
        return log["loss"], size, log


class CapturedStep(Captures):
    """Adds the gradient of a batch's loss to a flat gradient.

    Args:
        flat: holds the gradient, and makes the graphs.
        model, criterion, spec: see `Captures`.
    """

    def __init__(self, model: Any, criterion: Any, flat: FlatOptimizer, spec: Spec):
        super().__init__(model, criterion, spec, flat.new_graph)
        self.flat = flat
        self.pieces = views(flat.gradient, flat.parameters)
        self.scale = torch.ones((), dtype=flat.gradient.dtype, device=self.device)

    def __call__(
        self, batch: PackedBatch, count: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Add the gradient of a batch.

        Args:
            batch: on the CPU.
            count: whether its gradient counts; if not, the batch is not captured, as it may be one
                of the validation set, which is larger.

        Returns:
            like a criterion: the loss, the sample size and the logging output, whose numbers stay
                on the device until the optimizer computes the norm.
        """
        scaler, flat = self.flat.scaler, self.flat
        if scaler is not None:
            self.scale.fill_(float(scaler.loss_scale))
        before = None if flat.empty else flat.gradient.clone()
        replayed = None
        # fairseq's search for NaN has hooks, which a replay does not call
        if count and not self.model._forward_hooks:
            if self.can_capture(batch):
                self.capture(batch)
            replayed = self.replay(batch)
        sums = self.launch(batch) if replayed is None else replayed
        if before is not None and count:
            flat.gradient.add_(before)
        elif before is not None:
            flat.gradient.copy_(before)
        flat.empty = flat.empty and not count
        metrics.log_scalar("replayed", 100.0 * (replayed is not None), round=1, priority=850)
        loss, size, log = self.outputs(batch, sums)
        if flat.reduce is None:  # several processes sum these on the device
            names = self.names
            flat.pending.append((sums, lambda numbers: log.update(zip(names, numbers))))
        return loss, size, log

    def launch(self, batch: PackedBatch) -> Tensor:
        """Run `once`. If memory is short, drop the captured graphs and run it again."""
        try:
            numbers = batch.numbers.to(self.device, non_blocking=True)
            return self.once(batch.shape, numbers)
        except torch.OutOfMemoryError:
            if not self.captures:
                raise
        self.drop()
        return self.once(batch.shape, batch.numbers.to(self.device, non_blocking=True))

    def once(self, shape: Shape, numbers: Tensor) -> Tensor:
        """Write the gradient of a batch; returns the sums of the criterion's logging output."""
        model = packed.PackedModel(self.model, numbers, shape)
        # the numbers of sentences and tokens do not affect the sums
        with seeds_at_once():
            loss, _, log = self.criterion(model, model.sample(1, 1))
        # no hooks run, and nothing is accumulated parameter by parameter
        scaled = loss * self.scale
        gradients = torch.autograd.grad(scaled, self.flat.parameters, materialize_grads=True)
        torch._foreach_copy_(self.pieces, gradients)
        return self.stack(log, self.scale.dtype)


def install() -> None:
    """Add --cuda-graphs to fairseq-train. A second call does nothing."""
    deferred_log.install()

    @around(options, "add_model_args")
    def add_model_args(original: Callable, parser: Any) -> Any:
        group = original(parser)
        group.add_argument(
            "--cuda-graphs", action="store_true", default=False, help=CUDA_GRAPHS_HELP
        )
        return group

    @after_parsing
    def check(given: Namespace) -> None:
        model = ARCH_MODEL_REGISTRY.get(getattr(given, "arch", None))
        if getattr(given, "cuda_graphs", False) and getattr(model, "__dataclass", None) is not None:
            logger.warning(_not_captured(f"--arch {given.arch}"))

    @around(Trainer, "get_train_iterator")
    def get_train_iterator(original: Callable, self: Trainer, *args: Any, **kwargs: Any) -> Any:
        iterator = original(self, *args, **kwargs)
        step = prepare(self) if getattr(self.cfg.model, "cuda_graphs", False) else None
        if step is not None and not isinstance(iterator.collate_fn, Collate):
            iterator.collate_fn = Collate(iterator.collate_fn, step.spec)
        return iterator

    @around(Trainer, "_log_oom")
    def _log_oom(original: Callable, self: Trainer, error: Exception) -> None:
        original(self, error)  # then fairseq tries to validate again, or skips the batch
        step = getattr(self._optimizer, "captured_step", None)
        # of the search that computes BLEU on the validation set
        searched = getattr(getattr(self.task, "sequence_generator", None), "graphs", None)
        for captured in filter(None, (step, vars(self.task).get(LOSS), searched)):
            captured.drop()

    @around(FairseqTask, "train_step")
    def train_step(
        original: Callable,
        self: FairseqTask,
        sample: Any,
        model: Any,
        criterion: Any,
        optimizer: Any,
        update_num: int,
        ignore_grad: bool = False,
        **kwargs: Any,
    ) -> Any:
        step: CapturedStep | None = getattr(optimizer, "captured_step", None)
        if step is None:
            arguments = (sample, model, criterion, optimizer, update_num, ignore_grad)
            return original(self, *arguments, **kwargs)
        batch = sample.get("packed")
        if batch is None:  # without a batch, join in with one of another data set
            batch = pack(move_to_cpu(sample), step.spec)
        return step(batch, not ignore_grad)


def prepare(trainer: Trainer) -> CapturedStep | None:
    """The captured step of a trainer; None, after one line with the reason, if there is none.

    All processes of a training must call this together.
    """
    if hasattr(trainer.optimizer, "captured_step"):
        return trainer.optimizer.captured_step
    reason = find_obstacle(trainer)
    # GPUs may differ; a process without captured graphs would exchange gradients in another way
    others = kernels.agree({"steps": reason} if reason else {})
    reason = reason or others.get("steps", "")
    if reason:
        logger.warning(_not_captured(reason))
        trainer.optimizer.captured_step = None
        return None
    model = trainer.get_model()
    packed.store_projections_together(model)
    group = trainer.data_parallel_process_group
    reduce: Callable[[Tensor], None] | None = None
    if trainer.data_parallel_world_size > 1:

        def reduce(gradient: Tensor) -> None:
            gradient.div_(trainer.data_parallel_world_size)
            distributed.all_reduce(gradient, group=group)

    new_graph = graph_class(trainer.device)
    assert new_graph is not None
    optimizer = trainer._optimizer = FlatOptimizer(trainer.optimizer, new_graph, reduce)
    if reduce is None and optimizer.scaler is None:  # an overflow decides on the next update
        optimizer.deferred_log = DeferredLog(optimizer)
    # torch's wrapper of parallel training is not used: it keeps autograd nodes of the default
    # stream, which a captured graph must not touch.
    trainer._wrapped_model = model
    gc.collect()
    criterion = in_chunks(trainer.get_criterion(), model)
    step = CapturedStep(model, criterion, optimizer, make_spec(model))
    optimizer.captured_step = step
    return step


def make_spec(model: Any) -> Spec:
    """The layout of a model's batches."""
    encoder = model.encoder
    blocks = 1 + sum(getattr(layer, "starts_later_block", False) for layer in encoder.layers)
    # copying reads the weights of the last layer's attention
    padded = getattr(model.decoder, "copying", None) is not None or any(
        isinstance(m, TokenMixer) and type(m).forward_packed is TokenMixer.forward_packed
        for m in encoder.modules()
    )
    window = getattr(encoder, "time_window", 1)
    return Spec.make(encoder.padding_idx, STEP, window, blocks, padded)


def find_obstacle(trainer: Trainer) -> str:
    """Why the steps of a trainer cannot be captured, in a few words; empty if they can be."""
    if graph_class(trainer.device) is None:
        return "it needs a GPU"
    cfg, task, criterion = trainer.cfg, trainer.task, trainer.get_criterion()
    common, parallel = cfg.common, cfg.distributed_training
    backend, own_step = parallel.ddp_backend, type(task).train_step is not FairseqTask.train_step
    for reason, there in {
        "--amp": common.amp,
        "--memory-efficient-fp16": common.memory_efficient_fp16,
        "--memory-efficient-bf16": common.memory_efficient_bf16,
        "--model-parallel-size": common.model_parallel_size > 1,
        "--pipeline-model-parallel": parallel.pipeline_model_parallel,
        f"--ddp-backend {backend}": backend in ("fully_sharded", "slowmo"),
        "--zero-sharding": parallel.zero_sharding != "none",
        "--use-bmuf": cfg.optimization.use_bmuf,
        "--quantization-config-path": trainer.quantizer is not None,
        "a task that trains with averaged weights": getattr(task, "uses_ema", False),
        f"{type(task).__name__} has a custom train_step": own_step,
        f"--criterion with {type(criterion).__name__}": type(criterion) not in CRITERIONS,
        "--num-batch-buckets, which pads sentences": getattr(cfg.task, "num_batch_buckets", 0) > 0,
        "a criterion with parameters": has_parameters(criterion),
        "--report-accuracy": getattr(criterion, "report_accuracy", False),
        "--ignore-prefix-size": getattr(criterion, "ignore_prefix_size", 0) > 0,
    }.items():
        if there:
            return reason
    model = trainer.get_model()
    reason = packed.find_obstacle(model)
    if reason:
        return reason
    fused = isinstance(criterion, LabelSmoothedCrossEntropyFused)
    if getattr(model.decoder, "copying", None) is not None and not fused:
        return "--copy-attention without --criterion label_smoothed_cross_entropy_fused"
    if fused:
        try:
            find_projection(model, 2 if getattr(criterion, "alpha", 0) > 0 else 1)
        except ConfigurationError as error:
            return str(error)
    return _obstacle_of_gpu(model, trainer.device)


def _obstacle_of_gpu(model: Any, device: torch.device) -> str:
    """What flash attention over sentences of different lengths lacks here; empty if nothing."""
    if device.type != "cuda":
        return ""
    dtype = next(model.parameters()).dtype
    if dtype not in (torch.bfloat16, torch.float16):
        return "float32, where attention would compute padding: use --bf16 or --fp16"
    largest = largest_flash_head(device)
    if largest == 0:
        return "it needs flash attention, and a GPU of compute capability 8.0"
    for module in model.modules():
        size = module.head_dim if isinstance(module, MultiheadAttention) else 8
        if size % 8 != 0 or size > largest:
            return f"attention heads of {size} features: 8, 16, 24, ... {largest} work"
    return ""


def _not_captured(reason: str) -> str:
    return f"steps are not captured (--cuda-graphs): {reason}"
