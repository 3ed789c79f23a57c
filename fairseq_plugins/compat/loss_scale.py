"""Repairs of the scale of the loss, of `--amp` (torch's automatic mixed precision) and `--fp16`."""

from collections.abc import Callable
from typing import Any

from fairseq.optim import AMPOptimizer
from fairseq.optim.fp16_optimizer import _FP16OptimizerMixin as HalfOptimizer
from fairseq.optim.fp16_optimizer import _MemoryEfficientFP16OptimizerMixin as SmallOptimizer

from fairseq_plugins.compat.patch import around

# in the optimizer's state, beside fairseq's "loss_scale"
UPDATES = "amp_updates_at_this_scale"
COUNTERS = ("_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale")


def unscale_gradients_once() -> None:
    """Divide gradients by the loss scale once; all versions do it twice.

    fairseq unscales the gradients of torch's optimizer to clip them. Then it gives torch's
    GradScaler its own optimizer, which wraps that one, and the scaler takes its gradients for
    different ones. At the first scale, 128, SGD moves 1/128 as far as in float32, and Adam's
    epsilon is 128 times as large. Both get worse with each doubling of the scale.
    """

    @around(AMPOptimizer, "step")
    def step(original: Callable, self: AMPOptimizer) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()


def resume_with_the_scale() -> None:
    """Keep the loss scale in checkpoints, as `--fp16` does; all versions restart it.

    Until the scale is as high as before, gradients may underflow that did not before.
    """

    @around(AMPOptimizer, "state_dict")
    def state_dict(original: Callable, self: AMPOptimizer) -> dict[str, Any]:
        state, scaler = original(self), self.scaler.state_dict()
        if scaler:  # empty without a GPU
            state["loss_scale"] = scaler["scale"]
            state[UPDATES] = scaler["_growth_tracker"]
        return state

    @around(AMPOptimizer, "load_state_dict")
    def load_state_dict(
        original: Callable,
        self: AMPOptimizer,
        state_dict: dict[str, Any],
        optimizer_overrides: Any = None,
    ) -> None:
        original(self, state_dict, optimizer_overrides)
        scaler = self.scaler.state_dict()
        if scaler and "loss_scale" in state_dict:
            scaler["scale"] = state_dict["loss_scale"]
            scaler["_growth_tracker"] = state_dict.get(UPDATES, 0)
            self.scaler.load_state_dict(scaler)


def resume_with_the_counters_of_the_scale() -> None:
    """Double the scale of `--fp16` when an uninterrupted training does.

    fairseq stores the scale, but not the number of updates since it changed.
    """

    @around((HalfOptimizer, SmallOptimizer), "state_dict")
    def state_dict(original: Callable, self: Any) -> dict[str, Any]:
        state = original(self)
        if self.scaler is not None:  # None with bf16
            state.update({"scaler" + name: getattr(self.scaler, name) for name in COUNTERS})
        return state

    @around((HalfOptimizer, SmallOptimizer), "load_state_dict")
    def load_state_dict(
        original: Callable, self: Any, state_dict: dict[str, Any], optimizer_overrides: Any = None
    ) -> None:
        original(self, state_dict, optimizer_overrides)
        if self.scaler is not None:
            for name in COUNTERS:
                if "scaler" + name in state_dict:
                    setattr(self.scaler, name, state_dict["scaler" + name])
