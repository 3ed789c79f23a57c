"""Embeddings of whole words changed from outside of a model."""

from contextlib import contextmanager
from typing import Any, Callable, Iterator, Set, Tuple

from torch import Tensor, nn

from fairseq_plugins.errors import ConfigurationError


@contextmanager
def scale_embeddings(model: Any, draw: Callable[[Tensor], Tensor], kept: int) -> Iterator[None]:
    """Within this, token embeddings of encoder and decoder are multiplied, one factor a token.

    A hook of the embeddings does it, so that every encoder and decoder will do, whether it embeds
    B x T tokens or the real ones alone. One module that both sides share is called twice, and draws
    twice. Positions are embedded as ever, and layers that are computed again in backward see the
    same embeddings.

    Args:
        model: as a criterion gets it, wrapped or not.
        draw: gives the factors of N tokens, in the order of the batch.
        kept: a symbol whose embedding stays.

    Raises:
        ConfigurationError: an encoder or a decoder without `embed_tokens`.
    """
    inner = model
    while isinstance(getattr(inner, "module", None), nn.Module):
        inner = inner.module
    sides = [getattr(inner, side, None) for side in ("encoder", "decoder")]
    embeddings: Set[Any] = {getattr(side, "embed_tokens", None) for side in sides}
    if None in embeddings:
        raise ConfigurationError(
            f"{type(inner).__name__} cannot lose words, as SimCut and --word-dropout ask for: its "
            "encoder or decoder has no embed_tokens; use --criterion "
            "label_smoothed_cross_entropy_rdrop, or leave --word-dropout out"
        )

    def scale(module: nn.Module, args: Tuple[Tensor], embedded: Tensor) -> Tensor:
        tokens = args[0].reshape(-1)
        factors = draw(tokens).masked_fill(tokens == kept, 1.0)
        return embedded * factors.view(*args[0].shape, 1).to(embedded.dtype)

    handles = [module.register_forward_hook(scale) for module in embeddings]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
