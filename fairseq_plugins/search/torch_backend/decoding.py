"""Decoder steps of a beam search, with one cache per sentence that all its hypotheses share."""

import functools
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor

from fairseq_plugins.layers.copying import CopyAttention, find_before, find_word_positions
from fairseq_plugins.layers.decoder_layer import embed, has_standard_layers, run_decoder_layer
from fairseq_plugins.layers.kernels import is_on_gpu
from fairseq_plugins.layers.projections import concatenate, is_linear

from .unknown import to_known

# search steps that fit into the first cache of keys and values; a full cache doubles
FIRST_STEPS = 32
# fused attention on a GPU copies a mask whose rows are no multiple of 16 bytes
ALIGNED = 8


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

    All its tensors are attributes of it or of `parts`, so that a captured step finds them.

    Args:
        decoder: in evaluation mode; `can_decode_in_beams` must hold for it.
        encoder_out: the encoder's output, one row per sentence.
        beam_size: n.
        numbers: B x S, the source with numbers for unknown subwords (see `unknown`); None if
            hypotheses have no such tokens.
        masked: whether the source has a mask also if it has no padding.
    """

    def __init__(
        self,
        decoder: Any,
        encoder_out: dict[str, list[Tensor]],
        beam_size: int,
        numbers: Tensor | None = None,
        masked: bool = False,
    ) -> None:
        self.decoder = decoder
        self.copying: CopyAttention | None = getattr(decoder, "copying", None)
        self.beam_size = beam_size
        self.has_numbers = numbers is not None
        memory = encoder_out["encoder_out"][0]  # S x B x d
        self.sentences = memory.size(1)
        copies = self.copying is not None
        self.source = [
            _SourceAttention(layer.encoder_attn, memory, copies and layer is decoder.layers[-1])
            for layer in decoder.layers
        ]
        self.capacity = FIRST_STEPS  # the last step that there is room for
        places = self._places()
        self.target = [
            _TargetAttention(layer.self_attn, self.sentences, places, memory)
            for layer in decoder.layers
        ]
        # added to the scores before softmax: 0 at slots of the hypothesis, -inf at others
        self.visible = memory.new_full((self.sentences, beam_size, places), float("-inf"))
        self.own_place = memory.new_full((beam_size, beam_size), float("-inf")).fill_diagonal_(0.0)
        self.own_slots = torch.arange(1, 1 + beam_size, device=memory.device)  # of step 1
        self.positions: Tensor | None = None  # embedded, steps x d
        if self.copying is not None:
            self.words = encoder_out["src_tokens"][0]  # B x S
            self.places = find_word_positions(self.words, decoder.vocabulary).unsqueeze(1)
            followed = self.words if numbers is None else numbers
            before = find_before(followed, decoder.padding_idx, decoder.end)
            self.before = before.unsqueeze(1)
        self.source_visible: Tensor | None = None  # B x 1 x 1 x S
        if encoder_out["encoder_padding_mask"]:
            padding = encoder_out["encoder_padding_mask"][0]
            if masked or bool(padding.any()):
                visible = torch.zeros_like(padding, dtype=memory.dtype)
                visible.masked_fill_(padding, float("-inf"))
                self.source_visible = visible[:, None, None]

    @property
    def parts(self) -> list["_Attention"]:
        """The layers' attentions, which hold further state."""
        return [*self.source, *self.target]

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
            for attention in self.parts:
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
        slots: int | Tensor
        place: int | Tensor
        if at is None:
            self.reserve(number)
            slots, place = 0 if number == 0 else 1 + (number - 1) * self.beam_size, number
            used = slots + width
            if is_on_gpu(self.visible):
                used = _round_up(used)
        else:
            used = self.visible.size(2)
            slots, place = (at - 1) * self.beam_size + self.own_slots, at
        own = self.own_place if number else self.own_place.new_zeros(self.beam_size, 1)
        write_slots(self.visible, 2, slots, own.expand(self.sentences, -1, -1))
        x = inputs = self._embed(previous, place)
        visible = self.visible[:, None, :width, :used]
        for layer, target, source in zip(decoder.layers, self.target, self.source):
            x, weights = run_decoder_layer(  # weights: B x h x n x S, of the last layer
                layer,
                x,
                functools.partial(target, slots=slots, visible=visible),
                functools.partial(source, visible=self.source_visible),
            )
        if decoder.layer_norm is not None:
            x = decoder.layer_norm(x)
        if decoder.project_out_dim is not None:
            x = decoder.project_out_dim(x)
        x = x.view(self.sentences, width, -1)
        extra: dict[str, list[Tensor | None]] = {}
        if self.copying is not None:
            assert weights is not None
            attention = weights.mean(dim=1)
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
        if number > self.capacity:
            while number > self.capacity:
                self.capacity *= 2
            more = self._places() - self.visible.size(2)
            self.visible = F.pad(self.visible, (0, more), value=float("-inf"))
            for attention in self.target:
                attention.enlarge(more)
        if self.decoder.embed_positions is None:
            return
        if self.positions is None or number >= self.positions.size(0):
            count = min(self.capacity + 1, self.decoder.max_positions())
            no_padding = torch.full(
                (1, count), self.decoder.padding_idx + 1, device=self.visible.device
            )
            self.positions = self.decoder.embed_positions(no_padding)[0]

    def _places(self) -> int:
        """Slots of the first step and of `capacity` later ones, or a few more."""
        return _round_up(1 + self.capacity * self.beam_size)

    def _embed(self, previous: Tensor, number: int | Tensor) -> Tensor:
        """Embed tokens at the position of a step: rows to rows x d."""
        position = self.positions
        if position is not None and isinstance(number, Tensor):
            position = position.index_select(0, number)
        elif position is not None:
            position = position[number]
        if self.has_numbers:
            previous = to_known(previous, self.decoder.dictionary)
        return embed(self.decoder, self.decoder.embed_tokens(previous), position)


