"""The Transformer's position-wise feed-forward network."""

from fairseq import utils
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn


class StandardFeedForward(nn.Module):
    """``fc2(dropout(activation(fc1(x))))`` (Vaswani et al. 2017, equation 2), fairseq's to the bit.

    Residual, outer dropout and LayerNorm belong to the layer.

    Args:
        embed_dim: d, of input and output.
        ffn_embed_dim: inner dimension.
        activation_fn: name of a fairseq activation function.
        activation_dropout: dropout after the activation.
        q_noise, qn_block_size: fairseq's quantisation noise on both projections.

    Shape: ... x d -> ... x d.
    """

    def __init__(
        self,
        embed_dim: int,
        ffn_embed_dim: int,
        activation_fn: str = "relu",
        activation_dropout: float = 0.0,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ):
        super().__init__()
        self.fc1 = quant_noise(nn.Linear(embed_dim, ffn_embed_dim), q_noise, qn_block_size)
        self.fc2 = quant_noise(nn.Linear(ffn_embed_dim, embed_dim), q_noise, qn_block_size)
        self.activation_fn = utils.get_activation_fn(activation_fn)
        self.dropout_module = FairseqDropout(
            activation_dropout, module_name=self.__class__.__name__
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.activation_fn(self.fc1(x))
        x = self.dropout_module(x)
        return self.fc2(x)
