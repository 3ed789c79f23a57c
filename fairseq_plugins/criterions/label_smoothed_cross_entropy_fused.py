"""fairseq's label-smoothed cross entropy without the log-probabilities of a whole batch."""

from typing import Any, Dict, NamedTuple, Optional, Tuple

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from fairseq_plugins.errors import ConfigurationError

CHUNK = 512  # tokens whose logits exist at a time
# float16 loses numbers below 6e-8 and rounds those below 6e-5. Products of gradients are taken with
# these powers of two: of the features, and of the weight, where many tokens add up.
FEATURE_SCALE, WEIGHT_SCALE = 2.0**10, 2.0**3


@register_criterion(
    "label_smoothed_cross_entropy_fused", dataclass=LabelSmoothedCrossEntropyCriterionConfig
)
class LabelSmoothedCrossEntropyFused(LabelSmoothedCrossEntropyCriterion):
    """fairseq's `label_smoothed_cross_entropy`, projection included, some tokens at a time.

    The model gives its features, and the projection to the vocabulary happens here, for real target
    positions only (see `smoothed_cross_entropy`). Options, numbers and logs are fairseq's. Without
    reduction, which fairseq's trainer never asks for, fairseq's own computation runs.

    Works with every model whose `forward` takes `features_only=True` and whose decoder ends in an
    `output_projection` that is an `nn.Linear`, on one process or several.

    Raises:
        ConfigurationError: at the first batch, for a model without these, adaptive softmax, fully
            sharded parameters, or an untied projection with --find-unused-parameters.
    """

    def forward(
        self, model: Any, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, int, Dict[str, Any]]:
        """As fairseq's criterions: the loss, the sample size to divide by, and what to log."""
        if not reduce:
            return super().forward(model, sample, reduce)
        projection = find_projection(model)
        features = model(**sample["net_input"], features_only=True)[0]
        target = model.get_targets(sample, None)
        if self.ignore_prefix_size > 0:
            features = features[:, self.ignore_prefix_size :]
            target = target[:, self.ignore_prefix_size :]
        real = target.reshape(-1).ne(self.padding_idx).nonzero().squeeze(1)
        result = smoothed_cross_entropy(
            features.reshape(-1, features.size(-1)).index_select(0, real),
            target.reshape(-1).index_select(0, real),
            projection.weight,
            projection.bias,
            self.eps,
            CHUNK,
            count_correct=self.report_accuracy,
        )
        sample_size = sample["target"].size(0) if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": result.loss.data,
            "nll_loss": result.nll_loss,
            "ntokens": sample["ntokens"],
            "nsentences": sample["target"].size(0),
            "sample_size": sample_size,
        }
        if self.report_accuracy:
            logging_output["n_correct"] = result.correct.item()
            logging_output["total"] = real.numel()
        return result.loss, sample_size, logging_output


class SmoothedCrossEntropy(NamedTuple):
    """Sums over tokens; only the loss has a gradient."""

    loss: Tensor
    nll_loss: Tensor
    correct: Tensor


def smoothed_cross_entropy(
    features: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    smoothing: float,
    chunk: int,
    count_correct: bool = False,
) -> SmoothedCrossEntropy:
    """Label-smoothed cross entropy of ``softmax(features weight^T + bias)``.

    With ``z`` the logits of a token, ``y`` its target, V the vocabulary's size and
    ``e = smoothing / (V - 1)``, as fairseq has it::

        nll  = logsumexp(z) - z_y
        loss = (1 - smoothing - e) nll + e sum_v (logsumexp(z) - z_v)
        d loss / d z = softmax(z) - e - (1 - smoothing - e) onehot(y)

    The weights of the loss add up to 1, so its gradient is the softmax and two corrections that
    cost nothing: one per token, and one of rank 1. The gradients of features and weight are
    computed in the forward pass, `chunk` tokens at a time, while the chunk's softmax is there.

    Args:
        features: N x d, any floating type. Under autocast the products are in its type.
        target: N, no padding.
        weight: V x d; bias: V or None.
        smoothing: 0 for plain cross entropy.
        chunk: tokens at a time; memory is chunk x V.
        count_correct: also count the tokens whose largest logit is the target's, else 0.

    Returns:
        sums over tokens, in float32 (float64 for float64). Products of half types are in these, as
        in fairseq; softmax, loss and the gradients between products are in float32, and rounded
        after they were multiplied with the loss's own (in float16 its scale).
    """
    dtype = _autocast_dtype(features.device)
    if dtype is not None:
        features, weight = features.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    with torch.autocast(features.device.type, enabled=False):
        return SmoothedCrossEntropy(
            *_SmoothedCrossEntropy.apply(
                features,
                weight,
                bias,
                target,
                smoothing,
                chunk,
                count_correct,
                torch.is_grad_enabled(),
            )
        )


