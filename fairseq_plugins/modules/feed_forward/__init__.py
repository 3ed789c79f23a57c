"""Feed-forward networks of a layer. A new one is a file and an import here."""

from .feed_forward import FEED_FORWARDS, FeedForward, FeedForwardSpec, register_feed_forward
from .mscffn import MSCFFN, MSCFFNOptions
from .standard import StandardFeedForward

__all__ = [
    "FEED_FORWARDS",
    "FeedForward",
    "FeedForwardSpec",
    "MSCFFN",
    "MSCFFNOptions",
    "StandardFeedForward",
    "register_feed_forward",
]
