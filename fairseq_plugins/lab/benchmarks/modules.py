"""Single modules by name: token mixers and feed-forward networks."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers.fastformer import attend_additively
from fairseq_plugins.layers.feed_forwards import (
    MSCFFN,
    FeedForwardSpec,
    MSCFFNOptions,
    StandardFeedForward,
)
from fairseq_plugins.layers.projections import project_together
from fairseq_plugins.layers.residual import add_and_normalise
from fairseq_plugins.layers.token_mixers import Fastformer, MixerSpec, SoftmaxAttention
from fairseq_plugins.options.arguments import Command, read
from fairseq_plugins.options.fields import option


@dataclass
class Sizes(Command):
    """The sizes of single modules."""

    dim: int = option(512, "the dimension d of single modules", least=1)
    heads: int = option(8, "the number of heads of token mixers", least=1)
    inner: int | None = option(None, "the inner dimension of ffn (default: 4 d)", least=1)
    subspaces: int | None = option(
        None, "the subspaces n of mscffn (default: 12, or the nearest number that fits)", least=1
    )
    expansion: int = option(6, "the expansion m of mscffn", least=1)
    dropout: float = option(0.0, "the dropout inside a module", least=0, most=1)


class FusedAttention(nn.Module):
    """Multi-head softmax attention through ``F.scaled_dot_product_attention``.

    One matrix product computes queries, keys and values. Shape: T x B x d -> T x B x d.

    Raises:
        ValueError: the heads do not divide d.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0):
        super().__init__()
        if embed_dim % num_heads != 0:
            raise ValueError(f"{num_heads} heads do not divide the dimension {embed_dim}")
        self.num_heads = num_heads
        self.dropout = dropout
        self.in_proj = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        length, bsz, dim = x.size()
        # 3 x B x h x T x s
        parts = self.in_proj(x).view(length, bsz, 3, self.num_heads, -1).permute(2, 1, 3, 0, 4)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], dropout_p=dropout)
        return self.out_proj(mixed.permute(2, 0, 1, 3).reshape(length, bsz, dim))


class SelfMixer(nn.Module):
    """A token mixer as self-attention: T x B x d -> T x B x d."""

    def __init__(self, mixer: nn.Module):
        super().__init__()
        self.mixer = mixer

    def forward(self, x: Tensor) -> Tensor:
        return self.mixer(x, x)


class Copy(nn.Module):
    """Reads x once and writes it once: the lower bound that memory bandwidth sets."""

    def forward(self, x: Tensor) -> Tensor:
        return x.clone()


class Summaries(nn.Module):
    """A global query or key of Fastformer: T x B x d -> B x h x d."""

    def __init__(self, embed_dim: int, num_heads: int):
        super().__init__()
        self.directions = nn.Parameter(torch.randn(num_heads, embed_dim))
        self.scaling = embed_dim**-0.5

    def forward(self, x: Tensor) -> Tensor:
        return attend_additively(x, self.directions, None, self.scaling)[0]


class Residual(nn.Module):
    """The end of a sublayer (dropout, residual, LayerNorm): T x B x d -> T x B x d."""

    def __init__(self, embed_dim: int, dropout: float, plain: bool):
        super().__init__()
        self.norm = nn.LayerNorm(embed_dim)
        self.dropout_module = FairseqDropout(dropout)
        self.plain = plain

    def forward(self, x: Tensor) -> Tensor:
        if self.plain:
            return self.norm(x + self.dropout_module(x))
        return add_and_normalise(x, x, self.dropout_module, self.norm)[1]


class Projections(nn.Module):
    """Queries, keys and values, added: T x B x d -> T x B x d."""

    def __init__(self, embed_dim: int, plain: bool):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(embed_dim, embed_dim) for _ in range(3))
        self.plain = plain

    def forward(self, x: Tensor) -> Tensor:
        if self.plain:
            q, k, v = (layer(x) for layer in self.layers)
        else:
            q, k, v = project_together(x, list(self.layers))
        return q + k + v


def _mixer_spec(options: Sizes) -> MixerSpec:
    if options.dim % options.heads != 0:  # models check this before they build a mixer
        raise ValueError(f"{options.heads} heads do not divide the dimension {options.dim}")
    return MixerSpec(options.dim, options.dim, options.heads, dropout=options.dropout)


def _ffn_spec(options: Sizes) -> FeedForwardSpec:
    inner = options.inner or 4 * options.dim
    return FeedForwardSpec(options.dim, inner, dropout=options.dropout)


def _forced(options: Sizes, reassociate: bool) -> nn.Module:
    mixer = Fastformer(_mixer_spec(options))
    mixer.reassociate = reassociate
    return SelfMixer(mixer)


def _mscffn(options: Sizes) -> nn.Module:
    own = MSCFFNOptions(subspaces=options.subspaces, expansion=options.expansion)
    return MSCFFN(_ffn_spec(options), own)


MODULES: dict[str, Callable[[Sizes], nn.Module]] = {
    # fairseq's MultiheadAttention
    "softmax": lambda o: SelfMixer(SoftmaxAttention(_mixer_spec(o))),
    "sdpa": lambda o: FusedAttention(o.dim, o.heads, o.dropout),
    # the form that the model chooses, then each of the two forms
    "fastformer": lambda o: SelfMixer(Fastformer(_mixer_spec(o))),
    "fastformer-plain": lambda o: _forced(o, False),
    "fastformer-reassociated": lambda o: _forced(o, True),
    "ffn": lambda o: StandardFeedForward(_ffn_spec(o)),
    "mscffn": _mscffn,
    "copy": lambda o: Copy(),
    "summaries": lambda o: Summaries(o.dim, o.heads),
    "residual": lambda o: Residual(o.dim, o.dropout, False),
    "residual-plain": lambda o: Residual(o.dim, o.dropout, True),
    "projections": lambda o: Projections(o.dim, False),
    "projections-plain": lambda o: Projections(o.dim, True),
}


def is_module(words: str) -> bool:
    return words.split()[:1] != [] and words.split()[0] in MODULES


def build_module(words: str, defaults: dict[str, Any]) -> tuple[nn.Module, int]:
    """Build the module for "NAME [options]".

    Args:
        words: a name in `MODULES` and options such as --inner 3072.
        defaults: the options of all contenders.

    Returns:
        a module T x B x d -> T x B x d (B x h x d for "summaries"), and d.

    Raises:
        ConfigurationError: an option is unknown, or a size is out of range or does not fit another.
    """
    torch.manual_seed(1)
    try:
        name, *options = shlex.split(words)
        made = read(Sizes, options, name, None)
        sizes = Sizes(**{**defaults, **{name: getattr(made, name) for name in made.given}})
        return MODULES[name](sizes), sizes.dim
    except (ValueError, AssertionError) as error:  # such as a ConfigurationError
        raise ConfigurationError(f"`{words}`: {error or 'the heads must divide d'}") from None
