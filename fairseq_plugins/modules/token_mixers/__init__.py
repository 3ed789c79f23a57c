"""How the positions of an encoder layer see each other.

Every mixer has ``forward(x, memory, padding_mask, memory_padding_mask) -> Tensor`` of x's shape.
An ordinary layer passes its input twice; the first layer of a later encoder block passes the
pooled sequence as `x` and the sequence it was pooled from as `memory`. A new mixer is a file here,
a line in `TOKEN_MIXERS` and its options in `models/config.py`.
"""

from typing import Dict, Type

from torch import nn

from .fastformer import FASTFORMER_INTERACTIONS, FASTFORMER_SHARING, Fastformer
from .softmax_attention import SoftmaxAttention

TOKEN_MIXERS: Dict[str, Type[nn.Module]] = {
    "softmax": SoftmaxAttention,
    "fastformer": Fastformer,
}

__all__ = [
    "FASTFORMER_INTERACTIONS",
    "FASTFORMER_SHARING",
    "TOKEN_MIXERS",
    "Fastformer",
    "SoftmaxAttention",
]
