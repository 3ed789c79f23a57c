"""The search for the module whose gradient is NaN."""

from typing import Any, Callable

from fairseq.nan_detector import NanDetector

from fairseq_plugins.compat.patch import wrap


def look_for_nan_in_forward_alone() -> None:
    """End with "gradients are Nan/Inf" instead of a StopIteration.

    After such a gradient, fairseq looks for its module with hooks that cannot read the output of an
    encoder in backward (0.12.2 and ff).
    """

    def make(original: Callable) -> Callable:
        def __init__(
            self: NanDetector, model: Any, forward: bool = True, backward: bool = False
        ) -> None:
            original(self, model, forward, backward)

        return __init__

    wrap(NanDetector, "__init__", "look_for_nan_in_forward_alone", make)
