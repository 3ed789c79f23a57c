"""Classification of pairs of texts: two encodings and a network on both (Retrieval)."""

from typing import Any

import torch
from fairseq.models import register_model, register_model_architecture
from torch import Tensor, nn

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers.sentence_pooling import ClassificationHead
from fairseq_plugins.models.encoder_classifier import (
    EncoderClassifierModel,
    fill_classifier_defaults,
)

HIDDEN = 4  # the head's first hidden layer has this many times the encoder's features


class PairHead(ClassificationHead):
    """The combination of two encodings of the Long-Range Arena's code.

    ``W3 relu(W2 relu(W1 [a; b]))`` with biases, of the vectors a and b that `SentencePooling` makes
    of both texts. The hidden layers have 4 d and 2 d features.

    Shape:
        x: T x 2 B x d, first all first texts; padding_mask: 2 B x T; result: B x num_classes.
    """

    def __init__(self, dim: int, num_classes: int, pooling: str, dropout: float):
        super().__init__(dim, num_classes, pooling, dropout)
        inner, last = HIDDEN * dim, HIDDEN // 2 * dim
        self.layers = nn.Sequential(
            nn.Linear(2 * dim, inner), nn.ReLU(), nn.Linear(inner, last), nn.ReLU()
        )
        self.out_proj = nn.Linear(last, num_classes)

    def forward(self, x: Tensor, padding_mask: Tensor) -> Tensor:
        both = torch.cat(self.pool(x, padding_mask).chunk(2), dim=1)  # B x 2 d
        return self.out_proj(self.layers(self.dropout_module(both)))


@register_model("pair_classifier")
class PairClassifierModel(EncoderClassifierModel):
    """`EncoderClassifierModel` for pairs of texts, each encoded without the other.

    For the task `classification` with the data of prepare-retrieval, where the end symbol separates
    the texts of a pair.
    """

    head = PairHead

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        features_only: bool = True,
        classification_head_name: str | None = None,
    ) -> tuple[Tensor, dict[str, list[Tensor]]]:
        """As `EncoderClassifierModel.forward`; encodings are 2 B, all first texts, then the others.

        Raises:
            ConfigurationError: a row is not a pair of texts.
        """
        dictionary = self.encoder.dictionary
        texts = separate(src_tokens, dictionary.pad(), dictionary.eos())
        return super().forward(texts, None, features_only, classification_head_name)


def separate(pairs: Tensor, pad: int, end: int) -> Tensor:
    """Take pairs of texts apart at the first end symbol, which stays with the first text.

    Args:
        pairs: B x T, padded on either side.
        pad, end: the indices of padding and of the end symbol.

    Returns:
        2 B x the length of the longest text, padded on the right; all first texts, then the others.

    Raises:
        ConfigurationError: a row has no second text.
    """
    real = pairs != pad
    ends = ((pairs == end) & real).cumsum(dim=1)
    first = real & ((ends == 0) | ((ends == 1) & (pairs == end)))
    sides = torch.cat([first, real & ~first])  # 2 B x T
    lengths = sides.sum(dim=1)
    if not bool((lengths > 0).all()):
        raise ConfigurationError(
            "a text has no end symbol with another text after it: --arch pair_classifier reads "
            "pairs, as prepare-retrieval makes them; use encoder_classifier for single texts"
        )
    width = int(lengths.max())
    order = sides.long().argsort(dim=1, descending=True, stable=True)[:, :width]
    return (
        pairs.repeat(2, 1)
        .gather(1, order)
        .masked_fill(torch.arange(width, device=pairs.device) >= lengths.unsqueeze(1), pad)
    )


@register_model_architecture("pair_classifier", "pair_classifier")
def pair_classifier(args: Any) -> None:
    """The sizes of fairseq's `transformer`, as `encoder_classifier`."""
    fill_classifier_defaults(args)
