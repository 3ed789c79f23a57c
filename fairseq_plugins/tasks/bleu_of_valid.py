"""BLEU of the validation text in training (`--eval-bleu`), computed as in `evaluate`.

fairseq's BLEU uses the tokeniser 13a for every language, so Chinese scores 0, and its references
are joined from subwords. For a folder that this package prepared, tokeniser, detokenisation and
references are those of `evaluate`, and so is the limit of the length of translations.
`--eval-bleu-args` sets the search options. "cut_off" in the log counts translations that reached
the limit.
"""

import functools
import json
import logging
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.data import LanguagePairDataset
from fairseq.logging import metrics
from fairseq.tasks.translation import EVAL_BLEU_ORDER, TranslationTask
from sacrebleu.metrics.bleu import BLEU

from fairseq_plugins.compat.best_score import FAIRSEQ, KIND_OF_BLEU
from fairseq_plugins.compat.patch import around
from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate import TOKENISED_BLEU, form_of
from fairseq_plugins.search.text import write
from fairseq_plugins.search.torch_backend.copied import number_copied
from fairseq_plugins.search.torch_backend.generator import LIMITS
from fairseq_plugins.search.torch_backend.unknown import number_unknown
from fairseq_plugins.text.processing import LengthLimit

logger = logging.getLogger(__name__)

LIMIT_OPTIONS = ("max_len_a", "max_len_b")  # in --eval-bleu-args: they replace the data's limit
CUT_OFF = "cut_off"  # in logs
NAME = "scorers_of_valid"  # in batches; of tasks and their datasets


class Scorer:
    """BLEU of a split's translations, as `evaluate` computes it.

    Args:
        test: the `Translations` of the split.
        tokenised: whether the score is tokenised BLEU; BLEU if evaluate cannot compute that.

    Attributes:
        name: the score of `evaluate`.
        references: one line per sentence, as they are compared.
        sources: the subwords of each source; empty if the folder lacks them.
    """

    def __init__(self, test: Any, tokenised: bool):
        found = test.sacrebleu()
        self.name = TOKENISED_BLEU if tokenised and TOKENISED_BLEU in found else "BLEU"
        self.metric, self._test = found[self.name], test
        self.form = form_of(self.name)
        self.references: list[str] = test.references[self.form]
        self.sources: list[str] = test.source_pieces
        self._blank = test.blank

    def texts(self, numbers: Sequence[int], subwords: Sequence[str]) -> list[str]:
        """Translations of the sentences with these numbers as they are compared, from subwords."""
        # lines without visible text get no translation
        subwords = ["" if self._blank[n] else line for n, line in zip(numbers, subwords)]
        found: list[str] = self._test.text(subwords)[self.form]
        return found

    def score(self, totals: dict[str, Any]) -> float:
        """The score of all batches, from the sums of their counts."""
        return score(totals, self.metric.smooth_method, self.metric.smooth_value)


def score(totals: dict[str, Any], smooth: str = "exp", value: float | None = None) -> float:
    """BLEU from the sums of the counts of all batches; with the default values fairseq's own."""
    found = BLEU.compute_bleu(
        correct=totals["_bleu_counts"].sum,
        total=totals["_bleu_totals"].sum,
        sys_len=int(totals["_bleu_sys_len"].sum),
        ref_len=int(totals["_bleu_ref_len"].sum),
        smooth_method=smooth,
        smooth_value=value,
    )
    return round(found.score, 2)


def not_of_evaluate(split: str, reason: str) -> str:
    """The message for a split whose BLEU is fairseq's."""
    return f"BLEU of {split} is {FAIRSEQ} (13a on joined subwords), not evaluate's: {reason}"


