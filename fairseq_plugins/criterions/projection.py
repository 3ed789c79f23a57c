"""Find the output projection of models whose loss `chunked_loss` can compute."""

import inspect
from typing import Any

from fairseq.models import FairseqDecoder, FairseqLanguageModel
from fairseq.models.transformer import TransformerDecoderBase
from torch import nn

from fairseq_plugins.errors import ConfigurationError

from .wrappers import unwrap

ADAPTIVE = "adaptive_loss --ddp-backend legacy_ddp"  # options that train an adaptive softmax


def _gives_features(model: nn.Module, decoder: nn.Module) -> bool:
    """Whether the model's forward takes `features_only`, or passes it on to the decoder's."""
    reads = decoder if isinstance(model, FairseqLanguageModel) else model
    return "features_only" in inspect.signature(reads.forward).parameters


def _extends_projection(decoder: nn.Module) -> bool:
    """Whether probabilities differ from ``softmax(output_projection(features))`` and known
    mixtures.

    `Decoder` of this package is known: `chunked_loss` also computes the loss of its copying.
    """
    known = (__name__.split(".")[0], FairseqDecoder.__module__, TransformerDecoderBase.__module__)
    for name in ("output_layer", "get_normalized_probs", "get_normalized_probs_scriptable"):
        method = getattr(decoder, name, None)
        if method is not None and not method.__module__.startswith(known):
            return True
    return False


def find_projection(model: Any, passes: int = 1) -> nn.Linear:
    """The output projection of a model whose loss `chunked_loss` can compute.

    The forward of such a model takes `features_only=True`. Its decoder ends in an
    `output_projection` of type `nn.Linear`, and no wrapper shards its parameters. With two passes,
    the model must not copy.

    Args:
        model: as fairseq passes it to a criterion, wrapped or not.
        passes: number of passes of the objective.

    Raises:
        ConfigurationError: the model does not meet these conditions; the message says which.
    """
    *wrappers, inner = unwrap(model)
    decoder = getattr(inner, "decoder", inner)
    reason = None
    if getattr(decoder, "adaptive_softmax", None) is not None:
        reason = "--adaptive-softmax-cutoff leaves no projection to the whole vocabulary"
    elif type(getattr(decoder, "output_projection", None)) is not nn.Linear:
        reason = f"{type(decoder).__name__} has no output_projection that is an nn.Linear"
    elif not _gives_features(inner, decoder):
        reason = f"{type(inner).__name__} does not return features without projecting them"
    elif _extends_projection(decoder):
        reason = f"{type(decoder).__name__} computes its own probabilities"
    elif passes > 1 and getattr(decoder, "copying", None) is not None:
        reason = "the divergence of two mixtures needs all their probabilities"
    elif any(type(m).__name__ == "FullyShardedDataParallel" for m in (model, *model.modules())):
        reason = "--ddp-backend fully_sharded splits the projection's weight"
    elif any(getattr(m, "find_unused_parameters", False) for m in wrappers) and not any(
        module is not decoder.output_projection
        and any(p is decoder.output_projection.weight for p in module.parameters(recurse=False))
        for module in inner.modules()
    ):
        # DDP searches the model's output for used parameters, but the projection runs after that
        reason = (
            "--find-unused-parameters does not see an output projection of its own, which "
            "--share-decoder-input-output-embed avoids"
        )
    if reason is not None:
        instead = "label_smoothed_cross_entropy"
        if getattr(decoder, "adaptive_softmax", None) is not None:
            instead = ADAPTIVE
        raise ConfigurationError(
            f"--criterion label_smoothed_cross_entropy_fused cannot train this model: {reason}; "
            f"use --criterion {instead}"
        )
    return decoder.output_projection
