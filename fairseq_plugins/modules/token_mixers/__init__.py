"""Token mixers of encoder layers. To add one, write its file and import it here.

CONTRIBUTING.md shows this step by step.
"""

from .bigbird import BigBird, BigBirdOptions
from .fastformer import Fastformer, FastformerOptions
from .flowformer import Flowformer
from .linear_attention import LinearAttention
from .linformer import Linformer, LinformerOptions
from .longformer import Longformer, LongformerOptions
from .performer import Performer, PerformerOptions
from .poolingformer import Poolingformer, PoolingformerOptions
from .softmax_attention import SoftmaxAttention
from .token_mixer import TOKEN_MIXERS, MixerSpec, TokenMixer, register_token_mixer

__all__ = [
    "TOKEN_MIXERS",
    "BigBird",
    "BigBirdOptions",
    "Fastformer",
    "FastformerOptions",
    "Flowformer",
    "LinearAttention",
    "Linformer",
    "LinformerOptions",
    "Longformer",
    "LongformerOptions",
    "MixerSpec",
    "Performer",
    "PerformerOptions",
    "Poolingformer",
    "PoolingformerOptions",
    "SoftmaxAttention",
    "TokenMixer",
    "register_token_mixer",
]
