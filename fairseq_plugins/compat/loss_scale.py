"""Repairs of the scale of the loss, of `--amp` (torch's automatic mixed precision) and `--fp16`."""

from collections.abc import Callable
from typing import Any

from fairseq.optim import AMPOptimizer
from fairseq.optim.fp16_optimizer import _FP16OptimizerMixin as HalfOptimizer
from fairseq.optim.fp16_optimizer import _MemoryEfficientFP16OptimizerMixin as SmallOptimizer

from fairseq_plugins.compat.patch import repair

# in the optimizer's state, beside fairseq's "loss_scale"
UPDATES = "amp_updates_at_this_scale"
COUNTERS = ("_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale")


@repair(AMPOptimizer, "step")
def unscale_gradients_once(original: Callable, self: AMPOptimizer) -> None:
    """Divide gradients by the loss scale once; all versions do it twice.

    fairseq unscales the gradients of torch's optimizer to clip them. Then it gives torch's
    GradScaler its own optimizer, which wraps that one, and the scaler takes its gradients for
    different ones. At the first scale, 128, SGD moves 1/128 as far as in float32, and Adam's
    epsilon is 128 times as large. Both get worse with each doubling of the scale.
    """
    self.scaler.step(self.optimizer)
    self.scaler.update()


@repair(AMPOptimizer, "state_dict")
def store_the_scale(original: Callable, self: AMPOptimizer) -> dict[str, Any]:
    """Keep the loss scale in checkpoints, as `--fp16` does; all versions restart it.

    Until the scale is as high as before, gradients may underflow that did not before.
    """
    state, scaler = original(self), self.scaler.state_dict()
    if scaler:  # empty without a GPU
        state["loss_scale"] = scaler["scale"]
        state[UPDATES] = scaler["_growth_tracker"]
    return state


@repair(AMPOptimizer, "load_state_dict")
def resume_with_the_scale(
    original: Callable, self: AMPOptimizer, state: dict[str, Any], *args: Any, **kwargs: Any
) -> None:
    """Load what `store_the_scale` stored."""
    original(self, state, *args, **kwargs)
    scaler = self.scaler.state_dict()
    if scaler and "loss_scale" in state:
        scaler["scale"] = state["loss_scale"]
        scaler["_growth_tracker"] = state.get(UPDATES, 0)
        self.scaler.load_state_dict(scaler)


@repair((HalfOptimizer, SmallOptimizer), "state_dict")
def store_the_counters_of_the_scale(original: Callable, self: Any) -> dict[str, Any]:
    """Double the scale of `--fp16` when an uninterrupted training does.

    fairseq stores the scale, but not the number of updates since it changed.
    """
    state = original(self)
    if self.scaler is not None:  # None with bf16
        state.update({"scaler" + name: getattr(self.scaler, name) for name in COUNTERS})
    return state


@repair((HalfOptimizer, SmallOptimizer), "load_state_dict")
def resume_with_the_counters_of_the_scale(
    original: Callable, self: Any, state: dict[str, Any], *args: Any, **kwargs: Any
) -> None:
    """Load what `store_the_counters_of_the_scale` stored."""
    original(self, state, *args, **kwargs)
    if self.scaler is not None:
        for name in COUNTERS:
            if "scaler" + name in state:
                setattr(self.scaler, name, state["scaler" + name])
