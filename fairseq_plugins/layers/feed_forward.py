"""The interface of feed-forward networks, and their registry."""

from typing import NamedTuple

from fairseq_plugins.layers.registry import Part, Registry

FEED_FORWARDS = Registry("feed-forward network", default="standard")
register_feed_forward = FEED_FORWARDS.register


class FeedForwardSpec(NamedTuple):
    """The numbers that a feed-forward network gets from its layer."""

    embed_dim: int  # d, of input and output
    ffn_embed_dim: int  # inner dimension
    activation_fn: str = "relu"  # name of a fairseq activation function
    dropout: float = 0.0  # dropout of activations


class FeedForward(Part):
    """Base class: the part of an encoder or decoder layer that acts on each position separately.

    A network has ``__init__(self, spec: FeedForwardSpec, options)`` and ``forward(self, x) ->
    Tensor``, ... x d to ... x d. Residual, outer dropout and LayerNorm belong to the layer.

    The model calls the class methods below before it builds any network.
    """

    # whether its inner dimension is --encoder-ffn-embed-dim and --decoder-ffn-embed-dim
    uses_ffn_embed_dim = True
    # whether the positions of a batch compete in training. If so, forward takes a second argument,
    # the padding mask, B x T or None, with x of T x B x d; packed decoders omit it
    routes_positions = False
