"""Pooling of packed sequences over time and features, and its inverse (see `compression.py`).

On a GPU means, and the inverse, are Triton kernels.
"""

from torch import Tensor

from . import kernels
from .compression import FeaturePooling, TimePooling
from .packed import Windows


def pool(x: Tensor, windows: Windows, time: TimePooling, features: FeaturePooling) -> Tensor:
    """``features(time(x))``: N x C -> P x C'."""
    together = averaged(features)
    if time.kind == "mean" and _has_kernel(x, windows, together):
        from .kernels.pooling import KernelPooling

        x = KernelPooling.apply(x, windows, together)
        if together == features.window:
            return x
    else:
        x = windows.pool(x, time)
    return features(x.unsqueeze(1)).squeeze(1)


def upsample(first: Tensor, x: Tensor, windows: Windows) -> Tensor:
    """``first``, N x C, plus x, P x C', repeated over rows and features of its windows."""
    features = first.size(1) // x.size(1)
    if _has_kernel(first, windows, features):
        from .kernels.pooling import KernelUpsampling

        return KernelUpsampling.apply(first, x, windows, features)
    return windows.upsample(first, x)


def _has_kernel(x: Tensor, windows: Windows, features: int) -> bool:
    kernel = kernel_of(x.size(1), windows.window, features)
    return kernels.can_read(x) and windows.window * features > 1 and kernels.usable(x, *kernel)


def kernel_of(dim: int, window: int, features: int) -> tuple[str, int, int, int]:
    """Name and sizes of the kernel, as `kernels.usable` takes them."""
    return "pooling", dim, window, features


def averaged(features: FeaturePooling) -> int:
    """How many features the kernel averages: 1 if a learned map, the maximum or minimum follows."""
    return features.window if features.kind == "mean" else 1
