"""Feed-forward networks of a layer. To add one, write its file and import it here."""

# ruff: noqa: F401
from .feed_forward import FEED_FORWARDS, FeedForward, FeedForwardSpec, register_feed_forward
from .low_dimensional import LowDimensionalFeedForward
from .mscffn import MSCFFN, MSCFFNOptions
from .standard import StandardFeedForward
from .switch import SwitchFeedForward, SwitchOptions
