"""The search for the module whose gradient is NaN."""

from collections.abc import Callable
from typing import Any

from fairseq.nan_detector import NanDetector

from fairseq_plugins.compat.patch import repair


@repair(NanDetector, "__init__")
def look_for_nan_in_forward_only(original: Callable, self: NanDetector, model: Any) -> None:
    """End with "gradients are Nan/Inf" instead of a StopIteration.

    After such a gradient, fairseq looks for its module with hooks that cannot read the output of an
    encoder in backward.
    """
    original(self, model, backward=False)
