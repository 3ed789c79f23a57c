"""Whether torch is tracing operations to export a model."""

import torch


def is_traced() -> bool:
    """Whether torch.jit.trace, torch.export or torch.compile is tracing the operations.

    They need plain operations: custom gradients, loops over chunks and cheap random numbers are for
    eager execution only.
    """
    return torch.jit.is_tracing() or torch.compiler.is_dynamo_compiling()
