"""The fused attention that torch uses on a GPU."""

import os

import torch

from fairseq_plugins.compat.patch import repair

# variables that torch also reads: with one of them, the choice is the user's
CHOICES = ("TORCH_CUDNN_SDPA_PREFERRED", "TORCH_CUDNN_SDPA_AVOID_RECOMPILE")


@repair()
def leave_out_cudnn_attention() -> None:
    """Let flash or memory-efficient attention serve all shapes instead of cuDNN's.

    cuDNN's builds a plan for each new shape, and most batches of sentences have a new shape: this
    takes tens of milliseconds per attention layer, forward and backward. It is torch's first choice
    on GPUs of compute capability 9 and 10 with torch 2.11 or newer. Other users saw steps 2.4 times
    as long (modelscope/FunASR issue 3704); not measured here yet. With an environment variable of
    `CHOICES`, torch's choice stays.
    """
    if not any(os.environ.get(name) == "1" for name in CHOICES):
        torch.backends.cuda.enable_cudnn_sdp(False)  # sets a flag without starting CUDA
