"""Reduce a sequence to one vector, and to class scores."""

import torch
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from fairseq_plugins.layers.masking import at_least_float32


class SentencePooling(nn.Module):
    """A weighted mean of a sequence: ``sum_t w_t x_t``.

    "attention" is the additive attention network of Fastformer (its code and section 4.1 of the
    paper): ``w = softmax_t(v . tanh(U x_t + c))``. "mean" is ``w_t = 1 / T``. Both are over real
    tokens only, with weights computed in float32 at least.

    Args:
        dim: d.
        pooling: "attention" or "mean".

    Shape:
        x: T x B x d; padding_mask: B x T, True at padding, with a real token in each row; result:
        B x d, in the dtype of x.
    """

    def __init__(self, dim: int, pooling: str):
        super().__init__()
        self.hidden: nn.Linear | None = None
        self.score: nn.Linear | None = None
        if pooling == "attention":
            self.hidden = nn.Linear(dim, dim)
            # no bias: softmax over positions would cancel it
            self.score = nn.Linear(dim, 1, bias=False)

    def forward(self, x: Tensor, padding_mask: Tensor) -> Tensor:
        return self.pool(x, padding_mask)

    def pool(self, x: Tensor, padding_mask: Tensor) -> Tensor:
        """The vector of each sequence."""
        padding = padding_mask.t()  # T x B
        x = x.masked_fill(padding.unsqueeze(-1), 0.0)  # a weight of 0 does not remove NaN
        scores = x.new_zeros(x.shape[:2])
        if self.hidden is not None and self.score is not None:
            scores = self.score(torch.tanh(self.hidden(x))).squeeze(-1)
        scores = at_least_float32(scores).masked_fill(padding, float("-inf"))
        weights = torch.softmax(scores, dim=0).type_as(x)
        return torch.einsum("tb,tbd->bd", weights, x)


class ClassificationHead(SentencePooling):
    """`SentencePooling` and a linear layer: ``W dropout(sum_t w_t x_t) + b``.

    Args:
        dim: d.
        num_classes: number of logits.
        pooling: "attention" or "mean".
        dropout: probability, on the sentence vector.

    Shape:
        as `SentencePooling`; result: B x num_classes, in the dtype of x.
    """

    def __init__(self, dim: int, num_classes: int, pooling: str, dropout: float):
        super().__init__(dim, pooling)
        self.dropout_module = FairseqDropout(dropout, module_name=self.__class__.__name__)
        self.out_proj = nn.Linear(dim, num_classes)

    def forward(self, x: Tensor, padding_mask: Tensor) -> Tensor:
        return self.out_proj(self.dropout_module(self.pool(x, padding_mask)))
