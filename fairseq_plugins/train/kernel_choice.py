"""Choose the Triton kernels of a training before its first step; the choice then stays fixed.

Results with and without kernels differ by rounding. Therefore all processes use the same kernels,
and checkpoints hold their names: a resumed training uses only those it began with.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from fairseq.trainer import Trainer

from fairseq_plugins.compat.patch import around
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers import activation, kernels, projections
from fairseq_plugins.layers.residual import kernel_of
from fairseq_plugins.losses.label_smoothed import in_chunks

ENTRY = "triton_kernels"  # in checkpoints
WRONG = ""  # in place of the name of a kernel: the problem ends the training


def install() -> None:
    """Choose the kernels when a training begins or resumes, and store the choice."""

    @around(Trainer, "load_checkpoint")
    def load_checkpoint(original: Callable, self: Trainer, *args: Any, **kwargs: Any) -> Any:
        state = original(self, *args, **kwargs)
        resumes = state is not None and self.get_num_updates() > 0
        # without an entry, fairseq trained it, without kernels
        choose_kernels(self, state.get(ENTRY, []) if resumes else None)
        return state

    @around(Trainer, "save_checkpoint")
    def save_checkpoint(
        original: Callable, self: Trainer, filename: str, extra_state: dict[str, Any]
    ) -> Any:
        return original(self, filename, {**extra_state, ENTRY: kernels.in_use()})


def choose_kernels(trainer: Trainer, began_with: list[str] | None) -> None:
    """Check the kernels of the model here, and turn off those that this training must not use.

    All processes of a training must call this together.

    Args:
        began_with: the names in the checkpoint; None for a new training.

    Raises:
        ConfigurationError: `kernels.VARIABLE` is wrong in some process.
    """
    dtype = _dtype(trainer.cfg.common)
    if dtype is None or not trainer.cuda:
        return
    device = torch.device("cuda", torch.cuda.current_device())
    options, model, criterion = trainer.cfg.model, trainer.get_model(), trainer.get_criterion()
    if getattr(options, "cuda_graphs", False):
        criterion = in_chunks(criterion, model)
    parts = model, criterion
    wanted = sorted({kernel for part in parts for kernel in _kernels_of(part, options)})
    problems: dict[str, str] = {}
    try:
        off = "" if kernels.asked() else f"{kernels.VARIABLE}=0"
    except ConfigurationError as error:
        off, problems = str(error), {WRONG: str(error)}
    for name, *sizes in wanted:
        problem = off or kernels.find_problem(name, device, dtype, *sizes)
        if problem:
            problems.setdefault(name, problem)
    for name, problem in kernels.agree(problems).items():
        if name == WRONG:  # all raise: the others would wait for a single failing process
            raise ConfigurationError(problem)
        # no message if the user turned kernels off
        kernels.turn_off([name], "" if off else problem)
    if began_with is not None:
        missing = {name for name, *_ in wanted} - set(began_with)
        kernels.turn_off(sorted(missing), "this training began without them")
        kernels.turn_off(sorted(set(kernels.NAMES) - set(began_with)), "")


def _kernels_of(model: Any, options: Any) -> Iterator[tuple[Any, ...]]:
    """The kernels of a model or criterion, each a name and sizes as `kernels.usable` takes."""
    captured = getattr(options, "cuda_graphs", False)
    for module in model.modules():
        if hasattr(module, "kernels"):
            yield from module.kernels()
        if captured and hasattr(module, "packed_kernels"):
            yield from module.packed_kernels()
        if captured and isinstance(module, MultiheadAttention):
            layers = [module.q_proj, module.k_proj, module.v_proj]
            yield from filter(None, [projections.kernel_of(layers)])
        # fairseq's own layers use kernels only packed
        if not (captured or type(module).__module__.startswith("fairseq_plugins.")):
            continue
        norm = getattr(module, "final_layer_norm", None)
        dropout = getattr(module, "dropout_module", None)
        if hasattr(module, "fc1"):
            inner = getattr(module, "activation_dropout_module", dropout)
            kernel = activation.kernel_of(module.fc1, module.activation_fn, inner)
            yield from filter(None, [kernel])
        if type(norm) is torch.nn.LayerNorm and dropout is not None:
            dim = norm.normalized_shape[-1]
            if dim <= kernels.MAX_FEATURES:
                yield kernel_of(dim, dropout)


def _dtype(common: Any) -> torch.dtype | None:
    """The half precision that a training computes in; None in float32."""
    if common.bf16 or common.memory_efficient_bf16:
        return torch.bfloat16
    half = common.fp16 or common.memory_efficient_fp16 or common.amp
    return torch.float16 if half else None
