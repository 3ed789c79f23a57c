"""Number the unknown subwords of a source, which the dictionary lacks.

As in the pointer-generator of See, Liu & Manning (ACL 2017), the vocabulary of a source is V tokens
plus its m distinct unknown subwords, numbered V to V + m - 1. They have no embeddings: the model
reads each of them as <unk>.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_plugins.search.text import number_unknown as number_line

NUMBERS = "source_numbers"  # the entry of a batch
LEAST = 1e-30  # minimum attention to an unknown subword, to avoid 0 / 0


def number_unknown(
    sample: dict[str, Any], dictionary: Any, sources: Sequence[Sequence[str]]
) -> list[list[str]]:
    """Number the unknown subwords of a batch's sources, for `BeamGenerator`.

    Adds "source_numbers" to the batch: B x S, its "src_tokens" with V + j at each position of the
    j-th distinct unknown subword of that sentence. If all subwords are known, adds nothing.

    Args:
        sample: a fairseq batch of B sentences.
        dictionary: fairseq's dictionary, of V tokens.
        sources: the subwords of each sentence; subwords that were truncated are ignored.

    Returns:
        for each sentence its distinct unknown subwords.
    """
    tokens = sample["net_input"]["src_tokens"]
    unknown = tokens.eq(dictionary.unk())
    found: list[list[str]] = [[] for _ in sources]
    if not bool(unknown.any()):
        return found
    numbers = tokens.clone()
    for row in unknown.any(dim=1).nonzero().flatten().tolist():
        real = tokens[row].ne(dictionary.pad())
        line = tokens[row, real].tolist()
        line, found[row] = number_line(sources[row], line, dictionary.unk(), len(dictionary))
        numbers[row, real] = numbers.new_tensor(line)
    sample[NUMBERS] = numbers
    return found


def to_known(tokens: Tensor, dictionary: Any) -> Tensor:
    """The tokens that a model reads: <unk> replaces tokens from V on."""
    return tokens.masked_fill(tokens.ge(len(dictionary)), dictionary.unk())


class UnknownSubwords:
    """The unknown subwords of B sources in beam search.

    The probability that a model gives <unk>, by generating or copying it, is divided among them, in
    proportion to the attention a that copies::

        P(V + j) = P(<unk>) sum_{i: src_i = V + j} a_i / sum_{i: src_i >= V} a_i

    and <unk> itself is impossible if the source has any. With the mixture of `CopyAttention`, this
    is ``(1 - g) sum_{i: src_i = V + j} a_i``, as in the paper, plus a share of ``g softmax(V s)``.

    Args:
        numbers: B x S, see `number_unknown`.
        dictionary: fairseq's dictionary, of V tokens.
        round_up: rounds m up, so that batches share captured steps.
    """

    def __init__(
        self, numbers: Tensor, dictionary: Any, round_up: Callable[[int], int] | None = None
    ) -> None:
        self.unknown = dictionary.unk()
        lacking = numbers - len(dictionary)
        self.count = int(lacking.max()) + 1  # m, of the sentence with the most unknown subwords
        if round_up is not None:
            self.count = round_up(self.count)
        # B x 1 x S, from 0 to m - 1; m at known subwords
        self.place = lacking.masked_fill(lacking < 0, self.count).unsqueeze(1)

    def keep(self, kept: Tensor) -> None:
        """Continue only with these sentences."""
        self.place = self.place.index_select(0, kept)

    def divide(self, log_probs: Tensor, attention: Tensor, forced: Tensor | None) -> Tensor:
        """Log-probabilities, with one column per unknown subword.

        Args:
            log_probs: B x n x V.
            attention: B x n x S, the attention that copies, in float32 at least.
            forced: B, the tokens that must come next, or None. If this is <unk>, <unk> stays.

        Returns:
            B x n x (V + m); -inf for a subword that a sentence does not have.
        """
        mass = attention.new_zeros(*attention.shape[:2], self.count + 1)
        mass.scatter_add_(2, self.place.expand_as(attention), attention + LEAST)
        mass = mass[:, :, : self.count]
        total = mass.sum(dim=2, keepdim=True)
        whole = log_probs[:, :, self.unknown, None]
        divided = whole + mass.log() - total.clamp(min=LEAST).log()
        stays = total.eq(0)
        if forced is not None:
            stays = stays | forced.eq(self.unknown).view(-1, 1, 1)
        found = torch.cat([log_probs, divided.to(log_probs)], dim=2)
        found[:, :, self.unknown].masked_fill_(~stays.squeeze(2), -float("inf"))
        return found
