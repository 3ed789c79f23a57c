"""Feed-forward networks of a layer. To add one, write its file and import it here."""

# ruff: noqa: F401
from fairseq_plugins.layers.feed_forward import (
    FEED_FORWARDS,
    FeedForward,
    FeedForwardSpec,
    register_feed_forward,
)
from fairseq_plugins.layers.mscffn import MSCFFN, MSCFFNOptions

from .low_dimensional import LowDimensionalFeedForward
from .standard import StandardFeedForward
from .switch import SwitchFeedForward, SwitchOptions
