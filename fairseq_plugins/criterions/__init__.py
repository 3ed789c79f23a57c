"""Training criterions that fairseq lacks. Importing this registers them."""

from .label_smoothed_cross_entropy_fused import LabelSmoothedCrossEntropyFused
from .label_smoothed_cross_entropy_rdrop import LabelSmoothedCrossEntropyRDrop
from .label_smoothed_cross_entropy_simcut import LabelSmoothedCrossEntropySimCut

__all__ = [
    "LabelSmoothedCrossEntropyFused",
    "LabelSmoothedCrossEntropyRDrop",
    "LabelSmoothedCrossEntropySimCut",
]
