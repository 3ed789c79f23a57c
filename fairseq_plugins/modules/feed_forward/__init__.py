"""Feed-forward networks of a layer. A new one is a file here and a line in `FEED_FORWARDS`."""

from typing import Dict, Type

from torch import nn

from .mscffn import MSCFFN
from .standard import StandardFeedForward

FEED_FORWARDS: Dict[str, Type[nn.Module]] = {"standard": StandardFeedForward, "mscffn": MSCFFN}

__all__ = ["FEED_FORWARDS", "MSCFFN", "StandardFeedForward"]