@functools.lru_cache(maxsize=4)
def find_scorer(
    data: Path, split: str, target: str | None, tokenised: bool
) -> tuple[Scorer | None, str]:
    """What computes BLEU of a split of a prepared folder; or why fairseq does.

    Args:
        data: the prepared folder.
        split: the split, such as valid.
        target: the target language; None for that of the folder.
        tokenised: whether tokenised BLEU is wanted.

    Returns:
        the scorer, None for fairseq's own BLEU; and a line if the score is not the requested one.

    Raises:
        MissingTokeniser: fairseq's BLEU would choose checkpoints badly, as 13a needs spaces.
    """
    from fairseq_plugins.evaluate.translation import MissingTokeniser, Translations

    prepared = Prepared(data)
    settings = prepared.settings
    try:
        if not settings or prepared.task != "translation":
            raise ConfigurationError(f"{data} was not made by prepare-translation")
        if settings.get("bidirectional"):
            raise ConfigurationError(f"{data} has both directions")
        test = Translations(prepared, split, target, split)
        scorer = Scorer(test, tokenised)
    except MissingTokeniser:
        raise
    except ConfigurationError as error:
        return None, not_of_evaluate(split, str(error))
    note = f"BLEU of {split} is BLEU of evaluate: {test.notes[0]}" if test.notes else ""
    return scorer, note if tokenised else ""


def tell(data: Path, given: Namespace) -> list[str]:
    """A line for each validation set whose BLEU differs from the requested one.

    Args:
        data: the prepared folder.
        given: the options of the training.
    """
    if not getattr(given, "eval_bleu", False) or given.disable_validation:
        return []
    splits = given.valid_subset.split(",")
    how = given.target_lang, given.eval_tokenized_bleu
    return [line for split in splits for _, line in [find_scorer(data, split, *how)] if line]


def install() -> None:
    """Let fairseq's translation tasks compute BLEU as `evaluate`; a second call does nothing."""
    around(TranslationTask, "load_dataset")(_load_dataset)
    around(LanguagePairDataset, "collater")(_collater)
    around(TranslationTask, "_inference_with_bleu")(_inference)
    around(TranslationTask, "valid_step")(_valid_step)
    around(TranslationTask, "reduce_metrics")(_reduce_metrics)


def _scorers(task: Any) -> dict[str, Scorer]:
    found: dict[str, Scorer] = vars(task).setdefault(NAME, {})
    return found


def _load_dataset(
    original: Callable, self: TranslationTask, split: str, *args: Any, **kwargs: Any
) -> None:
    original(self, split, *args, **kwargs)
    if not getattr(self.cfg, "eval_bleu", False) or split == self.cfg.train_subset:
        return
    data = Path(utils.split_paths(self.cfg.data)[0])
    how = split, self.cfg.target_lang, self.cfg.eval_tokenized_bleu
    scorer, line = find_scorer(data, *how)
    if scorer is not None and len(scorer.references) != len(self.datasets[split]):
        scorer, line = None, not_of_evaluate(split, f"{data} does not hold sentences")
    if line:
        logger.info(line)
    if scorer is not None:
        _scorers(self)[split] = scorer
        vars(self).setdefault(KIND_OF_BLEU, scorer.name)
        setattr(self.datasets[split], NAME, split)


def _collater(original: Callable, self: LanguagePairDataset, *args: Any, **kwargs: Any) -> Any:
    batch, split = original(self, *args, **kwargs), getattr(self, NAME, "")
    if batch and split:
        batch[NAME] = split
    return batch


@functools.lru_cache(maxsize=4)
def _length_limit(data: str, source: str, target: str, given: str) -> LengthLimit | None:
    """The limit of translations; None for that of `given` or, for fairseq's own data, fairseq's."""
    if any(name in json.loads(given) for name in LIMIT_OPTIONS):
        return None
    limit = Prepared(data).length_limit(source, target)
    return None if limit.ratio is None else limit


