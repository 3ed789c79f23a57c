"""How the positions of an encoder layer see each other. A new mixer is a file and an import here.

CONTRIBUTING.md adds one step by step.
"""

from .fastformer import Fastformer, FastformerOptions
from .linear_attention import LinearAttention
from .softmax_attention import SoftmaxAttention
from .token_mixer import TOKEN_MIXERS, MixerSpec, TokenMixer, register_token_mixer

__all__ = [
    "TOKEN_MIXERS",
    "Fastformer",
    "FastformerOptions",
    "LinearAttention",
    "MixerSpec",
    "SoftmaxAttention",
    "TokenMixer",
    "register_token_mixer",
]
