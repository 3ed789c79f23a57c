"""Label smoothing over one or two passes: from log-probabilities, and in chunks of logits.

`plain_loss` is the equation of `Objective`. `chunked_loss` has equal values and gradients. It takes
features, projects a chunk of tokens at a time and computes gradients in the same loop, so that its
logits do not grow with the batch.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_plugins.layers import kernels
from fairseq_plugins.layers.chunked_products import add_product
from fairseq_plugins.layers.copying import Copies

CHUNK = 512  # rows of logits in memory at a time, on a CPU
# Numbers of logits at a time on a GPU: 256 MiB in float32. A chunk launches some 50 kernels there.
GPU_CHUNK = 2**26
# float16 turns numbers below 6e-8 to 0 and loses digits below 6e-5. The products that compute
# gradients are therefore scaled by these powers of two. The weight's scale is smaller, because its
# gradient sums over many tokens: over CHUNK, so chunks in float16 are no larger anywhere.
FEATURE_SCALE, WEIGHT_SCALE = 2.0**10, 2.0**3


class Objective(NamedTuple):
    """The loss of one pass, or of two passes over the same targets and their divergence.

    With ``p_k`` the distribution of a token in pass k and ``CE`` fairseq's label-smoothed cross
    entropy::

        loss = sum_k cross_entropy[k] CE(p_k)
               + divergence[0] KL(p_1 || p_2) + divergence[1] KL(p_2 || p_1)

    Gradients flow into both passes, through both sides of each divergence. `cross_entropy` has one
    weight per pass; they add up to 1. With one pass, `divergence` is not used.
    """

    smoothing: float
    cross_entropy: tuple[float, ...] = (1.0,)
    divergence: tuple[float, float] = (0.0, 0.0)

    def weights(self, vocabulary: int) -> tuple[float, float]:
        """``e`` and ``1 - smoothing - e``; see `chunked_loss`."""
        share = self.smoothing / (vocabulary - 1)
        return share, 1.0 - self.smoothing - share


class Sums(NamedTuple):
    """Scalar sums over tokens, with the weights of `Objective`. Only `loss` has a gradient."""

    loss: Tensor
    nll_loss: Tensor
    divergence: Tensor
    correct: Tensor


def plain_loss(log_probs: Tensor, target: Tensor, objective: Objective) -> Sums:
    """The objective, computed from log-probabilities with the equation of `Objective`.

    Args:
        log_probs: P x N x V, for P passes.
        target: N, without padding.
        objective: of P passes.

    Returns:
        sums in the dtype of `log_probs`; `correct` counts the tokens whose most probable word is
        the target.
    """
    loss = nll_loss = divergence = correct = log_probs.new_zeros(())
    for weight, pass_log_probs in zip(objective.cross_entropy, log_probs):
        smoothed, nll = label_smoothed_nll_loss(pass_log_probs, target, objective.smoothing)
        loss = loss + weight * smoothed.sum()
        nll_loss = nll_loss + weight * nll.detach().sum()
        correct = correct + weight * pass_log_probs.argmax(dim=-1).eq(target).sum()
    if len(log_probs) == 2:
        first, second = log_probs
        there, back = objective.divergence
        divergence = there * (first.exp() * (first - second)).sum()
        divergence = divergence + back * (second.exp() * (second - first)).sum()
        loss = loss + divergence
    return Sums(loss, nll_loss, divergence.detach(), correct)


def chunked_loss(
    features: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    objective: Objective,
    chunk: int | None = None,
    count_correct: bool = False,
    copies: Copies | None = None,
    counted: Tensor | None = None,
) -> Sums:
    """The objective of ``log_softmax(features weight^T + bias)``.

    With ``z`` the logits of a token in a pass, ``p`` their softmax, ``y`` the target, V the
    vocabulary's size and ``e = smoothing / (V - 1)``::

        nll        = logsumexp(z) - z_y
        CE         = (1 - smoothing - e) nll + e sum_v (logsumexp(z) - z_v)
        d CE / d z = p - e - (1 - smoothing - e) onehot(y)

        d KL(p || q) / d z = p (log p / q - KL(p || q))    with q the other pass's softmax,
        d KL(p || q) / d c = q - p                         and c its logits

    Forward computes the gradients of features and weight while it has the softmax of a chunk.

    With copies (see `CopyAttention`), the objective is that of the mixture P, with label smoothing:
    ``-sum_v w_v log P(v)``, where ``w_v`` is ``1 - smoothing`` for the target and ``e`` for other
    words. With g the probability to generate, and ``o`` the log-odds of the source's words::

        CE_P         = CE - log g - sum_v w_v log(1 + exp(o_v - log p_v))
        c_v          = w_v sigmoid(o_v - log p_v)
        d CE_P / d z = d CE / d z + c - p sum_v c_v
        d CE_P / d o = -c

    Both sums are over words of the source only.

    Args:
        features: P x N x d, any floating dtype. Under autocast, products are in its dtype.
        target: N.
        weight: V x d; bias: V or None.
        objective: of P passes.
        chunk: rows of logits at a time, of all passes together (default: `default_chunk`). Logits
            take chunk x V numbers.
        count_correct: also count the tokens whose most probable word is the target; else
            `correct` is 0.
        copies: copying of the N tokens, for one pass, or None.
        counted: N, True at tokens whose loss counts, or None for all. Others may be
            padding with finite features. No size depends on it.

    Returns:
        sums in float32 (float64 for float64). Products of half-precision inputs are in half
        precision, as in fairseq. Softmax and loss are in float32, and gradients are summed in
        float32. Backward multiplies them by the gradient of the loss, which contains the loss scale
        in float16 training, and then rounds them to the dtypes of the inputs.
    """
    device = features.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        features, weight = features.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    with torch.autocast(device, enabled=False):
        sums = Sums(
            *_ChunkedLoss.apply(
                features,
                weight,
                bias,
                None if copies is None else copies.log_odds,
                target,
                copies,
                counted,
                objective,
                max(1, (chunk or default_chunk(features, weight.size(0))) // len(features)),
                count_correct,
                torch.is_grad_enabled(),
            )
        )
    if copies is None:
        return sums
    log_generate = _masked(copies.log_generate, counted).sum()
    return sums._replace(
        loss=sums.loss - log_generate, nll_loss=sums.nll_loss - log_generate.detach()
    )


def default_chunk(features: Tensor, vocabulary: int) -> int:
    """Rows of logits at a time: as many as fit a CPU's cache, or keep a GPU busy."""
    if features.device.type == "cpu" or features.dtype == torch.float16:
        return CHUNK
    return max(CHUNK, GPU_CHUNK // vocabulary)


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        log_odds: Tensor | None,
        target: Tensor,
        copies: Copies | None,
        counted: Tensor | None,
        objective: Objective,
        chunk: int,
        count_correct: bool,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        exact = torch.promote_types(features.dtype, torch.float32)
        sums = torch.zeros(4, dtype=exact, device=features.device)
        of_features, of_weight, of_bias, of_odds = (
            torch.zeros_like(x, dtype=exact)
            if x is not None and with_gradients and needed
            else None
            for x, needed in zip((features, weight, bias, log_odds), ctx.needs_input_grad)
        )
        scale, weight_scale = 1.0, 1.0
        if features.dtype == torch.float16:
            scale, weight_scale = _half_scales(objective)
        by_kernel = len(features) == 1 and bias is None and copies is None
        by_kernel = by_kernel and kernels.usable(features, "cross_entropy", weight.size(0))
        of_words: tuple[Tensor, Any] | None = None
        if not by_kernel:
            of_words = (
                weight.sum(dim=0, dtype=exact),
                0.0 if bias is None else bias.sum(dtype=exact),
            )
        for start in range(0, features.size(1), chunk):
            here = slice(start, start + chunk)
            xs, kept = features[:, here], None if counted is None else counted[here]
            of_copies = None
            if copies is not None:
                words = copies.words.index_select(0, copies.sentence[here])
                of_copies = words, copies.log_odds[here]
            of_chunk, grads, copied = _of_chunk(
                *(xs, target[here], weight, bias, objective, of_copies, kept, count_correct),
                *(of_words, scale),
            )
            sums += torch.stack(of_chunk)
            if of_odds is not None and copied is not None:
                of_odds[here] = -copied
            if of_bias is not None:
                of_bias += sum(grad.sum(dim=0) for grad in grads) / scale
            for number, (x, grad) in enumerate(zip(xs, grads)):
                grad = grad.to(x.dtype)
                if of_features is not None:
                    of_features[number, here] = grad.mm(weight)
                if of_weight is not None:
                    x = x if scale == 1 else x * (weight_scale / scale)
                    add_product(of_weight, grad.t(), x)
        for total, by in (of_features, scale), (of_weight, weight_scale):
            if total is not None and by != 1:
                total.div_(by)
        ctx.save_for_backward(of_features, of_weight, of_bias, of_odds)
        ctx.dtypes = [None if x is None else x.dtype for x in (features, weight, bias, log_odds)]
        nll_loss, smooth_loss, divergence, correct = sums.unbind()
        share, confidence = objective.weights(weight.size(0))
        loss = confidence * nll_loss + share * smooth_loss + divergence
        ctx.mark_non_differentiable(nll_loss, divergence, correct)
        return loss, nll_loss, divergence, correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        grads = [
            None if grad is None else (grad * grad_output).to(dtype)
            for grad, dtype in zip(ctx.saved_tensors, ctx.dtypes)
        ]
        return (*grads, None, None, None, None, None, None, None)


def _of_chunk(
    features: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    objective: Objective,
    copies: tuple[Tensor, Tensor] | None,
    kept: Tensor | None,
    count_correct: bool,
    of_words: tuple[Tensor, Any] | None,
    scale: float,
) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
    """The terms of a chunk of n tokens; see `chunked_loss`.

    Args:
        copies: words of the source of each token, and their log-odds: n x S each.
        kept: n, True at tokens that count, or None for all. All results are 0 at the others.
        of_words: the sums of weight and bias over the vocabulary: ``sum_v z_v`` of a token is the
            product of its features with them. None uses the Triton kernel, for one pass without
            bias or copies; the gradient is then in the dtype of `features`.

    Returns:
        four scalars: the sum of ``nll``, of ``sum_v (logsumexp(z) - z_v)``, of the divergences, and
        the number of tokens whose most probable word is the target; the gradients of the loss with
        respect to the logits of each pass, times `scale`; and c, n x S.
    """
    exact = torch.promote_types(features.dtype, torch.float32)
    share, confidence = objective.weights(len(weight))
    nll_loss, smooth_loss, correct = weight.new_zeros(3, dtype=exact).unbind()
    if of_words is None:
        from fairseq_plugins.layers.kernels.cross_entropy import replace_by_gradient

        z = F.linear(features[0], weight)
        if count_correct:
            correct += _masked(z.argmax(dim=1).eq(target), kept).sum()
        nll, smooth = replace_by_gradient(z, target, kept, share, confidence, scale).sum(dim=1)
        return [nll, smooth, torch.zeros_like(nll), correct], [z], None

    vocabulary = len(weight)
    rows = torch.arange(len(target), device=target.device)
    logits: list[Tensor] = []
    at_target: list[Tensor] = []
    for x, part in zip(features, objective.cross_entropy):
        rounded = F.linear(x, weight, bias)
        if count_correct and copies is None:
            correct += part * _masked(rounded.argmax(dim=1).eq(target), kept).sum()
        logits.append(rounded.to(exact))
        at_target.append(_masked(logits[-1][rows, target], kept))
    if copies is not None:
        at_words = logits[0].gather(1, copies[0])
    normalizers, divergence, grads = _distributions(logits, objective, kept)
    copied = None
    if copies is not None:
        words, odds = copies
        if count_correct:  # P / g has the same argmax as P
            best = grads[0].scatter_add(1, words, odds.exp()).argmax(dim=1)
            correct += _masked(best.eq(target), kept).sum()
        log_ratio = odds - (at_words - normalizers[0].unsqueeze(1))
        wanted = words.eq(target.unsqueeze(1)).to(exact)
        of_rows = None if kept is None else kept.unsqueeze(1)
        gain = _masked(-F.logsigmoid(-log_ratio), of_rows)
        nll_loss -= (gain * wanted).sum()
        smooth_loss -= gain.sum()
        copied = log_ratio.sigmoid().mul_(share + confidence * wanted)  # c
        copied = _masked(copied, of_rows)
        grads[0].mul_(1.0 - copied.sum(dim=1, keepdim=True))  # p - p sum_v c_v
        grads[0].scatter_add_(1, words, copied)
    for x, grad, z_y, normalizer, part in zip(
        features, grads, at_target, normalizers, objective.cross_entropy
    ):
        if part != 0:
            nll_loss += part * (normalizer - z_y).sum()
            of_logits = torch.mv(x.to(exact), of_words[0]).add_(of_words[1])
            smooth_loss += part * (normalizer * vocabulary - _masked(of_logits, kept)).sum()
            counts: Any = part if kept is None else part * kept.to(exact)
            grad.t().sub_(share * counts)  # of every word
            grad[rows, target] -= confidence * counts
        if scale != 1:
            grad.mul_(scale)
    return [nll_loss, smooth_loss, divergence, correct], grads, copied


def _masked(values: Tensor, kept: Tensor | None) -> Tensor:
    """Zero where tokens are not counted."""
    return values if kept is None else values.masked_fill(~kept, 0)


def _distributions(
    logits: list[Tensor], objective: Objective, kept: Tensor | None
) -> tuple[list[Tensor], Tensor, list[Tensor]]:
    """The terms of a chunk's loss that do not depend on the targets, and their gradients.

    Args:
        logits: n x V for each pass; overwritten.
        objective: of the same number of passes.
        kept: n, True at tokens that count, or None for all. All results are 0 at the others.

    Returns:
        ``logsumexp(z)`` of each pass, n each; the weighted sum D of the divergences, a scalar; and
        for each pass k the gradient of ``D + sum_k cross_entropy[k] logsumexp(z_k)`` with respect
        to z_k, n x V. With one pass the weight is 1.
    """
    softmaxes, normalizers, log_totals = [], [], []
    for z in logits:
        largest = z.amax(dim=1)
        z.sub_(largest.unsqueeze(1))
        softmax = z.exp_() if len(logits) == 1 else z.exp()
        total = softmax.sum(dim=1)
        log_totals.append(total.log())
        normalizers.append(_masked(log_totals[-1] + largest, kept))
        if kept is not None:
            total = total.masked_fill(~kept, math.inf)
        softmaxes.append(softmax.div_(total.unsqueeze(1)))
    if len(logits) == 1:
        return normalizers, logits[0].new_zeros(()), softmaxes

    (p, q), (z, spare) = softmaxes, logits
    (part, other_part), (there, back) = objective.cross_entropy, objective.divergence
    # log p - log q = ratio - shift; shift is one number per token and cancels in the gradients
    ratio = z.sub_(spare)
    shift = _masked(log_totals[0] - log_totals[1], kept)
    mean = torch.mul(p, ratio, out=spare).sum(dim=1)
    divergence = there * (mean - shift).sum()
    p_grad = torch.add((part + back - there * mean).unsqueeze(1), ratio, alpha=there, out=spare)
    p_grad.mul_(p)
    if back != 0:
        mean = (q * ratio).sum(dim=1)
        divergence -= back * (mean - shift).sum()
        p_grad.sub_(q, alpha=back)
        ratio.mul_(-back).add_((other_part + there + back * mean).unsqueeze(1))
        q_grad = q.mul_(ratio)
    else:
        q_grad = q.mul_(other_part + there)
    return normalizers, divergence, [p_grad, q_grad.sub_(p, alpha=there)]


def _half_scales(objective: Objective) -> tuple[float, float]:
    """The scales of float16 gradients, lower if divergences can make the gradients larger."""
    room = 2.0 ** math.ceil(math.log2(1 + 4 * sum(objective.divergence)))
    return FEATURE_SCALE / room, WEIGHT_SCALE / room
