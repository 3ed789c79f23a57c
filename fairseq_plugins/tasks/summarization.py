"""Summarization: fairseq's translation task for long documents, validated with ROUGE.

    fairseq-train DATA --user-dir fairseq_plugins --task summarization --eval-rouge \\
        --eval-rouge-remove-bpe sentencepiece --eval-rouge-args '{"beam": 4}' \\
        --best-checkpoint-metric rougeLsum --maximize-best-checkpoint-metric ...

This command keeps the checkpoint with the highest ROUGE-Lsum on the validation set.

A document longer than --max-source-positions is skipped in training, as in the translation task;
with --truncate-source it is truncated, and the log says how much is not read. Generation truncates
documents as training did.
"""

import logging
from argparse import Namespace
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
import torch
from fairseq import utils
from fairseq.logging import metrics
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_plugins.data.lengths import describe_cut
from fairseq_plugins.files import json_object
from fairseq_plugins.options.fields import option
from fairseq_plugins.scoring import rouge

logger = logging.getLogger(__name__)


@dataclass
class SummarizationConfig(TranslationConfig):
    """The options of `translation`, and options of ROUGE during validation."""

    eval_rouge: bool = option(
        False,
        "generate summaries of the validation set and log rouge1, rouge2, rougeL and rougeLsum "
        "(F1, 0 to 100), for --best-checkpoint-metric with --maximize-best-checkpoint-metric",
    )
    eval_rouge_args: str = option(
        "{}",
        'how to generate, as JSON, e.g. \'{"beam": 4, "lenpen": 2.0, "min_len": 55, "max_len_b": '
        '140, "no_repeat_ngram_size": 3}\'',
    )
    eval_rouge_remove_bpe: Optional[str] = option(  # noqa: UP045, fairseq reads no `|`
        None,
        "how to join subwords to words: sentencepiece, subword_nmt, ...",
        argparse_const="sentencepiece",
    )
    eval_rouge_stemmer: bool = option(
        False, "strip suffixes with Porter's stemmer before comparing"
    )
    eval_rouge_unicode: bool = option(
        False, "count words of any script, not only of letters a to z and digits"
    )


@register_task("summarization", dataclass=SummarizationConfig)
class SummarizationTask(TranslationTask):
    """Summarizes documents; logs ROUGE during validation with --eval-rouge."""

    cfg: SummarizationConfig
    summarizes = True  # what the search writes for it has the limits of summaries

    def __init__(self, cfg: SummarizationConfig, src_dict: Any, tgt_dict: Any):
        super().__init__(cfg, src_dict, tgt_dict)
        if cfg.eval_rouge:
            rouge.tokenizer_of(cfg.eval_rouge_stemmer, cfg.eval_rouge_unicode)  # refuses both
        self._checked = False  # whether a batch of references was searched for lost words
        self._model_positions: list[tuple[int, int]] = []

    def load_dataset(
        self,
        split: str,
        epoch: int = 1,
        combine: bool = False,
        task_cfg: Any = None,
        **kwargs: Any,
    ) -> None:
        """Load a split; with --truncate-source, truncate its documents to the model's limit.

        Args:
            split, epoch, combine: as in fairseq.
            task_cfg: in generation, the configuration of the task that the checkpoint was trained
                with. Its length limits and `truncate_source` replace default values of this task.

        """
        if task_cfg is not None:
            defaults = SummarizationConfig.__dataclass_fields__
            for name in ("max_source_positions", "max_target_positions", "truncate_source"):
                if getattr(self.cfg, name) == defaults[name].default:
                    setattr(self.cfg, name, getattr(task_cfg, name))
        limits = [self.max_positions()] + self._model_positions
        self.cfg.max_source_positions, self.cfg.max_target_positions = map(min, zip(*limits))
        truncate, self.cfg.truncate_source = self.cfg.truncate_source, False
        super().load_dataset(split, epoch, combine, **kwargs)  # uncut, to count lengths
        self.cfg.truncate_source = truncate
        if truncate:
            documents, limit = self.datasets[split].src_sizes, self.cfg.max_source_positions
            if (documents > limit).any():
                super().load_dataset(split, epoch, combine, **kwargs)
            logger.info(describe_cut(split, documents, limit, "documents"))

    def build_dataset_for_inference(
        self, src_tokens: list[torch.Tensor], src_lengths: Any, **kwargs: Any
    ) -> Any:
        """The documents of fairseq-interactive or `from_pretrained`; --truncate-source truncates
        them.
        """
        limit = min(limits[0] for limits in [self.max_positions()] + self._model_positions)
        lengths = np.array([len(tokens) for tokens in src_tokens])
        if (lengths > limit).any() and self.cfg.truncate_source:
            logger.info(describe_cut("input", lengths, limit, "documents"))
            src_tokens = [
                torch.cat([tokens[: limit - 1], tokens[-1:]]) if len(tokens) > limit else tokens
                for tokens in src_tokens
            ]
            src_lengths = np.minimum(lengths, limit)
        return super().build_dataset_for_inference(src_tokens, src_lengths, **kwargs)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        model = super().build_model(cfg, from_checkpoint)
        self._model_positions.append(model.max_positions())
        if self.cfg.eval_rouge:
            self.rouge_generator = self.build_generator(
                [model], Namespace(**json_object("eval_rouge_args", self.cfg.eval_rouge_args))
            )
        return model

    def valid_step(self, sample: dict[str, Any], model: Any, criterion: Any) -> tuple:
        loss, sample_size, logging_output = super().valid_step(sample, model, criterion)
        if self.cfg.eval_rouge:
            # fairseq adds up these sums over processes
            logging_output["_rouge_documents"] = sample["target"].size(0)
            for metric, total in self._rouge_sums(sample, model).items():
                logging_output["_rouge_" + metric] = total
        return loss, sample_size, logging_output

    def reduce_metrics(self, logging_outputs: list[dict[str, Any]], criterion: Any) -> None:
        super().reduce_metrics(logging_outputs, criterion)
        if not self.cfg.eval_rouge:
            return
        documents = _total(logging_outputs, "_rouge_documents")
        if documents:
            for metric in rouge.METRICS:
                mean = _total(logging_outputs, "_rouge_" + metric) / documents
                metrics.log_scalar(metric, mean, documents, round=2)

    def _rouge_sums(self, sample: dict[str, Any], model: Any) -> dict[str, float]:
        """F1 of each metric (0 to 100), summed over the documents of a batch."""
        generated = self.inference_step(self.rouge_generator, [model], sample, prefix_tokens=None)
        summaries = [self._text(hypotheses[0]["tokens"]) for hypotheses in generated]
        references = [
            self._text(utils.strip_pad(target, self.tgt_dict.pad()), escape_unk=True)
            for target in sample["target"]
        ]
        unicode = self.cfg.eval_rouge_unicode
        if not self._checked:  # validation begins with the same batch each time
            self._checked = True
            if problem := rouge.lost_words(references, unicode):
                logger.warning(f"ROUGE: {problem}")
        scores = rouge.score_documents(
            references, summaries, self.cfg.eval_rouge_stemmer, unicode, workers=1
        )
        return dict(zip(rouge.METRICS, (100 * scores[:, :, 0].sum(axis=0)).tolist()))

    def _text(self, tokens: torch.Tensor, escape_unk: bool = False) -> str:
        how = self.cfg.eval_rouge_remove_bpe
        return rouge.prepare(self.tgt_dict.string(tokens.int().cpu(), how, escape_unk=escape_unk))


def _total(logging_outputs: list[dict[str, Any]], key: str) -> float:
    return float(sum(log.get(key, 0) for log in logging_outputs))
