"""fairseq's ensemble, with decoder caches of one row per sentence instead of per hypothesis."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from fairseq.sequence_generator import EnsembleModel
from torch import Tensor

from .decoding import BeamDecoding

STATE = "beam_decoding"


class BeamEnsemble(EnsembleModel):
    """The model of fairseq's generator, with `BeamDecoding` as its decoders.

    Log-probabilities are those of fairseq's `EnsembleModel`: the log of the mean probability over
    the models.

    Args:
        models: each with an `encoder`, and a `decoder` for which `can_decode_in_beams` holds.
    """

    def forward_decoder(
        self,
        tokens: Tensor,
        encoder_outs: list[dict[str, list[Tensor]]],
        incremental_states: list[dict[str, Any]],
        temperature: float = 1.0,
    ) -> tuple[Tensor, None]:
        """Compute one step for all models, in fairseq's loop.

        Args:
            tokens: (B n) x t, the tokens of each hypothesis so far.
            encoder_outs: output of each model, one row per sentence.
            incremental_states: states of the models; they hold the `BeamDecoding`.
            temperature: divides the logits; of a model that copies, the log-probabilities.

        Returns:
            log-probabilities of the next token, (B n) x V, and None instead of the attention.
        """
        if tokens.size(1) == 1:
            sentences = encoder_outs[0]["encoder_out"][0].size(1)
            decodings = self.begin(encoder_outs, tokens.size(0) // sentences)
            for state, decoding in zip(incremental_states, decodings):
                state[STATE] = decoding
        decodings = [state[STATE] for state in incremental_states]
        log_probs, _ = self.step(decodings, tokens[:, -1], tokens.size(1) - 1, temperature)
        return decodings[0].rows(log_probs), None

    def begin(
        self,
        encoder_outs: list[dict[str, list[Tensor]]],
        beam_size: int,
        numbers: Tensor | None = None,
        masked: bool = False,
    ) -> list[BeamDecoding]:
        """The state of each model for a new batch.

        Args:
            encoder_outs: output of each model, one row per sentence.
            beam_size: number of hypotheses of a sentence.
            numbers: B x S, the source with numbers for unknown subwords, or None.
            masked: see `BeamDecoding`.
        """
        return [
            BeamDecoding(model.decoder, encoder_out, beam_size, numbers, masked)
            for model, encoder_out in zip(self.models, encoder_outs)
        ]

    def step(
        self,
        decodings: Sequence[BeamDecoding],
        previous: Tensor,
        number: int,
        temperature: float = 1.0,
        at: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Compute one step for all models.

        Args:
            decodings: the result of `begin`.
            previous: (B n), the last token of each hypothesis.
            number: the number of the step, from 0.
            temperature: divides the logits; of a model that copies, the log-probabilities.
            at: the number on the device, for a captured step (see `BeamDecoding.step`).

        Returns:
            log-probabilities of the next token, B x n x V, and the mean of the attention that
            copies, B x n x S, or None if no model copies. In the first step n is 1.
        """
        log_probs: list[Tensor] = []
        copying: list[Any] = []
        for model, decoding in zip(self.models, decodings):
            logits, extra = decoding.step(previous, number, at)
            copies = decoding.copying is not None
            if temperature != 1.0 and not copies:
                logits = logits.div_(temperature)
            found = model.get_normalized_probs((logits, extra), True, None)
            if temperature != 1.0 and copies:  # the logits are only of generated words
                found = torch.log_softmax(found / temperature, dim=-1)
            log_probs.append(found)
            if copies:
                copying.append(extra["attn"][0])
        if len(log_probs) == 1:
            return log_probs[0], copying[0] if copying else None
        copied = torch.stack(copying).mean(dim=0) if copying else None
        mean = torch.logsumexp(torch.stack(log_probs), dim=0) - math.log(len(log_probs))
        return mean, copied

    def reorder_encoder_out(
        self, encoder_outs: list[dict[str, list[Tensor]]], new_order: Tensor
    ) -> list[dict[str, list[Tensor]]]:
        """Keep one row per sentence. Only the first step reads the encoder's output."""
        return encoder_outs

    def reorder_incremental_state(
        self, incremental_states: list[dict[str, Any]], new_order: Tensor
    ) -> None:
        for state in incremental_states:
            state[STATE].reorder(new_order)
