"""fairseq's ensemble, whose decoders keep a row for each sentence instead of each hypothesis."""

import math
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from fairseq.sequence_generator import EnsembleModelWithAlignment
from torch import Tensor, nn

from .decoding import BeamDecoding

STATE = "beam_decoding"


class BeamEnsemble(EnsembleModelWithAlignment):
    """What fairseq's generator calls its model, over `BeamDecoding`.

    Same log-probabilities, mean over the models' probabilities, as fairseq's `EnsembleModel`.

    Args:
        models: with an `encoder` and a `decoder` for which `can_decode_in_beams` holds.
        need_attention: give the generator each step's attention to the source. fairseq always
            does, which only `--print-alignment` reads.
    """

    def __init__(self, models: Sequence[nn.Module], need_attention: bool = False) -> None:
        super().__init__(models)
        self.need_attention = need_attention

    def forward_decoder(
        self,
        tokens: Tensor,
        encoder_outs: List[Dict[str, List[Tensor]]],
        incremental_states: List[Dict[str, Any]],
        temperature: float = 1.0,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Log-probabilities of the next token, (B n) x V, and attention, (B n) x S or None."""
        log_probs, attentions = [], []
        for model, encoder_out, state in zip(self.models, encoder_outs, incremental_states):
            if tokens.size(1) == 1:
                sentences = encoder_out["encoder_out"][0].size(1)
                state[STATE] = BeamDecoding(
                    model.decoder, encoder_out, tokens.size(0) // sentences, self.need_attention
                )
            decoding = state[STATE]
            logits, extra = decoding.step(tokens)
            if temperature != 1.0:
                logits = logits.div_(temperature)
            log_probs.append(decoding.rows(model.get_normalized_probs((logits, extra), True, None)))
            if self.need_attention:
                attentions.append(decoding.rows(extra["attn"][0]))
        mean_attention = sum(attentions) / len(attentions) if attentions else None
        if len(log_probs) == 1:
            return log_probs[0], mean_attention
        mean = torch.logsumexp(torch.stack(log_probs), dim=0) - math.log(len(log_probs))
        return mean, mean_attention

    def reorder_encoder_out(
        self, encoder_outs: List[Dict[str, List[Tensor]]], new_order: Tensor
    ) -> List[Dict[str, List[Tensor]]]:
        """Leave the encoder's output with a row for each sentence: nothing reads it again."""
        return encoder_outs

    def reorder_incremental_state(
        self, incremental_states: List[Dict[str, Any]], new_order: Tensor
    ) -> None:
        for state in incremental_states:
            state[STATE].reorder(new_order)
