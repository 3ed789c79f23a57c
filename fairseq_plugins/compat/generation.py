"""Search and translation."""

from typing import Any, Callable, Dict, Optional

import torch
from fairseq import utils
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.search import DiverseBeamSearch

from fairseq_plugins.compat.patch import wrap


def number_diverse_beams_within_the_batch() -> None:
    """ff's `--diverse-beam-groups` looks a sentence up by its number in the data (not in 0.12.2).

    What it looks in has one row a sentence of the batch, so most numbers are an IndexError, and the
    others are some other sentence's row. Sentences leave a batch as they are finished: what counts
    is the place in the batch as it was at the first step.
    """

    def make(original: Callable) -> Callable:
        def step(
            self: DiverseBeamSearch,
            step: int,
            lprobs: torch.Tensor,
            scores: Optional[torch.Tensor],
            prev_output_tokens: Optional[torch.Tensor] = None,
            original_batch_idxs: Optional[torch.Tensor] = None,
        ) -> Any:
            if original_batch_idxs is not None:
                if step == 0:
                    self.ids_of_batch = original_batch_idxs
                same = original_batch_idxs.unsqueeze(1) == self.ids_of_batch.unsqueeze(0)
                original_batch_idxs = same.long().argmax(dim=1)
            return original(self, step, lprobs, scores, prev_output_tokens, original_batch_idxs)

        return step

    wrap(DiverseBeamSearch, "step", "number_diverse_beams_within_the_batch", make)


def ban_repeated_ngrams() -> None:
    """`--no-repeat-ngram-size` does nothing (0.12.2 and ff) where its CUDA extension is not built.

    What it compares with is the end of the whole buffer, which is padding, instead of the last
    tokens that were generated.
    """
    NGramRepeatBlock._no_repeat_ngram = _no_repeat_ngram


def _no_repeat_ngram(
    self: NGramRepeatBlock,
    tokens: torch.Tensor,
    lprobs: torch.Tensor,
    bsz: int,
    beam_size: int,
    step: int,
) -> torch.Tensor:
    """Set to -inf, in `lprobs` (hypotheses x vocabulary), what would complete an n-gram again.

    `tokens` (hypotheses x longest) holds the start symbol and `step` generated tokens.
    """
    size = self.no_repeat_ngram_size
    generated = tokens[:, 1 : step + 1]
    if size > step:
        return lprobs
    ngrams = generated.unfold(1, size, 1)
    last = generated[:, step - size + 1 :].unsqueeze(1)
    again = (ngrams[:, :, : size - 1] == last).all(dim=2)
    banned = torch.zeros_like(lprobs).scatter_add_(1, ngrams[:, :, size - 1], again.to(lprobs))
    return lprobs.masked_fill_(banned > 0, float("-inf"))


def copy_unknown_words_without_a_dictionary() -> None:
    """`--replace-unk` without a value asks for a dictionary in a file named "@@ " (both)."""

    def make(original: Callable) -> Callable:
        def load_align_dict(replace_unk: Optional[str]) -> Optional[Dict[str, str]]:
            return original("" if replace_unk == "@@ " else replace_unk)

        return load_align_dict

    wrap(utils, "load_align_dict", "copy_unknown_words_without_a_dictionary", make)
