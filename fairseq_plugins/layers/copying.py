"""Copy source words: the pointer-generator of See, Liu & Manning (ACL 2017), on subwords."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from fairseq.dataclass import FairseqDataclass
from torch import Tensor, nn

from fairseq_plugins.options.fields import option

from .packed import take_rows


@dataclass
class CopyOptions(FairseqDataclass):
    copy_attention: bool = option(
        False,
        "copy source words: mix the softmax over the vocabulary with the decoder's attention to "
        "the source. Source and target must share one dictionary",
    )
    copy_next: bool = option(
        False,
        "when copying, also continue with the source word after the last written word: phrases are "
        "copied after far fewer updates",
        needs="copy_attention",
    )


class CopySpec(NamedTuple):
    """Copying in one decoder: the sizes of the gate, and whether phrases are copied."""

    state_dim: int
    input_dim: int
    next: bool = False  # whether to continue after the last written word


class Copies(NamedTuple):
    """What `CopyAttention` adds to the logits of N target tokens of B sentences.

    A word has one of its positions in the source sentence; this holds the log-odds of
    that word. All other positions have log-odds of -inf.
    """

    log_generate: Tensor  # N, log g
    log_odds: Tensor  # N x T, log((1 - g) / g sum_{i: src_i = v} a_i) at the position of word v
    words: Tensor  # B x T, the source
    sentence: Tensor  # N, from 0 to B - 1


class CopyAttention(nn.Module):
    """The probability of a word is a mixture of generating and copying it (eq. 8 and 9)::

        g    = sigmoid(w . [s; x] + b)
        P(y) = g softmax(V s)_y + (1 - g) sum_{i: src_i = y} a_i

    s is the decoder's output, which the projection V reads; x is the input of the decoder's first
    layer; a is the cross-attention of the last decoder layer, averaged over its heads, before
    dropout. a covers all T source positions, also if the encoder pools, and is zero at padding. g
    is initially 1/2.

    With `spec.next`, copying can continue after the last written word. n is a over the positions
    that follow a word equal to y_{t-1}; the first position follows the end symbol that begins y::

        m    = sigmoid(w' . [s; x] + b'), or 0 if there is no such position
        n_i  = [src_{i-1} = y_{t-1}] (a_i + 1e-4) / sum_j [src_{j-1} = y_{t-1}] (a_j + 1e-4)

    and (1 - m) a + m n replaces a. Otherwise attention must learn positions for this, and an
    encoder that only adds global vectors of the whole source, such as Fastformer's, does not tell a
    position which word precedes it. m is initially 1/2.

    P is represented by the logits V s and, per source position, the log-odds of copying::

        log P(v) = log g + log p_v + log(1 + exp(o_v - log p_v)),    p = softmax(V s)
        o_v      = log((1 - g) / g sum_{i: src_i = v} a_i)

    In this form no probability underflows, and words outside the source cost nothing.

    In training, all subwords missing from the dictionary are one word, <unk>. In search, each of
    them has its own number, and copying continues after that one (see `torch_backend.unknown`).
    """

    def __init__(self, spec: CopySpec):
        super().__init__()
        self.gate = nn.Linear(spec.state_dim + spec.input_dim, 1)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)
        self.next: nn.Linear | None = None
        if spec.next:
            self.next = nn.Linear(spec.state_dim + spec.input_dim, 1)
            nn.init.zeros_(self.next.weight)
            nn.init.zeros_(self.next.bias)

    def forward(
        self,
        state: Tensor,
        inputs: Tensor,
        attention: Tensor,
        words: Tensor,
        positions: Tensor,
        before: Tensor | None = None,
        previous: Tensor | None = None,
    ) -> dict[str, list[Tensor | None]]:
        """The entries of a decoder's "extra" that `mix` and `copies_of` need.

        Args:
            state: ... x d, the decoder's output (s) for target tokens in any layout.
            inputs: ... x d', the input of its first layer (x).
            attention: ... x T (a).
            words: B x T, the source tokens, integers.
            positions: `find_word_positions` of `words`, in a shape that expands to that of
                `attention`.
            before, previous: for `spec.next` only: `find_before` of `words`, in such a shape too,
                and ..., the decoder's input tokens.

        Returns:
            "attn": ... x T, the attention that copies; "copy_log_generate": ...; "copy_log_odds":
            ... x T; "copy_words": B x T. Attention and logarithms are in float32 (float64 for
            float64).
        """
        exact = torch.promote_types(attention.dtype, torch.float32)
        both = torch.cat([state, inputs], dim=-1)
        gate = self.gate(both).to(exact)
        attention = attention.to(exact)
        if self.next is not None:
            assert before is not None and previous is not None, "--copy-next needs both"
            follows = before.eq(previous.unsqueeze(-1))
            following = (attention + 1e-4) * follows
            total = following.sum(dim=-1, keepdim=True)
            share = self.next(both).to(exact).sigmoid() * (total > 0)
            attention = (1 - share) * attention + share / total.clamp(min=1e-4) * following
        positions = positions.expand_as(attention)
        mass = torch.zeros_like(attention).scatter_add(-1, positions, attention)
        nothing = mass <= 0
        log_mass = mass.masked_fill(nothing, 1.0).log().masked_fill(nothing, -float("inf"))
        log_generate: list[Tensor | None] = [F.logsigmoid(gate).squeeze(-1)]
        log_odds: list[Tensor | None] = [log_mass - gate]
        source: list[Tensor | None] = [words]
        copying: list[Tensor | None] = [attention]
        return {
            "attn": copying,
            "copy_log_generate": log_generate,
            "copy_log_odds": log_odds,
            "copy_words": source,
        }

    def mix(self, logits: Tensor, extra: dict[str, list[Tensor | None]], log_probs: bool) -> Tensor:
        """P (log P with `log_probs`) from logits, both B x t x V, in the dtype of the log-odds."""
        log_generate, log_odds = extra["copy_log_generate"][0], extra["copy_log_odds"][0]
        words = extra["copy_words"][0]
        assert log_generate is not None and log_odds is not None and words is not None
        generated = F.log_softmax(logits.to(log_odds.dtype), dim=-1)
        words = words.unsqueeze(1).expand_as(log_odds)
        copied = -F.logsigmoid(generated.gather(2, words) - log_odds)
        mixed = (generated + log_generate.unsqueeze(-1)).scatter_add(2, words, copied)
        return mixed if log_probs else mixed.exp()


def find_before(words: Tensor, pad: int, end: int) -> Tensor:
    """The word before each position, for a `CopyAttention` that continues phrases.

    Args:
        words: B x T, int64, padded on either side.
        pad, end: the symbols.

    Returns:
        B x T, int64: `end` at the first word of a sentence, and -1 (no word) at padding.
    """
    before = F.pad(words[:, :-1], (1, 0), value=end)
    return before.masked_fill(before.eq(pad), end).masked_fill(words.eq(pad), -1)


def find_word_positions(words: Tensor, vocabulary: int) -> Tensor:
    """For each position, one position of the sentence that holds the same word.

    Args:
        words: B x T, int64, from 0 to `vocabulary` - 1.
        vocabulary: V; a B x V table is allocated.

    Returns:
        B x T, int64. Equal words of a sentence have equal positions.
    """
    positions = torch.arange(words.size(1), device=words.device).expand_as(words)
    position = torch.zeros(words.size(0), vocabulary, dtype=torch.long, device=words.device)
    return position.scatter_(1, words, positions).gather(1, words)


def copies_of(extra: Any, rows: Tensor | None, sentence: Tensor) -> Copies | None:
    """The `Copies` of some target tokens, or None if the model does not copy.

    Args:
        extra: the second result of the model's forward.
        rows: N rows of the log-odds in `extra`, flattened to ... x T; ascending, int64. None for
            all.
        sentence: N, the sentence of each of these tokens.
    """
    if not isinstance(extra, dict) or "copy_log_odds" not in extra:
        return None
    log_generate = extra["copy_log_generate"][0].flatten()
    log_odds = extra["copy_log_odds"][0].flatten(0, -2)
    if rows is not None:
        log_generate, log_odds = take_rows(log_generate, rows), take_rows(log_odds, rows)
    return Copies(log_generate, log_odds, extra["copy_words"][0], sentence)
