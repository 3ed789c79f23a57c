"""Find the copied tokens of a hypothesis and their source positions."""

from typing import Any, Dict, List, Optional, Sequence

import torch
from fairseq.data.data_utils import collate_tokens
from torch import Tensor


@torch.no_grad()
def find_copied(
    model: Any, net_input: Dict[str, Tensor], hypotheses: Sequence[Tensor]
) -> List[List[Optional[int]]]:
    """Find the source position of each copied token.

    A token counts as copied if copying it is more probable than generating it, and an unknown one
    always. If several source positions hold the token, the result is the one with the highest
    attention weight.

    Args:
        model: in evaluation mode.
        net_input: the "net_input" of a fairseq batch of B sentences.
        hypotheses: B tensors of tokens, int64, each with its end symbol.

    Returns:
        for each hypothesis one entry per token: the source position, counted from 0 without
        padding, or None for a generated token. The lists are empty if the model does not copy.
    """
    if getattr(model.decoder, "copying", None) is None:
        return [[] for _ in hypotheses]
    pad, end = model.decoder.dictionary.pad(), model.decoder.dictionary.eos()
    target = collate_tokens(list(hypotheses), pad)
    previous = target.roll(1, 1)
    previous[:, 0] = end
    source = net_input["src_tokens"]
    encoder_out = model.encoder(source, net_input["src_lengths"])
    logits, extra = model.decoder(previous, encoder_out)
    odds, attention = extra["copy_log_odds"][0], extra["attn"][0]
    generated = logits.to(odds.dtype).log_softmax(dim=-1).gather(2, target.unsqueeze(2))
    same = source.unsqueeze(1) == target.unsqueeze(2)  # B x t x T
    unknown = target.eq(model.decoder.dictionary.unk()).unsqueeze(2)
    copied = (same & (unknown | (odds > generated))).any(dim=2)
    start = source.eq(pad).long().cumprod(dim=1).sum(dim=1)  # left padding is not counted
    position = attention.masked_fill(~same, -1.0).argmax(dim=2) - start.unsqueeze(1)
    return [
        [p if c else None for p, c in zip(positions[: len(tokens)], flags)]
        for positions, flags, tokens in zip(position.tolist(), copied.tolist(), hypotheses)
    ]
