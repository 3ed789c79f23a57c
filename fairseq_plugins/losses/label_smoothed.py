"""fairseq's label-smoothed cross entropy in chunks, to save memory."""

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.models import FairseqDecoder, FairseqLanguageModel
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers.copying import copies_of
from fairseq_plugins.layers.packed import take_rows
from fairseq_plugins.options.fields import checked_options

from .chunked import Objective, chunked_loss, plain_loss


@register_criterion(
    "label_smoothed_cross_entropy_fused", dataclass=LabelSmoothedCrossEntropyCriterionConfig
)
class LabelSmoothedCrossEntropyFused(LabelSmoothedCrossEntropyCriterion):
    """fairseq's `label_smoothed_cross_entropy`, computed in chunks with the output projection.

    The model returns features. The criterion projects them to the vocabulary, for real target
    positions only (see `chunked_loss`). Loss, logs and options are fairseq's. For a model that
    copies, the loss is that of the mixture. With ``reduce=False``, which fairseq's trainer does not
    use, fairseq's own criterion runs.

    Raises:
        ConfigurationError: at the first batch, if `find_projection` refuses the model.
    """

    @classmethod
    def build_criterion(cls, cfg: Any, task: Any) -> "LabelSmoothedCrossEntropyFused":
        """Build the criterion with all options of its dataclass.

        Raises:
            ConfigurationError: an option is out of range.
        """
        return cls(task, **checked_options(getattr(cls, "__dataclass"), cfg))

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """As in fairseq: the summed loss, the sample size to divide by, and the logging output."""
        if not reduce:
            return super().forward(model, sample, reduce)
        return self.compute(model, sample, Objective(self.eps), find_projection(model))

    def kernels(self) -> list[tuple[str, int]]:
        """The Triton kernel of one pass, as `layers.kernels.usable` takes it."""
        return [("cross_entropy", len(self.task.target_dictionary))]

    def perturb(self, model: Any) -> AbstractContextManager:
        """Context in which the two passes of a model get different inputs."""
        return nullcontext()

    def compute(
        self,
        model: Any,
        sample: dict[str, Any],
        objective: Objective,
        projection: nn.Linear | None,
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """`forward` with any objective.

        With P passes, the model gets the batch P times in one forward; the second pass is the
        second half of this larger batch.

        Args:
            model: as fairseq passes it, wrapped or not.
            sample: a batch of B sentences.
            objective: the objective of P passes, 1 or 2.
            projection: the model's projection, for `chunked_loss`; None computes `plain_loss`,
                which works for every model.

        Returns:
            the summed loss, the sample size to divide by, and the logging output.
        """
        passes = len(objective.cross_entropy)
        net_input = {
            name: torch.cat([value] * passes) if isinstance(value, Tensor) else value
            for name, value in sample["net_input"].items()
        }
        with self.perturb(model) if passes == 2 else nullcontext():
            if projection is None:
                net_output = model(**net_input)
                values, extra = model.get_normalized_probs(net_output, log_probs=True), None
            else:
                with packed_output(model):
                    values, extra = model(**net_input, features_only=True)
        targets = model.get_targets(sample, None).repeat(passes, 1)
        counted = targets.ne(self.padding_idx)
        counted[:, : self.ignore_prefix_size].fill_(False)
        extra = extra if isinstance(extra, dict) else {}
        if "sentences" in extra:  # of a `PackedModel`: no size may depend on data
            target, mask = targets[0], counted[0]
            copies = copies_of(extra, None, extra["sentences"][0])
        else:
            positions, mask = extra.get("positions", [None])[0], None
            counted = counted.flatten()
            rows = (counted if positions is None else counted[positions]).nonzero().squeeze(1)
            index = rows if positions is None else positions[rows]
            values = take_rows(values.flatten(0, -2), rows).unflatten(0, (passes, -1))
            target = targets.flatten()[index].view(passes, -1)[0]
            copies = copies_of(extra, rows, index.div(targets.size(1), rounding_mode="floor"))
        if projection is None:
            sums = plain_loss(values, target, objective)
        else:
            sums = chunked_loss(
                values,
                target,
                projection.weight,
                projection.bias,
                objective,
                count_correct=self.report_accuracy,
                copies=copies,
                counted=mask,
            )
        nsentences = sample["target"].size(0)
        sample_size = nsentences if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": sums.loss.data,
            "nll_loss": sums.nll_loss,
            "ntokens": sample["ntokens"],
            "nsentences": nsentences,
            "sample_size": sample_size,
        }
        if self.report_accuracy:
            logging_output["n_correct"] = sums.correct.item()
            logging_output["total"] = target.numel()
        if passes == 2:
            logging_output["kl"] = sums.divergence / sum(objective.divergence)
        return sums.loss, sample_size, logging_output


