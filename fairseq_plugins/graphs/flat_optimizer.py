"""The optimizer of captured steps: flat tensors, and an update that is one CUDA graph."""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from fairseq.optim import FP16Optimizer
from fairseq.optim.adam import Adam
from torch import Tensor

from fairseq_plugins.errors import first_cause
from fairseq_plugins.graphs.cuda_graph import capture

logger = logging.getLogger(__name__)

MOMENTS = ("exp_avg", "exp_avg_sq")
EPSILON = 1e-6  # fairseq adds it to a norm that it clips, unless the loss is scaled
MANY = 1e9  # steps, after which torch's Adam corrects no bias


class FlatOptimizer:
    """fairseq's optimizer, with all its tensors as views of flat ones.

    With fairseq's Adam the norm, clipping, the check for overflow, Adam itself and rounding to half
    precision are one CUDA graph, which is replayed when fairseq asks for the norm. All that changes
    between updates are tensors, so the host waits only to read the norm. An update with a norm that
    is not finite changes nothing on the device. Other optimizers get the views. Checkpoints equal
    those of the inner optimizer.

    Args:
        inner: the trainer's optimizer; its master parameters have one dtype and device. Their data
            and gradients become views of `values` and `gradient`.
        new_graph: from `graph_class`.
        reduce: adds up a flat gradient over processes, in place; None for one process.

    Attributes:
        parameters: of the model, in the order of the flat gradient.
        scaler: fairseq's scale of the loss in float16, or None.
        empty: whether the gradient counts as zero, whatever it holds.
        deferred: whether norms stay on the device until `read`.
        pending: vectors on the device, and what takes their numbers when they are read.
        captured_step, deferred_log: what uses it, from `captured_step.prepare`.
    """

    captured_step: Any
    deferred_log: Any

    def __init__(
        self,
        inner: Any,
        new_graph: Callable[[], Any],
        reduce: Callable[[Tensor], None] | None = None,
    ):
        self.inner, self.base, self.new_graph, self.reduce = inner, inner, new_graph, reduce
        self.scaler: Any = None
        if isinstance(inner, FP16Optimizer):
            self.base, self.scaler = inner.fp32_optimizer, inner.scaler
            self.parameters, masters = list(inner.fp16_params), inner.fp32_params
            self.masters = list(masters.values() if isinstance(masters, dict) else masters)
        else:
            self.parameters = self.masters = list(inner.params)
        self.values = torch.cat([p.data.flatten() for p in self.masters])
        for p, view in zip(self.masters, views(self.values, self.masters)):
            p.data = view
        self.exact = views(self.values, self.parameters)
        self.gradient = torch.zeros_like(self.values)
        self.attach()
        self.moments: list[Tensor] = []
        self.states: list[dict[str, Any]] = []  # Adam's, of each parameter
        self.first_view: Tensor | None = None  # the first moment of the first parameter
        # of an update: 1 / factor of the gradient, 1 / largest norm, epsilon / largest norm, size
        # of the step, and the share of each parameter that decays
        self.numbers = self.values.new_zeros(5)
        self.many = torch.full((), MANY, device=self.values.device)
        self.norm = self.values.new_zeros(())
        self.skips = self.values.new_zeros(())  # 1 after a norm that is not finite
        self.graph: Any = None
        self.captures, self.updated, self.deferred = True, False, False
        self.empty, self.factor = True, 1.0
        self.pending: list[tuple[Tensor, Callable[[list[float]], Any]]] = []

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The inner optimizer's class; fairseq stores its name in checkpoints."""
        return type(self.inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)

    def attach(self) -> None:
        """Make the gradients of the parameters views of the flat one."""
        for p, view in zip(self.masters, views(self.gradient, self.masters)):
            p.grad = view

    def zero_grad(self) -> None:
        self.empty = True
        self.factor = 1.0 if self.scaler is None else 1.0 / float(self.scaler.loss_scale)

    def all_reduce_grads(self, module: Any) -> None:
        if self.reduce is not None:
            self.fill()
            self.reduce(self.gradient)

    def fill(self) -> None:
        """Write the zeros of an empty gradient."""
        if self.empty:
            self.gradient.zero_()
            self.empty = False

    def multiply_grads(self, c: Any) -> None:
        self.factor *= float(c)

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Any = None) -> Tensor:
        """As fairseq's, but with Adam the parameters are updated here already.

        Returns:
            the norm, on the CPU, where the trainer compares it; if it is deferred, zero, until
                `read` replaces it.
        """
        self.fill()
        limit = max_norm if max_norm > 0 else math.inf
        epsilon = EPSILON if self.scaler is None else 0.0
        self.updated = self._gather_moments()
        if self.updated:
            self._load(limit, epsilon)
            self._launch()
        else:
            self.norm.copy_(self.gradient.norm() * self.factor)
        norm = torch.tensor(0.0)
        copied = self.norm.reshape(1).clone()
        self.pending.append((copied, lambda numbers: norm.fill_(numbers[0])))
        if self.deferred and self.updated:
            return norm
        self.read()
        if not math.isfinite(norm):
            self.skips.zero_()
        elif norm + epsilon > limit and not self.updated:
            self.factor *= limit / float(norm + epsilon)
        if self.scaler is not None:
            self.scaler.check_overflow(norm)
        return norm

    def read(self) -> None:
        """Read the numbers of `pending` from the device, by one copy."""
        if self.pending:
            vectors, takers = zip(*self.pending)
            numbers = torch.cat(vectors).tolist()
            for vector, take in zip(vectors, takers):
                take(numbers[: len(vector)])
                del numbers[: len(vector)]
            self.pending.clear()

    @torch.no_grad()
    def step(self, closure: Any = None, scale: float = 1.0, groups: Any = None) -> None:
        if self.updated:
            for state in self.states:
                state["step"] += 1
        else:
            self.gradient.mul_(self.factor)
            self.attach()  # fairseq drops gradients when memory is short
            self.base.step(closure, scale, groups)
            self._round()
        if self.scaler is not None:
            self.scaler.update()

    def undo(self, updates: int) -> None:
        """Forget the last updates, none of which had an effect on the device."""
        for state in self.states:
            state["step"] -= updates
        self.skips.zero_()

    def _load(self, limit: float, epsilon: float) -> None:
        """Send the numbers of an update to the device."""
        (group,) = self.optimizer.param_groups
        (beta1, beta2), rate = group["betas"], group["lr"]
        step = self.states[0]["step"] + 1
        size = rate * math.sqrt(1.0 - beta2**step) / (1.0 - beta1**step)
        numbers = [1.0 / self.factor, 1.0 / limit, epsilon / limit, size]
        numbers.append(rate * group["weight_decay"])
        pinned = self.numbers.is_cuda  # and new, as an earlier copy may not have begun
        self.numbers.copy_(
            torch.tensor(numbers, dtype=self.numbers.dtype, pin_memory=pinned), non_blocking=True
        )

    def _launch(self) -> None:
        """Replay `_update`, which the first call captures."""
        if self.captures and self.graph is None:
            self.skips.fill_(1.0)  # capture changes no number
            try:
                self.graph = capture(self.new_graph, self._update)
            except RuntimeError as error:
                self.captures = False
                reason = first_cause(error)
                logger.warning(f"--cuda-graphs: the optimizer is not captured: {reason}")
            self.skips.zero_()
        if self.graph is None:
            self._update()
        else:
            self.graph.replay()

    @torch.no_grad()
    def _update(self) -> None:
        """Norm, clipping and fairseq's Adam, on the device only.

        torch's fused Adam divides the gradient by `scale`, and its step and biases are those of
        `MANY` steps. So the size of a step has fairseq's correction, and epsilon none.
        """
        inverse, inverse_limit, least, size, decay = self.numbers.unbind()
        torch.div(self.gradient.norm(), inverse, out=self.norm)
        self.skips.masked_fill_(self.norm.lt(math.inf).logical_not_(), 1.0)
        scale = torch.addcmul(least, self.norm, inverse_limit).clamp_(min=1.0).mul_(inverse)
        (group,) = self.optimizer.param_groups
        if group["weight_decay"] != 0:
            self.values.mul_((self.skips - 1.0).mul_(decay).add_(1.0))
        first, second = self.moments
        torch._fused_adamw_(
            [self.values],
            [self.gradient],
            [first],
            [second],
            [],
            [self.many],
            lr=size,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=0.0,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=scale.float(),
            found_inf=self.skips.float(),
        )
        self._round()

    def _round(self) -> None:
        """Copy the parameters to those of a model in half precision."""
        if self.base is not self.inner:
            torch._foreach_copy_(self.parameters, self.exact)

    def _gather_moments(self) -> bool:
        """Make Adam's moments views of flat tensors, also after loading a checkpoint.

        Returns:
            whether it is fairseq's Adam and all parameters had the same number of updates.
        """
        adam = self.optimizer
        if type(adam) is not Adam or len(adam.param_groups) != 1:
            return False
        if adam.param_groups[0].get("amsgrad", False):
            return False
        name, first = MOMENTS[0], self.masters[0]
        if self.moments and adam.state[first].get(name) is self.first_view:
            return True
        self.states = [adam.state[p] for p in self.masters]
        if len({state.get("step", 0) for state in self.states}) > 1:
            return False
        self.moments = [torch.zeros_like(self.values) for _ in MOMENTS]
        for name, flat in zip(MOMENTS, self.moments):
            for state, view in zip(self.states, views(flat, self.masters)):
                if name in state:
                    view.copy_(state[name].reshape_as(view))  # copy_ alone would broadcast
                state[name] = view
                state.setdefault("step", 0)
        self.first_view, self.graph = self.states[0][MOMENTS[0]], None
        return True


def views(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of a flat tensor in the shapes of these, one after the other."""
    pieces = flat.split([p.numel() for p in like])
    return [piece.view_as(p) for piece, p in zip(pieces, like)]
