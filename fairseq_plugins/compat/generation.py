"""Repairs of beam search and its output."""

import inspect
import math
import re
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch
from fairseq import search
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.scoring.bleu import SacrebleuScorer
from fairseq.scoring.chrf import ChrFScorer
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment

from fairseq_plugins.compat.patch import after_parsing, repair
from fairseq_plugins.compat.training_options import check_search_options
from fairseq_plugins.errors import ConfigurationError, check_range, flag
from fairseq_plugins.options.search import check as check_values

# options of fairseq-generate that fairseq-interactive has but does not read
ONLY_IN_GENERATE = ("lm_path", "results_path", "score_reference")


@repair(search.DiverseBeamSearch, "step")
def number_diverse_beams_within_the_batch(
    original: Callable,
    self: search.DiverseBeamSearch,
    step: int,
    lprobs: torch.Tensor,
    scores: torch.Tensor | None,
    prev_output_tokens: torch.Tensor | None = None,
    original_batch_idxs: torch.Tensor | None = None,
) -> Any:
    """Repair `--diverse-beam-groups`, which uses data set indices as rows of the batch.

    Most indices give an IndexError, the others the row of another sentence. The right index is the
    sentence's row in the batch of the first step, because finished sentences leave the batch.
    """
    if original_batch_idxs is not None:
        if step == 0:
            self.ids_of_batch = original_batch_idxs
        same = original_batch_idxs.unsqueeze(1) == self.ids_of_batch.unsqueeze(0)
        original_batch_idxs = same.long().argmax(dim=1)
    return original(self, step, lprobs, scores, prev_output_tokens, original_batch_idxs)


@repair(search.DiverseBeamSearch, "__init__")
def end_diverse_hypotheses(
    original: Callable, self: search.DiverseBeamSearch, *args: Any, **kwargs: Any
) -> None:
    """End the hypotheses of `--diverse-beam-groups` at the end of the sentence.

    fairseq requests as many candidates from each group as it has hypotheses. A hypothesis that ends
    therefore stays in the group and continues after its end, and the text is two sentences in one:
    with 2 hypotheses in each of 2 groups, in half of all best ones. Twice as many candidates, as in
    ordinary search, leave enough that have not ended.
    """
    original(self, *args, **kwargs)
    if len(args) < 5 and "candidate_multiple" not in kwargs:
        self.candidate_multiple = 2


@repair(search.PrefixConstrainedBeamSearch, "step")
def end_constrained_hypotheses(
    original: Callable,
    self: search.PrefixConstrainedBeamSearch,
    step: int,
    lprobs: torch.Tensor,
    scores: torch.Tensor | None,
    prev_output_tokens: torch.Tensor,
    original_batch_idxs: torch.Tensor,
) -> Any:
    """End the hypotheses of `prefix_allowed_tokens_fn` at the end of the sentence.

    fairseq takes as many candidates as there are hypotheses. A hypothesis that ends therefore stays
    and continues after its end, and others are lost. Ordinary search takes twice as many.
    """
    rows = lprobs.view(-1, 1, lprobs.size(-1))
    mask = self.apply_mask(rows, prev_output_tokens, original_batch_idxs)
    return search.BeamSearch.step(self, step, lprobs + mask.view_as(lprobs), scores)


@repair(search.LengthConstrainedBeamSearch, "set_src_lengths")
def match_the_words_of_the_source(
    original: Callable, self: search.LengthConstrainedBeamSearch, lengths: torch.Tensor
) -> None:
    """Let `--match-source-len` write as many tokens as the source has.

    fairseq writes one more: it counts the end of the sentence in the source only.
    """
    original(self, lengths - 1)


def check_finite(name: str, model: torch.nn.Module) -> None:
    """Refuse a model with a parameter that is NaN or infinite.

    Raises:
        ConfigurationError: `name` is such a model; the message names the parameter.
    """
    for parameter, values in model.named_parameters():
        if not bool(torch.isfinite(values).all()):
            raise ConfigurationError(
                f"{name} cannot be used: {parameter} holds non-numeric values, so the "
                "training has failed; use an earlier checkpoint"
            )


@repair((SequenceGenerator, SequenceGeneratorWithAlignment), "generate")
def tell_that_no_hypothesis_is_allowed(
    original: Callable, self: SequenceGenerator, *args: Any, **kwargs: Any
) -> Any:
    """Name conflicting options if search ends in an AssertionError.

    Raises:
        ConfigurationError: on generation: `--min-len` is above the maximum length, every text of
            that length repeats an n-gram, or the model holds non-numeric values.
    """
    try:
        return original(self, *args, **kwargs)
    except AssertionError as error:
        reached = re.fullmatch(r"\d+ < (\d+)", str(error))
        if not reached and "min_len cannot be larger" not in str(error):
            raise
        check_finite("the model", self.model)
        most = f" of at most {reached[1]} tokens" if reached else ""
        raise ConfigurationError(
            f"the options of search allow no output{most} for a sentence: give a smaller "
            f"--min-len (it is {self.min_len}), a larger length limit "
            "(--max-len-b), or remove --no-repeat-ngram-size"
        ) from None


