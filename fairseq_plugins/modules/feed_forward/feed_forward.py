"""What a feed-forward network is: its place in a layer, and the registry of all of them."""

from typing import Any, NamedTuple, Sequence, Set

from torch import nn

from fairseq_plugins.modules.registry import Registry

FEED_FORWARDS = Registry("feed-forward network", default="standard")
register_feed_forward = FEED_FORWARDS.register


class FeedForwardSpec(NamedTuple):
    """The numbers that a layer has for its feed-forward network."""

    embed_dim: int  # d, of input and output
    ffn_embed_dim: int  # inner dimension
    activation_fn: str = "relu"  # name of a fairseq activation function
    dropout: float = 0.0  # of activations
    q_noise: float = 0.0  # fairseq's quantisation noise on projections, in blocks of that size
    qn_block_size: int = 8


class FeedForward(nn.Module):
    """What an encoder or decoder layer does at each position.

    A network has ``__init__(self, spec: FeedForwardSpec, options)`` and ``forward(self, x) ->
    Tensor``, ... x d to ... x d, each position on its own. Residual, outer dropout and LayerNorm
    belong to the layer.

    The class methods below tell the model about a network before any is built.
    """

    # whether --encoder-ffn-embed-dim and --decoder-ffn-embed-dim are its inner dimension
    uses_ffn_embed_dim = True
    # why TorchScript does not take it, if it does not
    not_scriptable = ""
    # whether positions compete in training: it is then called with the padding mask as well, B x T
    # or None, of x of T x B x d, unless x has real positions alone
    routes_positions = False

    @classmethod
    def complete(cls, options: Any, specs: Sequence[FeedForwardSpec]) -> Any:
        """Check the options against all layers that will have this network, and fill what is open.

        Raises:
            ConfigurationError: they cannot work; one line that names the option and its value.
        """
        return options

    @classmethod
    def input_sizes(cls, spec: FeedForwardSpec, options: Any) -> Set[int]:
        """Input sizes of its projections, which the blocks of quantisation noise must divide."""
        return {spec.embed_dim, spec.ffn_embed_dim}