class _Attention:
    """Attention of hypotheses to cached keys and values of their sentence.

    The cache is 2 x B x h x slots x s: keys, then values.
    """

    cache: Tensor

    def __init__(self, attention: Any, weighs: bool = False) -> None:
        self.attention, self.weighs = attention, weighs

    def keep(self, sentences: Tensor) -> None:
        self.cache = self.cache.index_select(1, sentences)

    def heads(self, x: Tensor) -> Tensor:
        """(B n) x d to B x h x n x s."""
        _, sentences, heads, _, size = self.cache.shape
        return x.view(sentences, -1, heads, size).transpose(1, 2)

    def attend(
        self, queries: Tensor, places: int, visible: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Attend to the first `places` slots.

        Args:
            queries: B x h x n x s.
            places: number of slots.
            visible: 0 or -inf, in a shape that expands to B x h x n x places; None for no mask.

        Returns:
            (B n) x d before the output projection, and with `weighs` the weights,
            B x h x n x places, in float32 at least.
        """
        attention, weights = self.attention, None
        keys, values = self.cache[0, :, :, :places], self.cache[1, :, :, :places]
        if self.weighs:
            scores = torch.matmul(queries * attention.scaling, keys.transpose(2, 3))
            scores = scores if visible is None else scores + visible
            # float32, as fairseq's softmax
            exact = torch.promote_types(scores.dtype, torch.float32)
            weights = torch.softmax(scores, dim=-1, dtype=exact)
            read = torch.matmul(weights.type_as(values), values)
        else:
            read = F.scaled_dot_product_attention(
                queries, keys, values, attn_mask=visible, scale=attention.scaling
            )
        read = read.transpose(1, 2)
        return read.reshape(-1, read.size(2) * read.size(3)), weights


class _SourceAttention(_Attention):
    """Cross-attention: keys and values are computed once."""

    def __init__(self, attention: Any, memory: Tensor, weighs: bool) -> None:
        super().__init__(attention, weighs)
        # S x B x d -> B x h x S x s
        self.cache = torch.stack(
            [
                projection(memory)
                .view(*memory.shape[:2], attention.num_heads, -1)
                .permute(1, 2, 0, 3)
                for projection in (attention.k_proj, attention.v_proj)
            ]
        )

    def __call__(self, x: Tensor, visible: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return self.attend(self.heads(self.attention.q_proj(x)), self.cache.size(3), visible)


class _TargetAttention(_Attention):
    """Self-attention of each hypothesis to its own past: each step adds keys and values.

    On a GPU queries, keys and values are one product.
    """

    def __init__(self, attention: Any, sentences: int, places: int, like: Tensor) -> None:
        super().__init__(attention)
        # attention reads all slots: their content times 0 must be 0
        self.cache = like.new_zeros(2, sentences, attention.num_heads, places, attention.head_dim)
        self.projections = attention.q_proj, attention.k_proj, attention.v_proj
        self.weight: Tensor | None = None
        self.bias: Tensor | None = None
        if is_on_gpu(like) and all(map(is_linear, self.projections)):
            self.weight, self.bias = concatenate(self.projections)

    def enlarge(self, places: int) -> None:
        self.cache = F.pad(self.cache, (0, 0, 0, places))

    def __call__(
        self, x: Tensor, slots: int | Tensor, visible: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        if self.weight is None:
            queries, *new = (self.heads(projection(x)) for projection in self.projections)
            for which, added in enumerate(new):
                write_slots(self.cache[which], 2, slots, added)
        else:
            _, sentences, heads, _, size = self.cache.shape
            product = F.linear(x, self.weight, self.bias)
            product = product.view(sentences, -1, 3, heads, size).permute(2, 0, 3, 1, 4)
            queries = product[0]
            write_slots(self.cache, 3, slots, product[1:])
        return self.attend(queries, visible.size(3), visible)


def write_slots(to: Tensor, dim: int, slots: int | Tensor, new: Tensor) -> None:
    """Write slots of a dimension: from the first one on, or those on the device (int64)."""
    if isinstance(slots, Tensor):
        to.index_copy_(dim, slots, new)
    else:
        to.narrow(dim, slots, new.size(dim)).copy_(new)


def _round_up(places: int) -> int:
    return -(-places // ALIGNED) * ALIGNED
