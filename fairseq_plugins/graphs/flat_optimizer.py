"""Gradients, parameters and Adam's moments as flat tensors: an update takes few kernels."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from fairseq.optim import FairseqOptimizer, FP16Optimizer
from fairseq.optim.adam import Adam
from torch import Tensor

MOMENTS = ("exp_avg", "exp_avg_sq")
ALIGNED = 8  # numbers in half precision: products are fast if a parameter starts at a multiple
SLOW = 0.01  # of all numbers may be elsewhere: gates of copying, whose biases are one number


class FlatOptimizer(FairseqOptimizer):
    """fairseq's optimizer, with all its tensors as views of flat ones.

    Norm, clipping, scaling and fairseq's Adam act on the flat tensors; other optimizers get the
    views. Checkpoints hold the views and equal those of the inner optimizer.

    Args:
        inner: fairseq's optimizer of the master parameters.
        masters: the parameters that it updates, of one dtype and device. Their data and gradients
            become views of `values` and `gradient`.
        reduce: adds up a flat gradient over processes, in place; None for one process.
    """

    def __init__(
        self,
        inner: FairseqOptimizer,
        masters: Sequence[Tensor],
        reduce: Callable[[Tensor], None] | None = None,
    ):
        super().__init__(getattr(inner, "cfg", None))  # fairseq's older optimizers lack it
        self.inner, self.masters, self.reduce = inner, list(masters), reduce
        self.sizes = [p.numel() for p in self.masters]
        self.values = torch.cat([p.data.flatten() for p in self.masters])
        self.gradient = torch.zeros_like(self.values)
        for p, view in zip(self.masters, views(self.values, self.masters)):
            p.data = view
        self.attach()
        self.moments: list[Tensor] = []
        self.states: list[dict[str, Any]] = []  # Adam's, of each parameter
        self.first_view: Tensor | None = None  # the first moment of the first parameter
        # logging outputs whose numbers arrive with the next copy to the host: names and a vector
        self.pending: list[tuple[dict[str, Any], list[str], Tensor]] = []

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The inner optimizer's class; fairseq stores its name in checkpoints."""
        return type(self.inner)

    @property
    def optimizer(self) -> Any:
        return self.inner.optimizer

    @property
    def optimizer_config(self) -> Any:
        return self.inner.optimizer_config

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any], optimizer_overrides: Any = None) -> None:
        self.inner.load_state_dict(state_dict, optimizer_overrides)

    def attach(self) -> None:
        """Make the gradients of the parameters views of the flat one."""
        for p, piece in zip(self.masters, self.gradient.split(self.sizes)):
            p.grad = piece.view_as(p)

    def attach_halves(self, optimizer: FP16Optimizer) -> None:
        """Make the parameters of a model in half precision views of one flat tensor, too.

        Then fairseq's `optimizer`, whose inner one this is, rounds all of them by one kernel.
        """
        parameters = optimizer.fp16_params
        sizes = [p.numel() for p in parameters]
        starts = itertools.accumulate(sizes, initial=0)
        slow = sum(size for start, size in zip(starts, sizes) if start % ALIGNED != 0)
        if slow > SLOW * sum(sizes):
            return
        halves = torch.cat([p.data.flatten() for p in parameters])
        for p, view in zip(parameters, views(halves, parameters)):
            p.data = view

        def round_all() -> None:
            halves.copy_(self.values)

        def zero_grad() -> None:  # the parameters themselves get no gradients
            self.gradient.zero_()
            optimizer._needs_sync = False
            if optimizer.scaler is not None:
                optimizer._multiply_factor = 1.0 / float(optimizer.scaler.loss_scale)

        optimizer._sync_fp32_params_to_fp16, optimizer.zero_grad = round_all, zero_grad

    def zero_grad(self) -> None:
        self.gradient.zero_()
        self.attach()

    def all_reduce_grads(self, module: Any) -> None:
        if self.reduce is not None:
            self.reduce(self.gradient)

    def multiply_grads(self, c: Any) -> None:
        self.gradient.mul_(c)

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Any = None) -> Tensor:
        """As fairseq's. The norm is on the CPU, where the trainer compares it.

        The same copy fetches the numbers of `pending`.
        """
        vectors = [self.gradient.norm().reshape(1), *(vector for *_, vector in self.pending)]
        norm, *numbers = torch.cat(vectors).tolist()
        for log, names, _ in self.pending:
            for name in names:
                log[name] = numbers.pop(0)
        self.pending.clear()
        if max_norm > 0:
            self.multiply_grads(min(1.0, max_norm / (norm + 1e-6)))
        return torch.tensor(norm)

    def step(self, closure: Any = None, scale: float = 1.0, groups: Any = None) -> None:
        if not self._gather_moments():
            return self.inner.step(closure, scale, groups)
        (group,) = self.optimizer.param_groups
        step = self.states[0]["step"] + 1
        for state in self.states:
            state["step"] = step
        beta1, beta2 = group["betas"]
        first, second = self.moments
        torch._fused_adamw_(
            [self.values],
            [self.gradient],
            [first],
            [second],
            [],
            [torch.full((), float(step), device=self.values.device)],
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            # fairseq adds epsilon before it corrects the bias of the root, torch afterwards
            eps=group["eps"] / (1.0 - beta2**step) ** 0.5,
            amsgrad=False,
            maximize=False,
        )

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
        self.first_view = self.states[0][MOMENTS[0]]
        return True


def views(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of a flat tensor in the shapes of these, one after the other."""
    pieces = flat.split([p.numel() for p in like])
    return [piece.view_as(p) for piece, p in zip(pieces, like)]
