"""Decoder steps of a beam search, with one cache per sentence that all its hypotheses share."""

import functools
from typing import Any

import torch
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor

from fairseq_plugins.layers.copying import CopyAttention, find_before, find_word_positions
from fairseq_plugins.layers.decoder_layer import embed, has_standard_layers, run_decoder_layer

from .unknown import to_known

# search steps that fit into the first cache of keys and values; a full cache doubles
FIRST_STEPS = 32
Slots = slice | Tensor


def can_decode_in_beams(decoder: Any) -> bool:
    """Whether `BeamDecoding` computes the same as this decoder in evaluation.

    It supports fairseq's Transformer decoder with any feed-forward network. It does not support
    extensions of decoder layers (see `has_standard_layers`), decoders without cross-attention, or
    dropout during inference.
    """
    dropouts = [module for module in decoder.modules() if isinstance(module, FairseqDropout)]
    return (
        has_standard_layers(decoder)
        and len(decoder.layers) > 0
        and all(layer.encoder_attn is not None for layer in decoder.layers)
        and not any(dropout.apply_during_inference for dropout in dropouts)
    )


class BeamDecoding:
    """The state of one decoder in the beam search of one batch: B sentences, n hypotheses each.

    fairseq's caches have one row per hypothesis, and every step copies them, because hypotheses
    continue others. Here caches have one row per sentence:

    - The source is projected to keys and values once per sentence; all its hypotheses read them.
    - Keys and values of the target stay in the slots where they were written. The first step writes
      slot 0, which all hypotheses share; each later step writes n slots. The mask `visible` shows
      each hypothesis the slots of its own past. Only this mask is copied when a hypothesis
      continues another. Attention computes scores for all slots of a sentence, and adds the mask.
    - The first step is the same for all hypotheses and is computed once per sentence.

    Args:
        decoder: in evaluation mode; `can_decode_in_beams` must hold for it.
        encoder_out: the encoder's output, one row per sentence.
        beam_size: n.
        numbers: B x S, the source with numbers for unknown subwords (see `unknown`); None if
            hypotheses have no such tokens.
    """

    def __init__(
        self,
        decoder: Any,
        encoder_out: dict[str, list[Tensor]],
        beam_size: int,
        numbers: Tensor | None = None,
    ) -> None:
        self.decoder = decoder
        self.copying: CopyAttention | None = getattr(decoder, "copying", None)
        self.beam_size = beam_size
        self.has_numbers = numbers is not None
        memory = encoder_out["encoder_out"][0]  # S x B x d
        self.sentences = memory.size(1)
        self.source = [_SourceAttention(layer.encoder_attn, memory) for layer in decoder.layers]
        self.target = [
            _TargetAttention(layer.self_attn, self.sentences, 1 + FIRST_STEPS * beam_size, memory)
            for layer in decoder.layers
        ]
        # added to the scores before softmax: 0 at slots of the hypothesis, -inf at others
        self.visible = memory.new_full(  # B x n x slots
            (self.sentences, beam_size, 1 + FIRST_STEPS * beam_size), float("-inf")
        )
        self.own_place = memory.new_full((beam_size, beam_size), float("-inf")).fill_diagonal_(0.0)
        self.own_slots = torch.arange(1, 1 + beam_size, device=memory.device)  # of step 1
        self.positions: Tensor | None = None  # embedded, steps x d
        if self.copying is not None:
            self.words = encoder_out["src_tokens"][0]  # B x S
            self.places = find_word_positions(self.words, decoder.vocabulary).unsqueeze(1)
            followed = self.words if numbers is None else numbers
            before = find_before(followed, decoder.padding_idx, decoder.end)
            self.before = before.unsqueeze(1)
        self.source_visible: Tensor | None = None  # B x 1 x S
        if encoder_out["encoder_padding_mask"]:
            padding = encoder_out["encoder_padding_mask"][0]
            if bool(padding.any()):
                visible = torch.zeros_like(padding, dtype=memory.dtype)
                self.source_visible = visible.masked_fill_(padding, float("-inf")).unsqueeze(1)

    def reorder(self, order: Tensor) -> None:
        """Let hypothesis i continue hypothesis `order[i]`, and drop finished sentences.

        Args:
            order: (B' n), int64, indices of the B n hypotheses. All n entries of a remaining
                sentence are hypotheses of that sentence.
        """
        order = order.view(-1, self.beam_size)
        if order.size(0) != self.sentences:
            kept = torch.div(order[:, 0], self.beam_size, rounding_mode="floor")
            self.sentences = order.size(0)
            for attention in self.source + self.target:
                attention.keep(kept)
            if self.copying is not None:
                self.words = self.words.index_select(0, kept)
                self.places = self.places.index_select(0, kept)
                self.before = self.before.index_select(0, kept)
            if self.source_visible is not None:
                self.source_visible = self.source_visible.index_select(0, kept)
        visible = self.visible.flatten(0, 1).index_select(0, order.flatten())
        self.visible = visible.view(self.sentences, self.beam_size, -1)

    def step(
        self, previous: Tensor, number: int, at: Tensor | None = None
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        """Compute the next step.

        Args:
            previous: (B n), the last token of each hypothesis.
            number: the number of the step, from 0.
            at: the same on the device (one int64), to capture a later step: all slots are computed,
                so that the number may change.

        Returns:
            the same as the decoder's forward, with the hypotheses of a sentence instead of target
            positions: logits, B x n x V (features, B x n x d, with an adaptive softmax), and a
            dictionary with "attn", the attention that copies, B x n x S, and the other entries of
            `CopyAttention` if the model copies. In the first step n is 1.
        """
        decoder = self.decoder
        if number == 0:
            previous = previous[:: self.beam_size]
        width = previous.size(0) // self.sentences  # n, or 1 in the first step
        self.reserve(number)
        slots: Slots
        place: int | Tensor
        if at is None:
            start = 0 if number == 0 else 1 + (number - 1) * self.beam_size
            used = start + width
            slots, place = slice(start, used), number
        else:
            used = self.visible.size(2)
            slots, place = (at - 1) * self.beam_size + self.own_slots, at
        own = self.own_place if number else self.own_place.new_zeros(self.beam_size, 1)
        _write(self.visible, slots, own.expand(self.sentences, -1, -1))
        x = inputs = self._embed(previous, place)
        heads = decoder.layers[0].self_attn.num_heads
        visible = _for_each_head(self.visible[:, :width, :used], heads)
        source_visible = None
        if self.source_visible is not None:
            source_visible = _for_each_head(self.source_visible.expand(-1, width, -1), heads)
        for layer, target, source in zip(decoder.layers, self.target, self.source):
            x, weights = run_decoder_layer(  # weights: (B h) x n x S
                layer,
                x,
                functools.partial(target, slots=slots, visible=visible),
                functools.partial(source, visible=source_visible),
            )
        assert weights is not None
        if decoder.layer_norm is not None:
            x = decoder.layer_norm(x)
        if decoder.project_out_dim is not None:
            x = decoder.project_out_dim(x)
        x = x.view(self.sentences, width, -1)
        extra: dict[str, list[Tensor | None]] = {}
        if self.copying is not None:
            attention = weights.view(self.sentences, heads, width, -1).mean(dim=1)
            inputs = inputs.view(self.sentences, width, -1)
            of_source = (self.words, self.places, self.before)
            previous = previous.view(self.sentences, width)
            extra = {"attn": [attention]}
            extra.update(self.copying(x, inputs, attention, *of_source, previous))
        return decoder.output_layer(x), extra

    def rows(self, x: Tensor) -> Tensor:
        """Flatten a result of `step`, B x n x m (B x 1 x m in the first step), to (B n) x m."""
        return x.expand(-1, self.beam_size, -1).contiguous().flatten(0, 1)

    def reserve(self, number: int) -> None:
        """Make room for a step: in the caches, the mask, and the table of positions."""
        while 1 + number * self.beam_size > self.visible.size(2):
            unseen = torch.full_like(self.visible, float("-inf"))
            self.visible = torch.cat([self.visible, unseen], dim=2)
            for attention in self.target:
                attention.double()
        if self.decoder.embed_positions is None:
            return
        if self.positions is None or number >= self.positions.size(0):
            count = min(max(2 * number, FIRST_STEPS), self.decoder.max_positions())
            no_padding = torch.full(
                (1, count), self.decoder.padding_idx + 1, device=self.visible.device
            )
            self.positions = self.decoder.embed_positions(no_padding)[0]

    def room(self) -> tuple[int, int]:
        """The sizes that `reserve` enlarges: numbers of slots and of positions."""
        return self.visible.size(2), 0 if self.positions is None else self.positions.size(0)

    def _embed(self, previous: Tensor, number: int | Tensor) -> Tensor:
        """Embed tokens at the position of a step: rows to rows x d."""
        position = self.positions
        if position is not None and isinstance(number, Tensor):
            position = position.index_select(0, number)
        elif position is not None:
            position = position[number]
        if self.has_numbers:
            previous = to_known(previous, self.decoder.dictionary)
        return embed(self.decoder, previous, position)


class _Attention:
    """Attention of hypotheses to cached keys and values of their sentence, B x h x slots x s."""

    keys: Tensor
    values: Tensor

    def __init__(self, attention: Any) -> None:
        self.attention = attention

    def keep(self, sentences: Tensor) -> None:
        self.keys = self.keys.index_select(0, sentences)
        self.values = self.values.index_select(0, sentences)

    def attend(self, x: Tensor, places: int, visible: Tensor | None) -> tuple[Tensor, Tensor]:
        """Attend to the first `places` slots.

        Args:
            x: (B n) x d.
            places: number of slots.
            visible: (B h) x n x places, 0 or -inf, or None for no mask.

        Returns:
            (B n) x d, and the weights, (B h) x n x places, in float32 at least.
        """
        attention = self.attention
        sentences, heads, _, size = self.keys.shape
        keys = self.keys[:, :, :places].flatten(0, 1)
        values = self.values[:, :, :places].flatten(0, 1)
        queries = attention.q_proj(x).mul_(attention.scaling)
        queries = queries.view(sentences, -1, heads, size).transpose(1, 2).flatten(0, 1)
        if visible is None:
            scores = torch.bmm(queries, keys.transpose(1, 2))
        else:
            scores = torch.baddbmm(visible, queries, keys.transpose(1, 2))
        # float32, as fairseq's softmax
        exact = torch.promote_types(scores.dtype, torch.float32)
        weights = torch.softmax(scores, dim=-1, dtype=exact)
        read = torch.bmm(weights.type_as(values), values).view(sentences, heads, -1, size)
        return attention.out_proj(read.transpose(1, 2).reshape(x.shape)), weights


class _SourceAttention(_Attention):
    """Cross-attention: keys and values are computed once."""

    def __init__(self, attention: Any, memory: Tensor) -> None:
        super().__init__(attention)
        # S x B x d -> B x h x S x s
        self.keys, self.values = (
            projection(memory)
            .view(*memory.shape[:2], attention.num_heads, -1)
            .permute(1, 2, 0, 3)
            .contiguous()
            for projection in (attention.k_proj, attention.v_proj)
        )

    def __call__(self, x: Tensor, visible: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.attend(x, self.keys.size(2), visible)


class _TargetAttention(_Attention):
    """Self-attention of each hypothesis to its own past: each step adds keys and values."""

    def __init__(self, attention: Any, sentences: int, places: int, like: Tensor) -> None:
        super().__init__(attention)
        shape = (sentences, attention.num_heads, places, attention.head_dim)
        # a captured step reads all slots: their content times 0 must be 0
        self.keys, self.values = like.new_zeros(shape), like.new_zeros(shape)

    def double(self) -> None:
        self.keys = torch.cat([self.keys, torch.zeros_like(self.keys)], dim=2)
        self.values = torch.cat([self.values, torch.zeros_like(self.values)], dim=2)

    def __call__(self, x: Tensor, slots: Slots, visible: Tensor) -> tuple[Tensor, Tensor]:
        sentences, heads, _, size = self.keys.shape
        for cache, projection in (
            (self.keys, self.attention.k_proj),
            (self.values, self.attention.v_proj),
        ):
            new = projection(x).view(sentences, -1, heads, size).transpose(1, 2)
            _write(cache, slots, new)
        return self.attend(x, visible.size(2), visible)


def _write(to: Tensor, slots: Slots, new: Tensor) -> None:
    """Write slots, which are the third dimension."""
    if isinstance(slots, slice):
        to[:, :, slots] = new
    else:
        to.index_copy_(2, slots, new)


def _for_each_head(visible: Tensor, heads: int) -> Tensor:
    """Repeat a mask for each head: B x n x places to (B h) x n x places."""
    return visible.unsqueeze(1).expand(-1, heads, -1, -1).flatten(0, 1)