def unwrap(model: Any) -> list[Any]:
    """The model that a criterion gets, and all models that it wraps, from outside to inside."""
    models = [model]
    while isinstance(getattr(models[-1], "module", None), nn.Module):
        models.append(models[-1].module)
    return models


@contextmanager
def packed_output(model: Any) -> Iterator[None]:
    """Context in which the decoder returns one row per real position, if it computes only those.

    See `Decoder.extract_packed_features`. Other decoders are not changed.
    """
    decoder: Any = getattr(unwrap(model)[-1], "decoder", None)
    if not hasattr(decoder, "packed_output"):
        yield
        return
    decoder.packed_output = True
    try:
        yield
    finally:
        decoder.packed_output = False


def _gives_features(model: nn.Module, decoder: nn.Module) -> bool:
    """Whether the model's forward takes `features_only`, or passes it on to the decoder's."""
    reads = decoder if isinstance(model, FairseqLanguageModel) else model
    return "features_only" in inspect.signature(reads.forward).parameters


def _extends_projection(decoder: nn.Module) -> bool:
    """Whether probabilities differ from ``softmax(output_projection(features))`` and known
    mixtures.

    `Decoder` of this package is known: `chunked_loss` also computes the loss of its copying.
    """
    known = (__name__.split(".")[0], FairseqDecoder.__module__, TransformerDecoderBase.__module__)
    for name in ("output_layer", "get_normalized_probs", "get_normalized_probs_scriptable"):
        method = getattr(decoder, name, None)
        if method is not None and not method.__module__.startswith(known):
            return True
    return False


def in_chunks(criterion: Any, model: Any) -> Any:
    """fairseq's label smoothing as `LabelSmoothedCrossEntropyFused`; others as they are.

    Args:
        criterion: without `report_accuracy` and `ignore_prefix_size`.
        model: without wrappers. If `find_projection` refuses it, its criterion stays.
    """
    if type(criterion) is not LabelSmoothedCrossEntropyCriterion:
        return criterion
    try:
        find_projection(model)
    except ConfigurationError:
        return criterion
    return LabelSmoothedCrossEntropyFused(criterion.task, criterion.sentence_avg, criterion.eps)


def find_projection(model: Any, passes: int = 1) -> nn.Linear:
    """The output projection of a model whose loss `chunked_loss` can compute.

    The forward of such a model takes `features_only=True`. Its decoder ends in an
    `output_projection` of type `nn.Linear`, and no wrapper shards its parameters. With two passes,
    the model must not copy.

    Args:
        model: as fairseq passes it to a criterion, wrapped or not.
        passes: number of passes of the objective.

    Raises:
        ConfigurationError: the model does not meet these conditions; the message says which.
    """
    *wrappers, inner = unwrap(model)
    decoder = getattr(inner, "decoder", inner)
    reason = None
    if getattr(decoder, "adaptive_softmax", None) is not None:
        raise ConfigurationError(
            "--adaptive-softmax-cutoff leaves no probabilities of the whole vocabulary for this "
            "criterion: use --criterion adaptive_loss --ddp-backend legacy_ddp"
        )
    if type(getattr(decoder, "output_projection", None)) is not nn.Linear:
        reason = f"{type(decoder).__name__} has no output_projection that is an nn.Linear"
    elif not _gives_features(inner, decoder):
        reason = f"{type(inner).__name__} does not return features without projecting them"
    elif _extends_projection(decoder):
        reason = f"{type(decoder).__name__} computes its own probabilities"
    elif passes > 1 and getattr(decoder, "copying", None) is not None:
        reason = "the divergence of two mixtures needs all their probabilities"
    elif any(type(m).__name__ == "FullyShardedDataParallel" for m in (model, *model.modules())):
        reason = "--ddp-backend fully_sharded splits the projection's weight"
    elif any(getattr(m, "find_unused_parameters", False) for m in wrappers) and not any(
        module is not decoder.output_projection
        and any(p is decoder.output_projection.weight for p in module.parameters(recurse=False))
        for module in inner.modules()
    ):
        # DDP searches the model's output for used parameters, but the projection runs after that
        reason = (
            "--find-unused-parameters does not see an output projection of its own, which "
            "--share-decoder-input-output-embed avoids"
        )
    if reason is not None:
        raise ConfigurationError(
            f"--criterion label_smoothed_cross_entropy_fused cannot train this model: {reason}; "
            "use --criterion label_smoothed_cross_entropy"
        )
    return decoder.output_projection
