"""Linformer: keys and values projected to a fixed length (Wang et al., arXiv 2006.04768)."""

from dataclasses import dataclass

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers.masking import Mask, at_least_float32
from fairseq_plugins.layers.token_mixer import MixerSpec, register_token_mixer
from fairseq_plugins.options.fields import option

from .multi_head import MultiHeadMixer

SHARING = ("none", "head", "key-value")


@dataclass
class LinformerOptions(FairseqDataclass):
    projected_length: int = option(
        64, "Linformer's length of projected keys and values", least=1, most=2**16
    )
    sharing: ChoiceEnum(list(SHARING)) = option(  # type: ignore[valid-type]
        "head",
        "how Linformer shares its projections over time: none, a pair for each head; head, a pair "
        "for all heads; key-value, one for all",
    )


@register_token_mixer("linformer", LinformerOptions)
class Linformer(MultiHeadMixer):
    """Softmax attention to k keys and values that are learned projections over time (equation 7).

    Per head, with E and F of k x n, where n is the longest sentence::

        out = softmax(Q (E K)' / sqrt(s)) (F V)

    Position t of a sentence, counted from its first real token, is multiplied by column t of E and
    F. A sentence of length S uses the first S columns; padding adds nothing. E and F start with
    variance 1 / (n + k), as in the authors' code (Xavier with gain 2^-0.5), so that the longest
    sentence has scores of softmax attention's size. The proof's 1 / k makes them (n / k)^0.5 times
    as large, and such a Linformer hardly learns.

    Time O((T + S) k d), memory O((T + S) k h), beside the projections over features.

    Options:
        projected_length: k.
        sharing: "none", E and F for each head; "head", one pair for all heads of a layer;
            "key-value", also E = F (section 4). Sharing over layers is left out.

    Raises:
        ConfigurationError: the memory is longer than n (--max-source-positions).
    """

    takes_packed = (
        False  # its projection ends at the longest sentence, and a padded batch may be longer
    )

    value_mixtures: nn.Parameter | None  # in the class body, where TorchScript looks

    def __init__(self, spec: MixerSpec, options: LinformerOptions | None = None):
        super().__init__(spec, counts_positions=True)
        options = options or LinformerOptions()
        length, sharing = options.projected_length, str(options.sharing)
        self.max_positions = spec.max_positions
        self.groups = spec.num_heads if sharing == "none" else 1
        size = (self.groups, length, spec.max_positions)
        # set directly: xavier_uniform_ would take the number of groups for one of its two sizes
        deviation = (spec.max_positions + length) ** -0.5
        self.key_mixtures = nn.Parameter(torch.empty(size).normal_(std=deviation))  # E
        self.value_mixtures = None  # F
        if sharing != "key-value":
            self.value_mixtures = nn.Parameter(torch.empty(size).normal_(std=deviation))
        self.dropout_module = FairseqDropout(spec.dropout, module_name=self.__class__.__name__)

    def mix(
        self, x: Tensor, memory: Tensor, padding_mask: Mask, memory_padding_mask: Mask
    ) -> Tensor:
        if memory.size(0) > self.max_positions:
            raise ConfigurationError(
                f"the input has {memory.size(0)} positions, but this Linformer was built for "
                f"{self.max_positions}: raise --max-source-positions (--max-positions of a "
                "classifier) before training"
            )
        q = self.split(self.q_proj(x)) * self.scaling
        k, v = self.k_proj(memory), self.v_proj(memory)
        if memory_padding_mask is not None:
            padding = memory_padding_mask.t().unsqueeze(-1)
            k, v = k.masked_fill(padding, 0.0), v.masked_fill(padding, 0.0)
        value_mixtures = self.value_mixtures
        if value_mixtures is None:
            value_mixtures = self.key_mixtures
        k, v = self._shorten(k, self.key_mixtures), self._shorten(v, value_mixtures)

        scores = torch.matmul(q, k.transpose(2, 3))  # B x h x T x k
        weights = torch.softmax(at_least_float32(scores), dim=-1).type_as(v)
        weights = self.dropout_module(weights)
        return torch.matmul(weights, v)

    def _shorten(self, x: Tensor, mixtures: Tensor) -> Tensor:
        """S x B x d -> B x h x k x s."""
        heads = self.split(x)
        mixtures = mixtures[:, :, : x.size(0)]
        if self.groups == 1:  # one product for all heads
            return torch.einsum("kt,bhts->bhks", mixtures[0], heads)
        return torch.einsum("hkt,bhts->bhks", mixtures, heads)
