"""Which fused attention torch uses on a GPU."""

import os

import torch

# what torch reads, too: with one of them the choice is the user's
CHOICES = ("TORCH_CUDNN_SDPA_PREFERRED", "TORCH_CUDNN_SDPA_AVOID_RECOMPILE")


def leave_out_cudnn_attention() -> None:
    """Let flash or memory-efficient attention serve all shapes, in place of cuDNN's.

    cuDNN's builds a plan for each new shape, and batches of sentences have a new shape most of the
    time: tens of milliseconds forward and backward for each layer's attention. It is torch's first
    choice on GPUs of compute capability 9 and 10 with torch 2.11 or newer. Other users saw steps
    2.4 times as long (modelscope/FunASR issue 3704); here it is not measured yet. The environment
    variables `CHOICES` leave torch's choice as it is.
    """
    if not any(os.environ.get(name) == "1" for name in CHOICES):
        torch.backends.cuda.enable_cudnn_sdp(False)  # sets a flag, and does not start CUDA