def _autocast_dtype(device: torch.device) -> Optional[torch.dtype]:
    if device.type == "cpu":
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Optional[Tensor],
        target: Tensor,
        smoothing: float,
        chunk: int,
        count_correct: bool,
        with_gradients: bool,
    ) -> Tuple[Tensor, Tensor, Tensor]:
        vocabulary = weight.size(0)
        exact = torch.promote_types(features.dtype, torch.float32)
        share = smoothing / (vocabulary - 1)
        confidence = 1.0 - smoothing - share
        # sum_v z_v of a token is a product with the summed weight
        weight_sum = weight.sum(dim=0, dtype=exact)
        bias_sum = 0.0 if bias is None else bias.sum(dtype=exact)
        nll_loss = torch.zeros((), dtype=exact, device=features.device)
        smooth_loss = torch.zeros_like(nll_loss)
        correct = torch.zeros((), dtype=torch.int64, device=features.device)
        needs_features, needs_weight, needs_bias = (
            with_gradients and needed for needed in ctx.needs_input_grad[:3]
        )
        is_half = features.dtype == torch.float16
        scale, weight_scale = (FEATURE_SCALE, WEIGHT_SCALE) if is_half else (1.0, 1.0)
        feature_grad = torch.empty_like(features, dtype=exact) if needs_features else None
        weight_grad = torch.zeros_like(weight, dtype=exact) if needs_weight else None
        bias_grad = (
            torch.zeros(vocabulary, dtype=exact, device=weight.device) if needs_bias else None
        )

        for start in range(0, features.size(0), chunk):
            x, y = features[start : start + chunk], target[start : start + chunk]
            rows = torch.arange(y.size(0), device=y.device)
            logits = nn.functional.linear(x, weight, bias)
            if count_correct:
                correct += logits.argmax(dim=1).eq(y).sum()
            logits = logits.to(exact)
            at_target = logits[rows, y]
            largest = logits.amax(dim=1)
            # exp(logits - largest) and its sum, in place
            softmax = logits.sub_(largest.unsqueeze(1)).exp_()
            total = softmax.sum(dim=1)
            normalizer = total.log().add_(largest)
            nll_loss += (normalizer - at_target).sum()
            sums = torch.mv(x.to(exact), weight_sum).add_(bias_sum)
            smooth_loss += (normalizer * vocabulary - sums).sum()
            if not (needs_features or needs_weight or needs_bias):
                continue
            softmax.div_(total.unsqueeze(1))
            softmax[rows, y] -= confidence
            if bias_grad is not None:
                bias_grad += softmax.sum(dim=0)
            grad = (softmax.mul_(scale) if is_half else softmax).to(x.dtype)
            if feature_grad is not None:
                part = feature_grad[start : start + chunk]
                if x.dtype == exact:
                    torch.mm(grad, weight, out=part)
                else:
                    part.copy_(grad.mm(weight))
            if weight_grad is not None:
                if x.dtype == exact:
                    weight_grad.addmm_(grad.t(), x)
                else:
                    weight_grad += grad.t().mm(x * (weight_scale / scale) if is_half else x)

        # the same share of every word: taken off once, and before no type is too coarse for it
        if feature_grad is not None:
            feature_grad = feature_grad.div_(scale) if is_half else feature_grad
            feature_grad.sub_(weight_sum.mul_(share))
        if weight_grad is not None:
            weight_grad = weight_grad.div_(weight_scale) if is_half else weight_grad
            weight_grad.sub_(features.sum(dim=0, dtype=exact).mul_(share))
        if bias_grad is not None:
            bias_grad.sub_(share * features.size(0))
        ctx.save_for_backward(feature_grad, weight_grad, bias_grad)
        ctx.dtypes = (features.dtype, weight.dtype, None if bias is None else bias.dtype)
        ctx.mark_non_differentiable(nll_loss, correct)
        return confidence * nll_loss + share * smooth_loss, nll_loss, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor, *unused: Tensor) -> Tuple[Optional[Tensor], ...]:
        grads = [
            None if grad is None else (grad * grad_output).to(dtype)
            for grad, dtype in zip(ctx.saved_tensors, ctx.dtypes)
        ]
        return (*grads, None, None, None, None, None)


def find_projection(model: Any) -> nn.Linear:
    """The output projection of a model that `label_smoothed_cross_entropy_fused` can train.

    Raises:
        ConfigurationError: there is none, or the model is not such a one; the message says why.
    """
    wrappers = []
    inner: Any = model
    while isinstance(getattr(inner, "module", None), nn.Module):
        wrappers.append(inner)
        inner = inner.module
    decoder = getattr(inner, "decoder", inner)
    reason = None
    if getattr(decoder, "adaptive_softmax", None) is not None:
        reason = "--adaptive-softmax-cutoff leaves no projection to the whole vocabulary"
    elif type(getattr(decoder, "output_projection", None)) is not nn.Linear:
        reason = f"{type(decoder).__name__} has no output_projection that is an nn.Linear"
    elif any(type(m).__name__ == "FullyShardedDataParallel" for m in (model, *model.modules())):
        reason = "--ddp-backend fully_sharded keeps the projection's weight in pieces"
    elif any(getattr(m, "find_unused_parameters", False) for m in wrappers) and not any(
        module is not decoder.output_projection
        and any(p is decoder.output_projection.weight for p in module.parameters(recurse=False))
        for module in inner.modules()
    ):
        # DDP looks through the model's output for what was used, and the projection comes later
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
