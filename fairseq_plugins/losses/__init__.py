"""Training criterions that fairseq lacks. Importing this registers them."""

from .label_smoothed import LabelSmoothedCrossEntropyFused
from .two_passes import LabelSmoothedCrossEntropyRDrop, LabelSmoothedCrossEntropySimCut

__all__ = [
    "LabelSmoothedCrossEntropyFused",
    "LabelSmoothedCrossEntropyRDrop",
    "LabelSmoothedCrossEntropySimCut",
]
