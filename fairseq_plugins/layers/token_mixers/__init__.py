"""Token mixers of encoder layers. To add one, write its file and import it here.

CONTRIBUTING.md shows this step by step.
"""

# ruff: noqa: F401
from fairseq_plugins.layers.fastformer import Fastformer, FastformerOptions
from fairseq_plugins.layers.token_mixer import (
    TOKEN_MIXERS,
    MixerSpec,
    TokenMixer,
    register_token_mixer,
)

from .bigbird import BigBird, BigBirdOptions
from .flowformer import Flowformer
from .linear_attention import LinearAttention
from .linformer import Linformer, LinformerOptions
from .longformer import Longformer, LongformerOptions
from .multi_head import MultiHeadMixer
from .performer import Performer, PerformerOptions
from .poolingformer import Poolingformer, PoolingformerOptions
from .softmax_attention import SoftmaxAttention
