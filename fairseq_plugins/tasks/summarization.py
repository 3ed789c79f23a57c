"""Summarization: fairseq's translation task, validated with ROUGE.

    fairseq-train DATA --user-dir fairseq_plugins --task summarization --eval-rouge \\
        --eval-rouge-remove-bpe sentencepiece --eval-rouge-args '{"beam": 4}' \\
        --best-checkpoint-metric rougeLsum --maximize-best-checkpoint-metric ...

keeps the checkpoint with the highest ROUGE-Lsum of the validation summaries.
"""

import json
import logging
from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

import torch
from fairseq import utils
from fairseq.data import encoders
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.preparation.sentences import BOUNDARY
from fairseq_plugins.scoring.rouge import METRICS, prepare, score_documents

try:
    from fairseq.logging import metrics
except ImportError:  # where fairseq 0.12.2 keeps it
    from fairseq import metrics

logger = logging.getLogger(__name__)


@dataclass
class SummarizationConfig(TranslationConfig):
    """The options of `translation`, and those of ROUGE during validation."""

    eval_rouge: bool = field(
        default=False,
        metadata={
            "help": "generate summaries of the validation set and log rouge1, rouge2, rougeL and "
            "rougeLsum (F1, 0 to 100), for --best-checkpoint-metric with "
            "--maximize-best-checkpoint-metric"
        },
    )
    eval_rouge_args: str = field(
        default="{}",
        metadata={
            "help": 'how to generate, as JSON, e.g. \'{"beam": 4, "lenpen": 2.0, "min_len": 55, '
            '"max_len_b": 140, "no_repeat_ngram_size": 3}\''
        },
    )
    eval_rouge_remove_bpe: Optional[str] = field(
        default=None,
        metadata={
            "help": "how to join pieces to words: sentencepiece, subword_nmt, ...",
            "argparse_const": "sentencepiece",
        },
    )
    eval_rouge_detok: str = field(
        default="space",
        metadata={"help": "detokenize before scoring, e.g. 'moses'; 'space' for no detokenizer"},
    )
    eval_rouge_detok_args: str = field(
        default="{}", metadata={"help": "options of the detokenizer, as JSON"}
    )
    eval_rouge_stemmer: bool = field(
        default=False, metadata={"help": "strip suffixes with Porter's stemmer before comparing"}
    )
    eval_rouge_boundary: str = field(
        default=BOUNDARY,
        metadata={"help": "the token between two sentences of a summary, for ROUGE-Lsum"},
    )
    eval_rouge_split_sentences: bool = field(
        default=False,
        metadata={"help": "also end sentences at punctuation, for summaries without boundaries"},
    )
    eval_rouge_print_samples: bool = field(
        default=False, metadata={"help": "show a summary and its reference in each batch"}
    )


@register_task("summarization", dataclass=SummarizationConfig)
class SummarizationTask(TranslationTask):
    """Documents to summaries."""

    cfg: SummarizationConfig

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        model = super().build_model(cfg, from_checkpoint)
        if self.cfg.eval_rouge:
            self.rouge_detokenizer = encoders.build_tokenizer(
                Namespace(
                    tokenizer=self.cfg.eval_rouge_detok, **self._json("eval_rouge_detok_args")
                )
            )
            self.rouge_generator = self.build_generator(
                [model], Namespace(**self._json("eval_rouge_args"))
            )
        return model

    def valid_step(self, sample: Dict[str, Any], model: Any, criterion: Any) -> Tuple:
        loss, sample_size, logging_output = super().valid_step(sample, model, criterion)
        if self.cfg.eval_rouge:
            # Sums over documents, which fairseq adds up over processes.
            logging_output["_rouge_documents"] = sample["target"].size(0)
            for metric, total in self._rouge_sums(sample, model).items():
                logging_output["_rouge_" + metric] = total
        return loss, sample_size, logging_output

    def reduce_metrics(self, logging_outputs: List[Dict[str, Any]], criterion: Any) -> None:
        super().reduce_metrics(logging_outputs, criterion)
        if not self.cfg.eval_rouge:
            return
        documents = _total(logging_outputs, "_rouge_documents")
        if documents:
            for metric in METRICS:
                mean = _total(logging_outputs, "_rouge_" + metric) / documents
                metrics.log_scalar(metric, mean, documents, round=2)

    def _rouge_sums(self, sample: Dict[str, Any], model: Any) -> Dict[str, float]:
        """F1 times 100 of each metric, summed over the documents of a batch."""
        generated = self.inference_step(self.rouge_generator, [model], sample, prefix_tokens=None)
        summaries = [self._text(hypotheses[0]["tokens"]) for hypotheses in generated]
        references = [
            self._text(utils.strip_pad(target, self.tgt_dict.pad()), escape_unk=True)
            for target in sample["target"]
        ]
        if self.cfg.eval_rouge_print_samples:
            logger.info("example summary: " + summaries[0])
            logger.info("example reference: " + references[0])
        how = (self.cfg.eval_rouge_boundary, self.cfg.eval_rouge_split_sentences)
        scores = score_documents(
            [prepare(text, *how) for text in references],
            [prepare(text, *how) for text in summaries],
            self.cfg.eval_rouge_stemmer,
        )
        return dict(zip(METRICS, (100 * scores[:, :, 0].sum(axis=0)).tolist()))

    def _text(self, tokens: torch.Tensor, escape_unk: bool = False) -> str:
        text = self.tgt_dict.string(
            tokens.int().cpu(), self.cfg.eval_rouge_remove_bpe, escape_unk=escape_unk
        )
        return self.rouge_detokenizer.decode(text) if self.rouge_detokenizer else text

    def _json(self, option: str) -> Dict[str, Any]:
        value = getattr(self.cfg, option)
        try:
            parsed = json.loads(value or "{}")
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise ConfigurationError(
                "--{} '{}' is no JSON object: write it as '{{\"name\": value}}'".format(
                    option.replace("_", "-"), value
                )
            )
        return parsed


def _total(logging_outputs: List[Dict[str, Any]], key: str) -> float:
    return float(sum(log.get(key, 0) for log in logging_outputs))
