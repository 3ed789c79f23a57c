"""Multi-head projections, padding and alignment, for mixers that define one head."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fairseq_plugins.layers.compression import align_to_start, restore_alignment
from fairseq_plugins.layers.masking import Mask, at_least_float32, hide
from fairseq_plugins.layers.token_mixer import MixerSpec, TokenMixer


class MultiHeadMixer(TokenMixer):
    """``W [mix of all heads] + b``, with ``Q = x W_Q``, ``K = memory W_K``, ``V = memory W_V``.

    A subclass defines the equation of a head in `mix`. There, x and memory are zero at padding. One
    that has not all of Q, K and V says so in `projections`.
    With `counts_positions` sentences also begin at position 0: batches padded on the left are
    aligned to the start, and the result is moved back (see `compression.py`).

    Shape:
        x: T x B x d; memory: S x B x memory_dim; padding_mask: B x T and memory_padding_mask:
        B x S, True at padding, or None; result: T x B x d in x's dtype.
    """

    # which of the projections of queries, keys and values it has
    projections = "qkv"
    if TYPE_CHECKING:  # TorchScript does not know the type
        q_proj: nn.Module
        k_proj: nn.Module
        v_proj: nn.Module

    def __init__(self, spec: MixerSpec, options: Any = None, *, counts_positions: bool = False):
        super().__init__()
        self.counts_positions = counts_positions
        self.num_heads = spec.num_heads
        self.head_dim = spec.embed_dim // spec.num_heads
        self.scaling = self.head_dim**-0.5
        for name in self.projections:
            input_dim = spec.embed_dim if name == "q" else spec.memory_dim
            self.add_module(f"{name}_proj", self.projection(input_dim, spec.embed_dim))
        self.out_proj = nn.Linear(spec.embed_dim, spec.embed_dim)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def projection(self, input_dim: int, output_dim: int) -> nn.Module:
        """A projection to queries, keys or values, initialised as in fairseq's attention."""
        linear = nn.Linear(input_dim, output_dim)
        nn.init.xavier_uniform_(linear.weight, gain=2**-0.5)
        return linear

    def forward(
        self, x: Tensor, memory: Tensor, padding_mask: Mask = None, memory_padding_mask: Mask = None
    ) -> Tensor:
        is_memory = False
        if not torch.jit.is_scripting():
            is_memory = memory is x and memory_padding_mask is padding_mask
        rank: Tensor | None = None
        if padding_mask is not None:
            x, padding_mask, rank = self._clean(x, padding_mask)
        if is_memory:
            memory, memory_padding_mask = x, padding_mask
        elif memory_padding_mask is not None:
            memory, memory_padding_mask, _ = self._clean(memory, memory_padding_mask)

        mixed = self.mix(x, memory, padding_mask, memory_padding_mask)
        out = self.out_proj(self.merge(mixed))
        if rank is not None and self.counts_positions:
            out = restore_alignment(out, rank)
        return out

    def mix(
        self, x: Tensor, memory: Tensor, padding_mask: Mask, memory_padding_mask: Mask
    ) -> Tensor:
        """The equation of the mixer for all heads.

        Args: those of `forward`, with zeros at padding.

        Returns:
            B x h x T x s.
        """
        raise NotImplementedError

    def _clean(self, x: Tensor, padding_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Zero the padding, and move it to the end if the mixer counts positions."""
        if self.counts_positions:
            return align_to_start(x, padding_mask)
        return x.masked_fill(padding_mask.t().unsqueeze(-1), 0.0), padding_mask, padding_mask

    def split(self, x: Tensor) -> Tensor:
        """T x B x d -> B x h x T x s."""
        length, bsz = x.size(0), x.size(1)
        return x.view(length, bsz, self.num_heads, self.head_dim).permute(1, 2, 0, 3)

    def merge(self, x: Tensor) -> Tensor:
        """B x h x T x s -> T x B x d."""
        return x.permute(2, 0, 1, 3).flatten(2)


class Float32Mixer(MultiHeadMixer):
    """A `MultiHeadMixer` whose equation is computed in float32 at least, also under autocast.

    Sums over time and exponents exceed float16's largest number, 65,504. A subclass defines the
    equation in `combine`.
    """

    def mix(
        self, x: Tensor, memory: Tensor, padding_mask: Mask, memory_padding_mask: Mask
    ) -> Tensor:
        q, k = self.split(self.q_proj(x)), self.split(self.k_proj(memory))
        v = self.split(self.v_proj(memory))
        dtype = torch.promote_types(v.dtype, torch.float32)
        heads = (q.to(dtype), k.to(dtype), v.to(dtype), padding_mask, memory_padding_mask)
        if torch.jit.is_scripting():
            return self.combine(*heads).type_as(v)
        else:
            with torch.autocast(v.device.type, enabled=False):
                return self.combine(*heads).type_as(v)

    def combine(
        self, q: Tensor, k: Tensor, v: Tensor, padding_mask: Mask, memory_padding_mask: Mask
    ) -> Tensor:
        """The equation for all heads.

        Args:
            q: B x h x T x s.
            k, v: B x h x S x s.
            padding_mask, memory_padding_mask: those of `forward`.

        Returns:
            B x h x T x s.
        """
        raise NotImplementedError


def real_lengths(x: Tensor, padding_mask: Mask) -> Tensor:
    """The number of real positions of each sentence: B, for x of T x B x d."""
    if padding_mask is None:
        return torch.full([x.size(1)], x.size(0), dtype=torch.int64, device=x.device)
    return (~padding_mask).sum(dim=1)


def masked_softmax(scores: Tensor, hidden: Tensor) -> Tensor:
    """Softmax over the last dimension, in float32 at least; weights are zero where `hidden`.

    If all of a row is hidden, all its weights are zero.
    """
    weights = torch.softmax(hide(at_least_float32(scores), hidden), dim=-1)
    return weights.masked_fill(hidden, 0.0).type_as(scores)
