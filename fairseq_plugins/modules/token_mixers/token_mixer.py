"""What a token mixer is: its place in a layer, and the registry of all of them."""

from typing import Any, NamedTuple, Optional, Sequence, Set

from torch import nn

from fairseq_plugins.modules.registry import Registry

TOKEN_MIXERS = Registry("token mixer", default="softmax")
register_token_mixer = TOKEN_MIXERS.register


class MixerSpec(NamedTuple):
    """The numbers that a layer has for its mixer."""

    embed_dim: int  # d, size of `x` and of the result
    memory_dim: int  # size of `memory`; differs from d where features are pooled
    num_heads: int  # h, a divisor of both
    dropout: float = 0.0  # of attention
    q_noise: float = 0.0  # fairseq's quantisation noise on projections, in blocks of that size
    qn_block_size: int = 8
    scalar_noise: float = 0.0  # the same, scalar: fairseq puts it into the forward of modules
    max_positions: int = 1024  # the longest sentence
    time_window: int = 1  # positions of `memory` that were pooled into one of `x`
    fast: bool = False  # whether training may take faster ways of its own
    xformers_att_config: Optional[str] = None  # --encoder-xformers-att-config


class TokenMixer(nn.Module):
    """How the positions of an encoder layer see each other.

    A mixer has ``__init__(self, spec: MixerSpec, options)`` and
    ``forward(self, x, memory, padding_mask=None, memory_padding_mask=None) -> Tensor``, where x is
    T x B x d, memory T' x B x memory_dim, the masks B x T and B x T', True at padding, or None, and
    the result T x B x d. An ordinary layer passes its input twice; the first layer of a later block
    passes the pooled sequence as `x` and the sequence it was pooled from as `memory`. What is at
    padding must change nothing at real positions.

    The class methods below tell the encoder about a mixer before any is built.
    """

    # whether fairseq's left-to-right decoder has this mixer
    left_to_right = False
    # whether it takes --encoder-xformers-att-config
    takes_xformers = False
    # why TorchScript does not take it, if it does not
    not_scriptable = ""

    @classmethod
    def complete(cls, options: Any, specs: Sequence[MixerSpec]) -> Any:
        """Check the options against all layers that will have this mixer, and fill what is open.

        Raises:
            ConfigurationError: they cannot work; one line that names the option and its value.
        """
        return options

    @classmethod
    def shares_layers(cls, options: Any) -> bool:
        """Whether layers of equal sizes have one mixer, with one set of parameters."""
        return False

    @classmethod
    def input_sizes(cls, spec: MixerSpec, options: Any) -> Set[int]:
        """Input sizes of its projections, which the blocks of quantisation noise must divide."""
        return {spec.embed_dim, spec.memory_dim}

    def call_projections(self) -> None:
        """Call projections as modules from now on, and do not read their weights.

        Generation in 8 bits exchanges the modules.
        """
