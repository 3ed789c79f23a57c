"""Which tokens of a hypothesis were copied, and from where."""

from typing import Any, Dict, List, Optional, Sequence

import torch
from fairseq.data.data_utils import collate_tokens
from torch import Tensor


@torch.no_grad()
def find_copied(
    model: Any, net_input: Dict[str, Tensor], hypotheses: Sequence[Tensor]
) -> List[List[Optional[int]]]:
    """For each token of a hypothesis the source position, from 0, that it was copied from, or None.

    A token is copied where to copy it is more probable than to generate it. Of the positions that
    hold it, the one is named that the decoder reads most.

    Args:
        model: in evaluation.
        net_input: of B sentences, as a batch of fairseq has it.
        hypotheses: B x tokens, the end symbol among them.

    Returns:
        As many entries for each hypothesis as it has tokens; none where the model does not copy.
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
    copied = (same & (odds > generated)).any(dim=2)
    start = source.eq(pad).long().cumprod(dim=1).sum(dim=1)  # padding on the left
    position = attention.masked_fill(~same, -1.0).argmax(dim=2) - start.unsqueeze(1)
    return [
        [p if c else None for p, c in zip(positions[: len(tokens)], some)]
        for positions, some, tokens in zip(position.tolist(), copied.tolist(), hypotheses)
    ]
