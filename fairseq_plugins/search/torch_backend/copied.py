"""Find what a hypothesis attends to, its copied tokens and their source positions."""

from collections.abc import Sequence
from typing import Any

import torch
from fairseq.data.data_utils import collate_tokens
from torch import Tensor

from fairseq_plugins.layers.copying import CopyAttention, find_before, find_word_positions

from .unknown import NUMBERS, to_known


@torch.no_grad()
def find_copied(
    model: Any,
    net_input: dict[str, Tensor],
    hypotheses: Sequence[Tensor],
    numbers: Tensor | None = None,
) -> list[list[int | None]]:
    """Find the source position of each copied token.

    A token counts as copied if copying it is more probable than generating it; an unknown subword
    of the source always counts. If several source positions hold the token, the result is the one
    with the highest attention weight.

    Args:
        model: one that copies, in evaluation mode.
        net_input: the "net_input" of a fairseq batch of B sentences.
        hypotheses: B tensors of tokens, int64, each with its end symbol.
        numbers: B x S, the source with numbers for unknown subwords (see `unknown`); None if
            hypotheses have no such tokens.

    Returns:
        for each hypothesis one entry per token: the source position, counted from 0 without
        padding, or None for a generated token.
    """
    decoder = model.decoder
    copying: CopyAttention = decoder.copying
    dictionary = decoder.dictionary
    pad, end = dictionary.pad(), dictionary.eos()
    target = collate_tokens(list(hypotheses), pad)
    previous = target.roll(1, 1)
    previous[:, 0] = end
    words = net_input["src_tokens"]
    source = words if numbers is None else numbers
    encoder_out = model.encoder(words, net_input["src_lengths"])
    x, extra = decoder.extract_features_scriptable(
        to_known(previous, dictionary), encoder_out, None, False
    )
    places = find_word_positions(words, len(dictionary)).unsqueeze(1)
    before = find_before(source, pad, end).unsqueeze(1)
    inputs = extra["inner_states"][0].transpose(0, 1)
    extra = copying(x, inputs, extra["attn"][0], words, places, before, previous)
    odds, attention = extra["copy_log_odds"][0], extra["attn"][0]
    assert odds is not None and attention is not None
    known = to_known(target, dictionary).unsqueeze(2)
    logits = decoder.output_layer(x)
    generated = logits.to(odds.dtype).log_softmax(dim=-1).gather(2, known)
    same = source.unsqueeze(1) == target.unsqueeze(2)  # B x t x T
    unknown = known.eq(dictionary.unk())
    copied = (same & (unknown | (odds > generated))).any(dim=2)
    start = source.eq(pad).long().cumprod(dim=1).sum(dim=1)  # left padding is not counted
    position = attention.masked_fill(~same, -1.0).argmax(dim=2) - start.unsqueeze(1)
    return [
        [p if c else None for p, c in zip(positions[: len(tokens)], flags)]
        for positions, flags, tokens in zip(position.tolist(), copied.tolist(), hypotheses)
    ]


@torch.no_grad()
def find_attention(
    models: Sequence[Any], net_input: dict[str, Tensor], hypotheses: Sequence[Tensor]
) -> list[Any] | None:
    """The cross-attention of the last decoder layer: its heads' mean, and the models'.

    Args:
        models: of any kind; the other arguments are those of `find_copied`.

    Returns:
        for each hypothesis, an array: how much each of its tokens (rows) attends to each token of
        the source (columns), both with their end symbols. A row has the sum 1. None if a model
        returns no attention.
    """
    dictionary, found = models[0].decoder.dictionary, []
    target = collate_tokens(list(hypotheses), dictionary.pad())
    previous = target.roll(1, 1)
    previous[:, 0] = dictionary.eos()
    for model in models:
        _, extra = model(**net_input, prev_output_tokens=to_known(previous, dictionary))
        attention = extra.get("attn") if isinstance(extra, dict) else None
        attention = attention[0] if isinstance(attention, list) else attention
        if attention is None:
            return None
        found.append(attention.float())
    weights = torch.stack(found).mean(dim=0).cpu().numpy()
    real = net_input["src_tokens"].ne(dictionary.pad()).cpu().numpy()
    return [each[: len(line), own] for each, line, own in zip(weights, hypotheses, real)]


def of_rows(sample: dict[str, Any], rows: Sequence[int]) -> dict[str, Tensor]:
    """The "net_input" for `find_copied` of these sentences of a batch."""
    return {key: sample["net_input"][key][rows] for key in ("src_tokens", "src_lengths")}


def number_copied(
    models: Sequence[Any],
    sample: dict[str, Any],
    hypotheses: Sequence[Tensor],
    rows: Sequence[int],
) -> list[Tensor]:
    """Replace <unk> by numbers of unknown subwords, for searches other than `BeamGenerator`.

    Args:
        models: some of them copy; the first of those determines the copied positions.
        sample: a batch, after `number_unknown`.
        hypotheses: as in `find_copied`.
        rows: the sentence of each hypothesis.
    """
    found, numbers = list(hypotheses), sample.get(NUMBERS)
    if numbers is None:
        return found
    copiers = [m for m in models if getattr(m.decoder, "copying", None) is not None]
    dictionary = copiers[0].decoder.dictionary
    unknown, pad = dictionary.unk(), dictionary.pad()
    lacks = numbers.ge(len(dictionary)).any(dim=1).tolist()
    which = [i for i, row in enumerate(rows) if lacks[row] and bool(found[i].eq(unknown).any())]
    if not which:
        return found
    those = [rows[i] for i in which]
    copied = find_copied(copiers[0], of_rows(sample, those), [found[i] for i in which])
    for i, positions in zip(which, copied):
        source = [number for number in numbers[rows[i]].tolist() if number != pad]
        tokens = [
            token if token != unknown or position is None else source[position]
            for token, position in zip(found[i].tolist(), positions)
        ]
        found[i] = found[i].new_tensor(tokens)
    return found
