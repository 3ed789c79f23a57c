"""The interface of token mixers, and their registry."""

from typing import Any, NamedTuple

from torch import Tensor

from fairseq_plugins.layers.packed import Layout
from fairseq_plugins.layers.registry import Part, Registry

TOKEN_MIXERS = Registry("token mixer", default="softmax")
register_token_mixer = TOKEN_MIXERS.register


class MixerSpec(NamedTuple):
    """The numbers that a mixer gets from its layer."""

    embed_dim: int  # d, size of `x` and of the result
    memory_dim: int  # size of `memory`; differs from d where features are pooled
    num_heads: int  # h, a divisor of both
    dropout: float = 0.0  # dropout of attention
    max_positions: int = 1024  # the longest sentence
    time_window: int = 1  # positions of `memory` pooled into one of `x`
    fast: bool = False  # whether training may compute in a faster form, see --training-path


class TokenMixer(Part):
    """Base class: the part of an encoder layer that combines positions.

    A mixer has ``__init__(self, spec: MixerSpec, options)`` and
    ``forward(self, x, memory, padding_mask=None, memory_padding_mask=None) -> Tensor``. An ordinary
    layer passes its input as both `x` and `memory`; the first layer of a later block passes the
    pooled sequence as `x` and the sequence before pooling as `memory`. The values at padding must
    not change the result at real positions.

    The encoder calls the class methods below before it builds any mixer.

    Shape:
        x: T x B x d; memory: T' x B x memory_dim; padding_mask: B x T and memory_padding_mask:
        B x T', True at padding, or None; result: T x B x d.
    """

    # whether time and memory grow linearly with length
    is_linear = True
    # whether it has weights of positions, for --attention-dropout to drop
    drops_weights = True
    # whether `forward_packed` works, with no size or number that depends on data or on updates
    takes_packed = True

    @classmethod
    def shares_layers(cls, options: Any) -> bool:
        """Whether layers of equal sizes share one mixer, with one set of parameters."""
        return False

    def forward_packed(self, x: Tensor, at: Layout, memory: Tensor, memory_at: Layout) -> Tensor:
        """`forward` for rows, N x d and M x memory_dim, of the same sentences: N x d."""
        out = self(
            at.to_padded(x).transpose(0, 1),
            memory_at.to_padded(memory).transpose(0, 1),
            at.padding_mask,
            memory_at.padding_mask,
        )
        return at.from_padded(out.transpose(0, 1))

    def length_multiple(self) -> int:
        """The number that divides the length of `x` in graphs of `export`, by padding at the end.

        There, a part of the mixer with an attribute `fixed` has it set: sizes that depend on the
        length cannot be traced.
        """
        return 1

    def call_projections(self) -> None:
        """From now on, call projections as modules instead of reading their weights.

        Generation in 8 bits replaces these modules.
        """