@repair((SacrebleuScorer, ChrFScorer), "add_string")
def score_unknown_words_as_wrong(original: Callable, self: Any, ref: str, pred: str) -> None:
    """Let unknown words match nothing with `--scoring sacrebleu` and `chrf`.

    fairseq writes them as <unk> in a hypothesis and as <<unk>> in a reference, and sacreBLEU reads
    the word "unk" in both.
    """
    # two characters that occur in no text
    original(self, ref.replace("<<unk>>", " \ue000 "), pred.replace("<unk>", " \ue001 "))


@repair()
def obey_or_refuse_options() -> None:
    """Divide the work of fairseq-generate by `--num-shards`, and refuse options without effect.

    fairseq ignores `--num-shards` in all programs except fairseq-eval-lm, so each job
    translates all sentences; `--sacrebleu` everywhere; `--constraints` in fairseq-generate, which
    ends in a traceback, as nothing reads constraints there; and `ONLY_IN_GENERATE` in
    fairseq-interactive.

    Raises:
        ConfigurationError: on parsing, an option would have no effect or cannot work.
    """

    @after_parsing
    def check(given: Namespace) -> None:
        interactive = hasattr(given, "buffer_size")
        generates = hasattr(given, "replace_unk") and not interactive
        shards = getattr(given, "num_shards", None) or 1
        if shards > 1 and generates:
            check_range("--shard-id", given.shard_id, 0, shards - 1)
            given.distributed_world_size, given.distributed_rank = shards, given.shard_id
        elif shards > 1 and not hasattr(given, "output_word_probs"):  # of fairseq-eval-lm
            raise ConfigurationError(
                f"--num-shards {shards} only divides the work of fairseq-generate and "
                "fairseq-eval-lm: remove it"
            )
        if getattr(given, "sacrebleu", False):
            raise ConfigurationError(
                "--sacrebleu has no effect in fairseq: use --scoring sacrebleu"
            )
        if generates and getattr(given, "constraints", None):
            raise ConfigurationError(
                f"--constraints {given.constraints}: only fairseq-interactive reads "
                "constraints, after a tab in each line; use that"
            )
        if generates or interactive:
            check_values(vars(given))
            if given.sampling and given.nbest != given.beam:
                raise ConfigurationError(
                    f"--sampling writes as many outputs as --beam {given.beam}: add --nbest "
                    f"{given.beam}, or give --beam {given.nbest}"
                )
        for option in ONLY_IN_GENERATE if interactive else ():
            if getattr(given, option, None):
                raise ConfigurationError(
                    f"{flag(option)} has no effect in fairseq-interactive: remove it, or "
                    "use fairseq-generate"
                )


@repair(GeneratorHubInterface, "generate")
def refuse_unknown_words_of_search(
    original: Callable, self: GeneratorHubInterface, *args: Any, **kwargs: Any
) -> Any:
    """Refuse unknown search options of `from_pretrained(...).translate`.

    fairseq ignores `lenpenalty=2` and any other unknown name.

    Raises:
        ConfigurationError: on `generate`, `translate` and `sample`.
    """
    named = set(inspect.signature(original).parameters)
    check_search_options("translate", {n: v for n, v in kwargs.items() if n not in named})
    return original(self, *args, **kwargs)


@repair()
def ban_repeated_ngrams() -> None:
    """Repair `--no-repeat-ngram-size`, which does nothing without its CUDA extension.

    It compares n-grams with the end of the buffer, which is padding, instead of
    with the last generated tokens. It also bans what `--prefix-size` demands: nothing is left.
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
    """Set tokens that would repeat an n-gram to -inf in `lprobs` (hypotheses x vocabulary).

    `tokens` (hypotheses x longest) holds the start symbol and `step` generated tokens. The only
    possible token of a hypothesis, which a prefix demands, stays possible.
    """
    size = self.no_repeat_ngram_size
    generated = tokens[:, 1 : step + 1]
    if size > step:
        return lprobs
    return ban_ngrams(generated, generated[:, step - size + 1 :], lprobs)


def ban_ngrams(generated: torch.Tensor, last: torch.Tensor, lprobs: torch.Tensor) -> torch.Tensor:
    """Set tokens that would repeat an n-gram to -inf in `lprobs` (hypotheses x vocabulary).

    Args:
        generated: hypotheses x t, the tokens so far, and padding.
        last: hypotheses x (n - 1), the last ones of them.
        lprobs: changed in place; a single possible token stays possible.
    """
    size = last.size(1) + 1
    ngrams = generated.unfold(1, size, 1)
    again = (ngrams[:, :, : size - 1] == last.unsqueeze(1)).all(dim=2)
    again &= lprobs.topk(2, dim=1).values[:, 1:] > -math.inf  # summing booleans takes longer
    most = torch.where(again, -math.inf, math.inf).to(lprobs)
    return lprobs.scatter_reduce_(1, ngrams[:, :, size - 1], most, "amin")
