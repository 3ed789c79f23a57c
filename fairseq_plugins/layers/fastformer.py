"""Additive attention of Fastformer, linear in length (Wu et al., arXiv 2108.09084)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers import kernels
from fairseq_plugins.layers.dropout import new_seed, probability
from fairseq_plugins.layers.masking import Mask, at_least_float32, hide
from fairseq_plugins.layers.packed import Layout
from fairseq_plugins.layers.tracing import is_traced
from fairseq_plugins.options.fields import option

from .additive_attention import WeightedSums, weighted_sums, weights_of
from .token_mixer import MixerSpec, TokenMixer, register_token_mixer

INTERACTIONS = ("product", "add", "concat")
SHARING = ("query-value", "head", "layer")

# Both measured on a CPU, forward and backward, as multiples of d:
# Positions of a batch from which the re-associated form is faster: it has two d x d products for
# each sentence, and no keys.
REASSOCIATE_FROM = 0.5
# Length of a sentence from which folding is faster: one d x d matrix for each sentence replaces
# queries and output projection.
FOLD_FROM = 1.25


@dataclass
class FastformerOptions(FairseqDataclass):
    interaction: ChoiceEnum(list(INTERACTIONS)) = option(  # type: ignore[valid-type]
        "product", "how Fastformer combines its global query and key with keys and values"
    )
    sharing: str = option(
        "query-value,layer",
        "what Fastformer shares parameters over: any of query-value, head, layer, separated by "
        "commas, or none",
    )


@register_token_mixer("fastformer", FastformerOptions)
class Fastformer(TokenMixer):
    """Additive attention with a global query and a global key.

    Per head of size s, with ``a o b`` the interaction (element-wise product in the paper)::

        alpha_i = softmax_i(w_q . q_i / sqrt(s))    (eq. 3)    q = sum_i alpha_i q_i    (eq. 4)
        p_i = q o k_i
        beta_i = softmax_i(w_k . p_i / sqrt(s))     (eq. 5)    k = sum_i beta_i p_i     (eq. 6)
        u_i = k o v_i
        out_i = W [u_i of all heads] + b + q_i      (section 3.1)

    With a separate `memory` (the first layer of a later block, see `encoder_layer.py`) q_i and v_i
    come from `x`, because every output row needs one of each, and k_i from `memory`.

    Interactions (section 4.4): "product"; "add"; "concat", where p_i = [q; k_i] has 2 s features,
    u_i = [k; v_i] has 3 s, and w_k and W widen accordingly.

    Time O(T d), beside the projections (section 3.2).

    There are two exact forms. The plain one follows the equations, but never builds p_i. The
    re-associated one, for the product only, needs no keys and does d x h instead of d x d work per
    position::

        scores of alpha:  x_i (W_Q' w_q)           q = (sum alpha_i x_i) W_Q'
        scores of beta:   x_i (W_K' (q o w_k))     k = q o ((sum beta_i x_i) W_K')

    If v = q and sentences are long compared with d, it also folds queries and output projection
    into one d x d matrix per sentence: out = x (W_Q' diag(k) W' + W_Q') + const. The size of the
    batch decides; set `reassociate` (and `fold` for the last step) to True or False to force one.

    Options:
        interaction: "product", "add" or "concat".
        sharing: any of
            "query-value": values use W_Q too (the paper's choice, section 4.5);
            "head": all heads use one s x s matrix for each of query, key and value, and one w_q and
            w_k; each head reads its own slice of the features, since heads that read all features
            with shared parameters would be equal (section 4.5);
            "layer": layers of one size share a mixer, but not feed-forward network and LayerNorms.

    The weights of the authors' notebook do not fit: its query scores of a head read the features of
    all heads, but equation 3 has one vector of size s per head.

    Shape:
        x: T x B x d; memory: T' x B x memory_dim; padding_mask: B x T and memory_padding_mask:
        B x T', True at padding, or None; result: T x B x d in x's dtype (weights over positions
        are normalised in float32).
    """

    reassociate: bool | None  # in the class body, where TorchScript looks
    fold: bool | None

    def __init__(self, spec: MixerSpec, options: FastformerOptions | None = None):
        super().__init__()
        options = options or FastformerOptions()
        interaction, sharing = str(options.interaction), parse_sharing(options.sharing)
        embed_dim, memory_dim, num_heads = spec.embed_dim, spec.memory_dim, spec.num_heads
        share_heads = "head" in sharing
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.interaction = interaction
        self.share_heads = share_heads
        self.scaling = self.head_dim**-0.5
        self.reassociate = None
        self.can_reassociate = interaction == "product" and not share_heads
        self.reassociate_from = REASSOCIATE_FROM * embed_dim
        self.fold = None
        self.fold_from = FOLD_FROM * embed_dim

        groups = num_heads if share_heads else 1
        size = embed_dim // groups
        self.q_proj = nn.Linear(size, size)
        self.k_proj = nn.Linear(memory_dim // groups, size)
        self.v_proj: nn.Linear | None = None
        if "query-value" not in sharing:
            self.v_proj = nn.Linear(size, size)
        score_heads = 1 if share_heads else num_heads
        key_width = 2 if interaction == "concat" else 1
        value_width = 3 if interaction == "concat" else 1
        self.query_score = nn.Parameter(torch.empty(score_heads, self.head_dim))  # w_q
        self.key_score = nn.Parameter(torch.empty(score_heads, key_width * self.head_dim))  # w_k
        self.out_proj = nn.Linear(value_width * embed_dim, embed_dim)
        self.dropout_module = FairseqDropout(spec.dropout, module_name=self.__class__.__name__)
        self.reset_parameters()

    @classmethod
    def complete(cls, options: FastformerOptions, specs: Sequence[MixerSpec]) -> FastformerOptions:
        parse_sharing(options.sharing)
        return options

    @classmethod
    def shares_layers(cls, options: FastformerOptions) -> bool:
        return "layer" in parse_sharing(options.sharing)

    def call_projections(self) -> None:
        self.can_reassociate = False

    def reset_parameters(self) -> None:
        """Initialise projections as in fairseq's attention, score vectors with variance 1 / s."""
        gain = 2**-0.5
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            if projection is not None:
                nn.init.xavier_uniform_(projection.weight, gain=gain)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)
        nn.init.normal_(self.query_score, std=self.head_dim**-0.5)
        nn.init.normal_(self.key_score, std=self.head_dim**-0.5)

    def forward(
        self, x: Tensor, memory: Tensor, padding_mask: Mask = None, memory_padding_mask: Mask = None
    ) -> Tensor:
        # padding must not reach the sums, not even as 0 * NaN
        is_memory = False
        if not torch.jit.is_scripting():
            is_memory = memory is x and memory_padding_mask is padding_mask
        if padding_mask is not None:
            x = x.masked_fill(padding_mask.t().unsqueeze(-1), 0.0)
        if is_memory:
            memory = x
        elif memory_padding_mask is not None:
            memory = memory.masked_fill(memory_padding_mask.t().unsqueeze(-1), 0.0)

        reassociate = self.reassociate
        if reassociate is None:
            positions = memory.size(0) * memory.size(1)
            # with fewer positions, two products per sentence cost as much as the keys
            reassociate = memory.size(0) >= 4 and positions >= self.reassociate_from
        if self.can_reassociate and reassociate:
            return self._forward_reassociated(x, memory, padding_mask, memory_padding_mask)
        return self._forward_plain(x, memory, padding_mask, memory_padding_mask)

    def _forward_plain(
        self, x: Tensor, memory: Tensor, padding_mask: Mask, memory_padding_mask: Mask
    ) -> Tensor:
        bsz, heads, size = x.size(1), self.num_heads, self.head_dim
        groups = heads if self.share_heads else 1
        q = self.q_proj(x.view(-1, bsz, groups, x.size(2) // groups)).view(-1, bsz, heads, size)
        k = self.k_proj(memory.view(-1, bsz, groups, memory.size(2) // groups))
        k = k.view(-1, bsz, heads, size)  # T' x B x h x s
        v = q
        if self.v_proj is not None:
            v = self.v_proj(x.view(-1, bsz, groups, x.size(2) // groups))
            v = v.view(-1, bsz, heads, size)

        alpha = self._weights((q * self.query_score).sum(dim=-1), padding_mask)
        query = (alpha.unsqueeze(-1) * q).sum(dim=0)  # B x h x s
        if self.interaction == "product":
            beta = self._weights((k * (query * self.key_score)).sum(dim=-1), memory_padding_mask)
            key = query * (beta.unsqueeze(-1) * k).sum(dim=0)  # B x h x s
            u = key * v
        elif self.interaction == "add":
            scores = ((query + k) * self.key_score).sum(dim=-1)
            beta = self._weights(scores, memory_padding_mask).unsqueeze(-1)
            key = (beta * (query + k)).sum(dim=0)
            u = key + v
        else:
            score_query, score_key = self.key_score[:, :size], self.key_score[:, size:]
            scores = (query * score_query).sum(dim=-1) + (k * score_key).sum(dim=-1)
            beta = self._weights(scores, memory_padding_mask).unsqueeze(-1)
            key = torch.cat([query * beta.sum(dim=0), (beta * k).sum(dim=0)], dim=-1)
            u = torch.cat([key.expand(v.size(0), bsz, heads, 2 * size), v], dim=-1)
        return self.out_proj(u.reshape(u.size(0), bsz, -1)) + q.reshape(-1, bsz, self.embed_dim)

    def _forward_reassociated(
        self, x: Tensor, memory: Tensor, padding_mask: Mask, memory_padding_mask: Mask
    ) -> Tensor:
        dim, w_q, b_q = self.embed_dim, self.q_proj.weight, self.q_proj.bias
        x_mean, alpha_sum = self._attend(x, self._to_alpha(), padding_mask)
        query = self._global_query(x_mean, alpha_sum)
        memory_mean, beta_sum = self._attend(memory, self._to_beta(query), memory_padding_mask)
        key = self._global_key(query, memory_mean, beta_sum)

        fold = self.fold
        if fold is None:
            fold = x.size(0) >= self.fold_from
        if fold and self.v_proj is None:
            gated = self.out_proj.weight * key.reshape(-1, 1, dim)  # B x d x d: W diag(k)
            matrix = torch.matmul(gated, w_q) + w_q  # B x d x d
            const = torch.matmul(gated, b_q) + b_q + self.out_proj.bias  # B x d
            out = torch.baddbmm(const.unsqueeze(1), x.transpose(0, 1), matrix.transpose(1, 2))
            return out.transpose(0, 1)
        q = self.q_proj(x)
        v = q if self.v_proj is None else self.v_proj(x)
        return self.out_proj(key.reshape(-1, dim) * v) + q

    # Directions of the re-associated form, and the global query and key (B x h x s) from its sums.
    # A bias shifts all scores of a head equally, so it cancels in the softmax.

    def _to_alpha(self) -> Tensor:  # h x d
        w_q = self.q_proj.weight.view(self.num_heads, self.head_dim, -1)
        return torch.bmm(self.query_score.unsqueeze(1), w_q).squeeze(1)

    def _global_query(self, x_mean: Tensor, alpha_sum: Tensor) -> Tensor:
        w_q = self.q_proj.weight.view(self.num_heads, self.head_dim, -1)
        b_q = self.q_proj.bias.view(self.num_heads, self.head_dim)
        return _per_head(x_mean, w_q) + alpha_sum * b_q

    def _to_beta(self, query: Tensor) -> Tensor:  # B x h x d
        w_k = self.k_proj.weight.view(self.num_heads, self.head_dim, -1)
        return torch.bmm((query * self.key_score).transpose(0, 1), w_k).transpose(0, 1)

    def _global_key(self, query: Tensor, memory_mean: Tensor, beta_sum: Tensor) -> Tensor:
        w_k = self.k_proj.weight.view(self.num_heads, self.head_dim, -1)
        b_k = self.k_proj.bias.view(self.num_heads, self.head_dim)
        return query * (_per_head(memory_mean, w_k) + beta_sum * b_k)

    def _attend(self, x: Tensor, directions: Tensor, padding_mask: Mask) -> tuple[Tensor, Tensor]:
        x = x.type_as(directions)  # under autocast the products' dtype; otherwise no change
        dropout = self.dropout_module
        keep: Tensor | None = None
        if dropout.p > 0 and (dropout.training or dropout.apply_during_inference):
            if not torch.jit.is_scripting():
                if has_kernel(x, directions, True):
                    p = probability(dropout)
                    return attend_by_kernel(x, directions, padding_mask, self.scaling, p)
            ones = torch.ones(
                [x.size(0), x.size(1), self.num_heads],
                dtype=torch.promote_types(x.dtype, torch.float32),
                device=x.device,
            )
            keep = dropout(ones)
        return attend_additively(x, directions, padding_mask, self.scaling, keep)

    @torch.jit.unused
    def kernels(self) -> list[tuple[str, int, int, int]]:
        """The Triton kernels for this module, each a name and sizes as `kernels.usable` takes."""
        if not self.can_reassociate:
            return []
        drops = int(probability(self.dropout_module) > 0)
        weights = (self.q_proj.weight, self.k_proj.weight)
        dims = {w.size(1) for w in weights if kernels.has_room_for_heads(w, self.num_heads)}
        return [("additive_attention", dim, self.num_heads, drops) for dim in sorted(dims)]

    def _weights(self, scores: Tensor, padding_mask: Mask) -> Tensor:
        """Dropout of the softmax over time of scores, T x B x h; finite also if all is padding."""
        weights = at_least_float32(scores) * self.scaling
        if padding_mask is not None:
            weights = hide(weights, padding_mask.t().unsqueeze(-1))
        return self.dropout_module(torch.softmax(weights, dim=0).type_as(scores))

    @torch.jit.unused
    def forward_packed(self, x: Tensor, at: Layout, memory: Tensor, memory_at: Layout) -> Tensor:
        """The re-associated form, by Triton kernels; without these, `forward` on a padded batch."""
        if not self.can_reassociate:
            return super().forward_packed(x, at, memory, memory_at)
        directions, p = self._to_alpha(), probability(self.dropout_module)
        if not all(has_kernel(rows, directions, p > 0) for rows in (x, memory)):
            return super().forward_packed(x, at, memory, memory_at)
        x_mean, alpha_sum = attend_by_kernel(x, directions, None, self.scaling, p, at)
        query = self._global_query(x_mean, alpha_sum)
        directions = self._to_beta(query)
        memory_mean, beta_sum = attend_by_kernel(
            memory, directions, None, self.scaling, p, memory_at
        )
        key = self._global_key(query, memory_mean, beta_sum).flatten(1)  # S x d
        q = self.q_proj(x)
        v = q if self.v_proj is None else self.v_proj(x)
        # a product with 0 and 1, as adding gradients by index has no fixed order on a GPU
        return self.out_proj((at.members.t().to(key.dtype) @ key) * v) + q


def parse_sharing(value: str) -> tuple[str, ...]:
    """The words of --fastformer-sharing, empty for "none".

    Raises:
        ConfigurationError: an unknown word, or "none" with others.
    """
    words = [word.strip() for word in str(value).split(",") if word.strip()]
    if words == ["none"]:
        return ()
    if not words or any(word not in SHARING for word in words):
        raise ConfigurationError(
            f"--fastformer-sharing {value}: give any of {', '.join(SHARING)}, "
            "separated by commas, or only none"
        )
    return tuple(words)


def _per_head(x: Tensor, weight: Tensor) -> Tensor:
    """``weight[h] x[b, h]``: B x h x d with h x s x d gives B x h x s."""
    return torch.bmm(x.transpose(0, 1), weight.transpose(1, 2)).transpose(0, 1)


def attend_additively(
    x: Tensor, directions: Tensor, padding_mask: Mask, scaling: float, keep: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """``sum_t w_t x_t`` and ``sum_t w_t`` with ``w = keep * softmax_t(scaling * directions x_t)``.

    Outside TorchScript and torch.compile `WeightedSums` has the gradient, written by hand: one
    product instead of four passes over x. Results are the same to the bit. In half precision on a
    GPU, Triton kernels replace both directions (`layers/kernels/`), unless `keep` is given.

    Args:
        x: T x B x d, finite.
        directions: h x d, or B x h x d, in x's dtype.
        padding_mask: B x T, True at padding, or None. Padding gets weight zero; in a sentence of
            only padding, all weights are equal and finite.
        scaling: factor of the scores.
        keep: T x B x h, factors of the weights after dropout of ones; None for ones.

    Returns:
        B x h x d and B x h x 1 in x's dtype; weights are normalised in float32 at least.
    """
    if torch.jit.is_scripting():
        return weighted_sums(x, weights_of(x, directions, padding_mask, scaling), keep)
    else:
        if is_traced():
            return weighted_sums(x, weights_of(x, directions, padding_mask, scaling), keep)
        if keep is None and has_kernel(x, directions, False):
            return attend_by_kernel(x, directions, padding_mask, scaling, 0.0)
        return WeightedSums.apply(x, directions, padding_mask, scaling, keep)


def has_kernel(x: Tensor, directions: Tensor, drops: bool) -> bool:
    """Whether `attend_by_kernel` can be called with these arguments and this dropout."""
    if not kernels.can_read(x):
        return False
    heads = directions.size(-2)
    return kernels.has_room_for_heads(x, heads) and kernels.usable(
        x, "additive_attention", x.size(-1), heads, int(drops)
    )


def attend_by_kernel(
    x: Tensor,
    directions: Tensor,
    padding_mask: Mask,
    scaling: float,
    p: float,
    at: Layout | None = None,
) -> tuple[Tensor, Tensor]:
    """`attend_additively` with dropout of the weights of probability p, by Triton kernels.

    With a layout, x is packed, N x d, and an empty sentence has zeros.
    """
    from fairseq_plugins.layers.kernels.additive_attention import KernelSums

    seed = new_seed(x, p)
    if at is None:
        return KernelSums.apply(x, directions, padding_mask, scaling, p, seed)
    packed = x.contiguous(), directions.type_as(x)
    return KernelSums.apply(*packed, None, scaling, p, seed, at.starts, at.width)