def _limit(task: TranslationTask, generator: Any, sample: dict[str, Any]) -> None:
    """Limit the translations of a batch as `evaluate` does."""
    cfg, source = task.cfg, sample["net_input"]["src_lengths"].cpu()
    data = utils.split_paths(cfg.data)[0]
    limit = _length_limit(data, cfg.source_lang, cfg.target_lang, cfg.eval_bleu_args)
    if limit is not None:
        limits = [max(limit(length), generator.min_len) for length in source.tolist()]
        sample[LIMITS] = torch.tensor(limits)
        # of a search that takes one limit per batch
        generator.max_len_a, generator.max_len_b = 0, max(limits)


def _cut_off(generator: Any, sample: dict[str, Any], lengths: Sequence[int]) -> int:
    """The number of translations, of these lengths with the end symbol, that reached the limit."""
    source = sample["net_input"]["src_tokens"].size(1)
    one = int(generator.max_len_a * source + generator.max_len_b)
    limits = sample[LIMITS].tolist() if LIMITS in sample else [one] * len(lengths)
    most = generator.max_len - 1
    return sum(length > min(limit, most) for length, limit in zip(lengths, limits))


def _inference(
    original: Callable, self: TranslationTask, generator: Any, sample: dict[str, Any], model: Any
) -> Any:
    scorer = _scorers(self).get(sample.get(NAME, ""))
    _limit(self, generator, sample)
    if scorer is None:
        return original(self, generator, sample, model)
    numbers = sample["id"].tolist()
    lacking: list[list[str]] = [[] for _ in numbers]
    copies = getattr(getattr(model, "decoder", None), "copying", None) is not None
    if copies and scorer.sources:
        sources = [scorer.sources[number].split(" ") for number in numbers]
        lacking = number_unknown(sample, self.tgt_dict, sources)
    found = self.inference_step(generator, [model], sample, prefix_tokens=None)
    tokens = [best[0]["tokens"] for best in found]
    lengths = [len(line) for line in tokens]
    vars(self)[CUT_OFF] = vars(self).get(CUT_OFF, 0) + _cut_off(generator, sample, lengths)
    tokens = number_copied([model], sample, tokens, range(len(tokens)))
    symbols = self.tgt_dict.symbols
    subwords = [write(x.tolist(), symbols, unknown) for x, unknown in zip(tokens, lacking)]
    references = [scorer.references[number] for number in numbers]
    texts = scorer.texts(numbers, subwords)
    if self.cfg.eval_bleu_print_samples:
        logger.info("example hypothesis: " + texts[0])
        logger.info("example reference: " + references[0])
    return scorer.metric.corpus_score(texts, [references])


def _valid_step(
    original: Callable, self: TranslationTask, sample: dict[str, Any], model: Any, criterion: Any
) -> Any:
    loss, size, log = original(self, sample, model, criterion)
    if CUT_OFF in vars(self):
        log[CUT_OFF] = vars(self).pop(CUT_OFF)
    return loss, size, log


def _reduce_metrics(
    original: Callable, self: TranslationTask, logging_outputs: list[Any], criterion: Any
) -> None:
    lengths = [log["_bleu_ref_len"] for log in logging_outputs if "_bleu_ref_len" in log]
    if lengths:  # a validation
        scores = [scorer.score for scorer in _scorers(self).values()]
        metrics.log_derived("bleu", (scores or [score])[0])  # fairseq keeps what is there
        if any(CUT_OFF in log for log in logging_outputs):
            metrics.log_scalar_sum(CUT_OFF, sum(log.get(CUT_OFF, 0) for log in logging_outputs))
    original(self, logging_outputs, criterion)
    totals = [f"_bleu_totals_{order}" for order in range(EVAL_BLEU_ORDER)]
    if lengths and not any(log.get(name, 0) > 0 for log in logging_outputs for name in totals):
        # fairseq omits a batch without a written word, with the lengths of its references
        for name in ("_bleu_counts", "_bleu_totals"):
            metrics.log_scalar(name, np.zeros(EVAL_BLEU_ORDER, dtype=int))
        metrics.log_scalar("_bleu_sys_len", 0)
        metrics.log_scalar("_bleu_ref_len", int(sum(lengths)))
