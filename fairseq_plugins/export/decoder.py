"""A decoder step and the selection of the best continuations as one ONNX graph."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import onnx
import torch
from torch import Tensor, nn
from torch.onnx.ops import symbolic, symbolic_multi_out

from fairseq_plugins.layers.decoder_layer import embed, run_decoder_layer
from fairseq_plugins.search.onnx_backend.folder import ATTENTION, COPIED, QUERY, UNKNOWN

from .architecture import bias_of
from .tracing import MICROSOFT, attend, embedded_positions, stacked, trace, traceable

GROUP = 64  # maximum tokens in a group, see `Step`
FILLER = -math.inf  # logit of tokens that fill the last group
Given = dict[str, Tensor]


def grouping(vocabulary: int) -> tuple[int, int]:
    """The size and the number of groups of tokens, see `Step`."""
    group = max(1, min(GROUP, vocabulary // GROUP))
    return group, math.ceil(vocabulary / group)


def build(decoder: Any) -> onnx.ModelProto:
    """The graph of one step for B sentences of n hypotheses, R = B n, for `onnx_backend`.

    Caches have one row per hypothesis and are never reordered: for each past position of a
    hypothesis, `ancestors` gives the row that holds its keys and values. A step writes into the
    caches in place: input and output share memory.

    Args:
        decoder: in evaluation mode; `architecture.check` must accept the model.

    Inputs:
        tokens: int64, B x n, the last token of each hypothesis. If the model copies, tokens from V
            on are subwords of the source that the dictionary lacks (see `torch_backend.unknown`).
        shape: int64, the three numbers B, n, -1.
        step: int32, one number: the tokens of each hypothesis before this step.
        width: int32, one number: n.
        totals: float, B x n, the scores of the hypotheses.
        ancestors: int32, B x n x capacity, numbers from 0 to n - 1.
        real: int32, B x S, 1 at real source tokens, else 0.
        forced: int64, B x n x 1, tokens whose log-probabilities `forced_scores` returns.
        count: int64, one number: k.
        source_keys_i, source_values_i: float, B x h x S x s, for each layer i.
        keys_i, values_i: float, R x h x capacity x s.
        source_words, source_places: int64, B x S, if the model copies: the source tokens, and for
            each one a position that all equal tokens of the sentence share.
        source_before: int64, B x S, if copying goes on (--copy-next): `find_before`, where unknown
            subwords have numbers from V on.

    Outputs:
        best_totals, best_tokens, parents: B x k, the best first.
        forced_scores: B x n x 1.
        log_probs: B x n x V'; V' is V rounded up to whole groups.
        query: float, B x n x d, of the last layer's cross-attention, unless the model copies.
        copying, copied: float, B x n x S, if it does: the attention that copies, and at one
            position of each word the logarithm of its probability to be copied.
        new_keys_i, new_values_i: the caches.

    Raises:
        ConfigurationError: torch's exporter fails.
    """
    heads, size = decoder.layers[0].self_attn.num_heads, decoder.layers[0].self_attn.head_dim
    names = "B", "n", "S", "capacity", "R"
    axes = {name: torch.export.Dim(name) for name in names}
    examples = dict(zip(names, (3, 2, 5, 7, 6)))

    def given(dtype: torch.dtype, *shape: int | str) -> tuple[Tensor, dict[int, Any]]:
        sizes = [examples[each] if isinstance(each, str) else each for each in shape]
        varying = {i: axes[each] for i, each in enumerate(shape) if isinstance(each, str)}
        return torch.ones(sizes, dtype=dtype), varying

    inputs = {
        "tokens": given(torch.int64, "B", "n"),
        "shape": given(torch.int64, 3),
        "step": given(torch.int32, 1),
        "width": given(torch.int32, 1),
        "totals": given(torch.float, "B", "n"),
        "ancestors": given(torch.int32, "B", "n", "capacity"),
        "real": given(torch.int32, "B", "S"),
        "forced": given(torch.int64, "B", "n", 1),
        "count": given(torch.int64, 1),
    }
    caches = [f"{kind}_{i}" for i in range(len(decoder.layers)) for kind in ("keys", "values")]
    for cache in caches:
        inputs["source_" + cache] = given(torch.float, "B", heads, "S", size)
        inputs[cache] = given(torch.float, "R", heads, "capacity", size)
    outputs = ["best_totals", "best_tokens", "parents", "forced_scores", "log_probs"]
    copying = getattr(decoder, "copying", None)
    if copying is not None:
        kinds = ("words", "places") if copying.next is None else ("words", "places", "before")
        inputs.update({f"source_{kind}": given(torch.int64, "B", "S") for kind in kinds})
    outputs += [QUERY] if copying is None else [ATTENTION, COPIED]
    return trace(Step(decoder), inputs, outputs + ["new_" + cache for cache in caches])


class Step(nn.Module):
    """A decoder step, with the inputs and outputs of `build`.

    The k best of the n V continuations are in the k groups of tokens with the best maxima, so only
    the members of these groups are sorted (see `torch_backend.grouped_top_k`).

    Reshapes take their sizes from the input `shape`: torch's would compute them in every step.
    """

    def __init__(self, decoder: Any):
        super().__init__()
        self.decoder = traceable(decoder)
        attentions = [layer.self_attn for layer in decoder.layers]
        self.merged = nn.ModuleList(stacked([a.q_proj, a.k_proj, a.v_proj]) for a in attentions)
        projection = decoder.output_projection
        self.group, self.groups = grouping(projection.weight.size(0))
        filler = self.group * self.groups - projection.weight.size(0)
        self.logits = stacked([projection])
        self.logits.weight.data = nn.functional.pad(self.logits.weight, (0, 0, 0, filler))
        self.logits.bias.data = nn.functional.pad(bias_of(projection), (0, filler), value=FILLER)

    def forward(self, given: Given) -> tuple[Tensor, ...]:
        decoder, tokens = self.decoder, given["tokens"]
        copying, known, position = getattr(decoder, "copying", None), tokens, None
        if copying is not None:
            known = tokens.masked_fill(tokens >= decoder.vocabulary, UNKNOWN)
        if decoder.embed_positions is not None:
            position = embedded_positions(decoder.embed_positions, given["step"])
        x = inputs = embed(decoder, decoder.embed_tokens(known), position)
        caches: list[Tensor] = []
        for index, layer in enumerate(decoder.layers):
            target = partial(self._read_target, given, index, caches)
            x, read = run_decoder_layer(layer, x, target, partial(self._read_source, given, index))
        assert read is not None
        if decoder.layer_norm is not None:
            x = decoder.layer_norm(x)
        if decoder.project_out_dim is not None:
            x = decoder.project_out_dim(x)
        logits = self.logits(x)
        if copying is None:
            log_probs, more = logits.log_softmax(dim=-1), [read]
        else:
            places, before = given["source_places"].unsqueeze(1), given.get("source_before")
            before = None if before is None else before.unsqueeze(1)
            extra = copying(x, inputs, read, given["source_words"], places, before, tokens)
            log_probs = copying.mix(logits, extra, True)
            copied = extra["copy_log_odds"][0] + extra["copy_log_generate"][0].unsqueeze(-1)
            more = [extra["attn"][0], copied]
        best = self._best(log_probs, given["totals"], given["count"])
        return (*best, log_probs.gather(2, given["forced"]), log_probs, *more, *caches)

    def _read_target(
        self, given: Given, index: int, caches: list[Tensor], x: Tensor
    ) -> tuple[Tensor, None]:
        """Self-attention; appends the new caches to `caches`."""
        attention = self.decoder.layers[index].self_attn
        keys, values = given[f"keys_{index}"], given[f"values_{index}"]
        width = 3 * attention.embed_dim
        rows = _reshape(self.merged[index](x), (-1, 1, width), (keys.size(0), 1, width))
        query, key, value = rows.chunk(3, dim=-1)
        past = keys, values, given["step"], given["width"], given["ancestors"]
        read, *new = symbolic_multi_out(
            MICROSOFT + "DecoderMaskedMultiHeadAttention",
            (query, key, value, None, None, *past),
            attrs={"num_heads": attention.num_heads, "past_present_share_buffer": 1},
            dtypes=[x.dtype] * 3,
            shapes=[query.shape, keys.shape, values.shape],
            version=1,
        )
        caches += new
        return _reshape(read, given["shape"], x.shape), None

    def _read_source(self, given: Given, index: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-attention; also returns its query or, in the last layer of a model that copies, its
        weights, B x n x S."""
        attention = self.decoder.layers[index].encoder_attn
        query, heads, size = attention.q_proj(x), attention.num_heads, attention.head_dim
        keys, values = given[f"source_keys_{index}"], given[f"source_values_{index}"]
        last = index == len(self.decoder.layers) - 1
        if getattr(self.decoder, "copying", None) is None or not last:
            return attend(heads, query, keys, values, given["real"]), query
        by_head = _reshape(
            query * attention.scaling, (0, 0, heads, size), (*x.shape[:2], heads, size)
        )
        hidden = (given["real"] == 0)[:, None, None]
        scores = by_head.transpose(1, 2) @ keys.transpose(2, 3)
        weights = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
        read = (weights @ values).transpose(1, 2)
        return _reshape(read, given["shape"], x.shape), weights.mean(dim=1)

    def _best(self, log_probs: Tensor, totals: Tensor, count: Tensor) -> tuple[Tensor, ...]:
        """Totals, tokens and parents of the best continuations, B x k each."""
        k: Any = count.item()
        group, groups = self.group, self.groups
        torch._check(k >= 1)
        sentences, width = totals.shape

        def best(x: Tensor) -> Sequence[Tensor]:
            shapes, kinds = [(sentences, k)] * 2, [x.dtype, torch.int64]
            return symbolic_multi_out("TopK", (x, count), {"axis": -1}, dtypes=kinds, shapes=shapes)

        def divide(x: Tensor, by: int) -> Tensor:  # torch's also looks at signs
            return symbolic("Div", (x, torch.tensor([by])), dtype=x.dtype, shape=x.shape)

        whole, flat = (sentences, width, groups, group), (sentences, width * groups)
        heads = _reshape(log_probs, (0, 0, -1, group), whole).amax(dim=-1) + totals.unsqueeze(-1)
        chosen = best(_reshape(heads, (0, -1), flat))[1]  # of n groups
        members = symbolic(
            "GatherND",
            (_reshape(log_probs, (0, -1, group), (*flat, group)), chosen.unsqueeze(-1)),
            attrs={"batch_dims": 1},
            dtype=log_probs.dtype,
            shape=(sentences, k, group),
        )
        members = members + totals.gather(1, divide(chosen, groups)).unsqueeze(-1)
        found, places = best(_reshape(members, (0, -1), (sentences, k * group)))
        which = divide(places, group)
        chosen = chosen.gather(1, which)
        parents = divide(chosen, groups)
        # the first token of the group, and the place in it
        tokens = (chosen - parents * groups - which) * group + places
        return found, tokens, parents


def _reshape(x: Tensor, sizes: Tensor | tuple[int, ...], shape: Any) -> Tensor:
    """ONNX's Reshape, where 0 keeps a dimension and -1 is inferred; `shape` is the result's."""
    sizes = sizes if isinstance(sizes, Tensor) else torch.tensor(sizes)
    return symbolic("Reshape", (x, sizes), dtype=x.dtype, shape=shape)
