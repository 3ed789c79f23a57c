"""Scale the token embeddings of any model, with hooks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from fairseq_plugins.errors import ConfigurationError

from .wrappers import unwrap


@contextmanager
def scale_embeddings(model: Any, draw: Callable[[Tensor], Tensor], kept: int) -> Iterator[None]:
    """Context in which each token embedding of encoder and decoder is multiplied by a factor.

    Forward hooks on the embedding modules do this, for every encoder and decoder, whether it embeds
    B x T tokens or only the N real ones. A module that both sides share is called twice and draws
    twice. Position embeddings do not change. Activation checkpointing recomputes layers from the
    same embeddings.

    Args:
        model: the model that a criterion gets, wrapped or not.
        draw: maps N tokens to N factors, both in the order of the batch.
        kept: index of a symbol whose embedding is not scaled.

    Raises:
        ConfigurationError: the encoder or the decoder has no `embed_tokens`.
    """
    inner = unwrap(model)[-1]
    sides = [getattr(inner, side, None) for side in ("encoder", "decoder")]
    embeddings: set[Any] = {getattr(side, "embed_tokens", None) for side in sides}
    if None in embeddings:
        raise ConfigurationError(
            f"{type(inner).__name__} does not support SimCut: its encoder or decoder has no "
            "embed_tokens; use --criterion label_smoothed_cross_entropy_rdrop"
        )

    def scale(module: nn.Module, args: tuple[Tensor], embedded: Tensor) -> Tensor:
        tokens = args[0].reshape(-1)
        factors = draw(tokens).masked_fill(tokens == kept, 1.0)
        return embedded * factors.view(*args[0].shape, 1).to(embedded.dtype)

    handles = [module.register_forward_hook(scale) for module in embeddings]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
