"""fairseq's generator, with a beam search that keeps its decisions on the device."""

import itertools
import logging
import math
import os
import re
from collections import deque
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor
from torch.utils._pytree import tree_map_only

from fairseq_plugins.compat.generation import ban_ngrams
from fairseq_plugins.errors import OUT_OF_MEMORY
from fairseq_plugins.graphs.cuda_graph import graph_class

from .decoding import write_slots
from .ensemble import BeamEnsemble
from .grouped_top_k import best_continuations
from .step_graphs import StepGraphs, bucket, pad_encoded, pad_tokens
from .unknown import NUMBERS, UnknownSubwords

logger = logging.getLogger(__name__)

VARIABLE = "FAIRSEQ_PLUGINS_CAPTURED_SEARCH"
LATE = 2  # on a GPU, the host reads which sentences have ended this many steps later
KEPT = 0.5  # on a GPU, they leave the batch when this share of it is enough for the others
SHORTEST = 16  # source positions in a captured step
# the entry of a batch with the most tokens of the hypotheses of each sentence, int64 on the CPU
LIMITS = "length_limits"
Hypothesis = dict[str, Tensor]


class BeamGenerator(SequenceGenerator):
    """fairseq's generator for `BeamEnsemble`, without waiting for the device in each step.

    fairseq's loop reads in each step which hypotheses have ended, and stores them one by one: the
    host waits for the GPU some ten times per step. Here, a step has a fixed size, masks mark what
    has ended, and a log on the device keeps the choices of each step. Hypotheses are read from the
    log at the end. They equal those of fairseq's loop, in the same order.

    Sampling, fairseq's other searches and language models use fairseq's loop, see `accelerate`.

    On a GPU all steps but the first replay CUDA graphs (see `StepGraphs`), unless
    FAIRSEQ_PLUGINS_CAPTURED_SEARCH is 0. Another search at the same time, in another thread,
    launches its kernels one by one.

    If memory is short, the halves of a batch are searched one after the other.

    In a batch with "source_numbers" (see `unknown.number_unknown`), tokens from V on stand for
    subwords of their source that the dictionary lacks.
    """

    captures: bool | None = None  # whether to capture steps; None: the variable decides
    graphs: StepGraphs | None = None
    room: int | None = None  # bytes of a GPU for a batch, see `batch_sizes.fill_by_memory`

    def _generate(
        self,
        sample: dict[str, dict[str, Tensor]],
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> list[list[Hypothesis]]:
        if constraints is not None:  # an error of fairseq's
            return super()._generate(sample, prefix_tokens, constraints, bos_token)
        batch = {name: sample[name] for name in ("net_input", NUMBERS, LIMITS) if name in sample}
        return self._search(batch, prefix_tokens, bos_token)

    def _search(
        self, batch: dict[str, Any], prefix: Tensor | None, start: int | None
    ) -> list[list[Hypothesis]]:
        """Search a batch, in halves if memory is short."""
        net_input = batch["net_input"]
        sentences = len(net_input["src_tokens"])
        graphs = self._find_graphs(net_input["src_tokens"].device)
        if graphs is not None and not graphs.lock.acquire(blocking=False):
            graphs = None
        more: Any = {"numbers": batch.get(NUMBERS), "limits": batch.get(LIMITS), "graphs": graphs}
        try:
            if graphs is not None:
                graphs.begin()
            return _Batch(self, net_input, prefix, start, **more).run()
        except RuntimeError as error:
            short = re.search(OUT_OF_MEMORY, str(error))
            if not short or sentences == 1 and graphs is None:
                raise
            if graphs is not None:
                graphs.drop()
                graphs.failed |= sentences == 1  # a last try is without captured steps
        finally:
            if graphs is not None:
                graphs.lock.release()
        # not in the handler: the error keeps the memory of the search
        if net_input["src_tokens"].is_cuda:
            torch.cuda.empty_cache()
        half = sentences - sentences // 2
        logger.warning(f"memory is short for {sentences} sentences: searching {half} at a time")
        halves = [slice(half), slice(half, sentences)] if sentences > 1 else [slice(1)]
        parts = [(_part(batch, rows), _part(prefix, rows)) for rows in halves]
        found = (self._search(of_batch, of_prefix, start) for of_batch, of_prefix in parts)
        return list(itertools.chain(*found))

    def _find_graphs(self, device: torch.device) -> StepGraphs | None:
        """The captured steps, or None if steps are not to be captured."""
        captures = self.captures
        if captures is None:
            captures = os.environ.get(VARIABLE, "1") != "0"
        if captures and self.graphs is None:
            new_graph = graph_class(device)
            if new_graph is not None:
                self.graphs = StepGraphs(new_graph, self.model.models)
        return self.graphs if captures and self.graphs and not self.graphs.failed else None


class _Batch:
    """The search for one batch: B sentences with n hypotheses each, at most T steps.

    In the first step, all hypotheses of a sentence are equal, and only n' = 1 is computed; then n'
    = n. Of up to 2 n candidates of a sentence, those that end among the first n are results, and
    the first n others continue. Sentences with n results are done. They leave the batch later;
    until then, their rows are computed and ignored. So are the sentences that fill a bucket of
    `graphs`, which are done from the start.
    """

    def __init__(
        self,
        generator: BeamGenerator,
        net_input: dict[str, Tensor],
        prefix: Tensor | None,
        start: int | None,
        numbers: Tensor | None = None,
        limits: Tensor | None = None,
        graphs: StepGraphs | None = None,
    ) -> None:
        self.generator, self.graphs = generator, graphs
        self.model: BeamEnsemble = generator.model
        self.beam, self.prefix = generator.beam_size, prefix
        source = net_input["src_tokens"]
        sentences, length = source.shape[:2]
        if limits is None:
            longest = int(generator.max_len_a * length + generator.max_len_b)
            limits = torch.full((sentences,), longest)
        limits = limits.clamp(max=generator.max_len - 1)
        self.first_limit, self.last = int(limits.min()), int(limits.max())
        assert generator.min_len <= self.last, (
            "min_len cannot be larger than max_len, please adjust these!"
        )
        self.limits = limits.to(source.device)
        self.forced_steps = 0 if prefix is None else min(prefix.size(1), self.last)
        encoded = self.model.forward_encoder(net_input)
        self.sentences = self.real = sentences
        if graphs is not None:
            self.sentences, pad = bucket(sentences), generator.pad
            rows = torch.arange(self.sentences, device=source.device)
            rows = rows.masked_fill(rows >= sentences, 0)
            encoded = [pad_encoded(each, rows, bucket(length, SHORTEST), pad) for each in encoded]
            self.limits = self.limits[rows]
            if numbers is not None:
                numbers = pad_tokens(numbers, rows, bucket(length, SHORTEST), pad)
            if prefix is not None:
                self.prefix = pad_tokens(prefix, rows, bucket(prefix.size(1)), pad)
        self.unknown: UnknownSubwords | None = None
        if numbers is not None:
            self.unknown = UnknownSubwords(numbers, generator.tgt_dict, bucket if graphs else None)
        self.decodings = self.model.begin(encoded, self.beam, numbers, graphs is not None)
        start = generator.eos if start is None else start
        hypotheses = self.sentences * self.beam
        self.previous = source.new_full((hypotheses,), start, dtype=torch.long)
        self.offsets = torch.arange(0, hypotheses, self.beam, device=source.device).unsqueeze(1)
        self.order = torch.arange(2 * self.beam, device=source.device)
        self.ignored = self.order.new_zeros(self.sentences, self.beam, dtype=torch.bool)
        self.found = self.order.new_zeros(self.sentences)  # results of each sentence
        self.found[sentences:] = self.beam
        self.suppressed = generator.token_indices_to_suppress
        if self.suppressed is not None:
            self.suppressed = self.suppressed.to(source.device)
        self.steps = self.decodings[0].capacity + 1
        self.history: Tensor | None = None  # (B n) x (steps + 1), if n-grams must not repeat
        if generator.repeat_ngram_blocker is not None:
            self.history = self.previous.new_full((hypotheses, self.steps + 1), generator.pad)
            self.history[:, 0] = start
        self.late = _Late()
        self.graph: Any = None

    def run(self) -> list[list[Hypothesis]]:
        for number in range(self.last + 1):
            self._prepare(number)
            if self.graph is None:
                self.step(number)
            else:
                self.graph.replay()
            done = self.late(self.done)
            if done is None or not bool(done.any()):
                continue
            if bool(done.all()):
                break
            kept = done.logical_not().nonzero().squeeze(1)
            size = len(kept) if self.graphs is None else bucket(len(kept))
            late = self.graphs is not None or self.found.is_cuda
            if not late or size <= KEPT * len(done):
                self.keep(F.pad(kept, (0, size - len(kept)), value=int(kept[0])), number, len(kept))
        results = self.log.results(self.generator, number + 1)
        # after the last step each sentence has a result, unless the search options forbid all
        assert all(results), f"{self.last} < {self.last}"
        return results

    def _prepare(self, number: int) -> None:
        """Make room for a step, and find the graph that computes it, if there is one."""
        more = self.decodings[0].capacity
        if number > more:
            for each in self.decodings:
                each.reserve(number)
            self.log.enlarge(more)
            if self.history is not None:
                self.history = F.pad(self.history, (0, more), value=self.generator.pad)
            self.graph = None
        if number >= self.forced_steps and self.prefix is not None:
            self.prefix = self.graph = None
        if number == 0 or self.graph is not None or self.graphs is None:
            return
        generator, blocker = self.generator, self.generator.repeat_ngram_blocker
        constants = (
            *(generator.beam_size, generator.min_len, generator.temperature),
            *(generator.unk_penalty, blocker and blocker.no_repeat_ngram_size),
        )
        self.at = torch.full((1,), number, device=self.found.device)
        parts = [part for each in self.decodings for part in (each, *each.parts)]
        holders = [self, self.log, *parts, *([self.unknown] if self.unknown else [])]
        self.graph = self.graphs.enter(holders, constants, self._step_on_device)
        if self.graph is None:
            self.graphs = None

    def _step_on_device(self) -> None:
        self.step(1, self.at)
        self.at = self.at + 1

    def step(self, number: int, at: Tensor | None = None) -> None:
        """Find the candidates of a step, log those that end, and continue the best others.

        Args:
            number: the number of the step, from 0.
            at: the same on the device (one int64) while a step after the first is captured.
        """
        beam = self.beam
        log_probs, copied = self.model.step(
            self.decodings, self.previous, number, self.generator.temperature, at
        )
        if number == 0:
            self.totals = log_probs.new_zeros(self.sentences, 1)
        log_probs, ended_before = self._restrict(log_probs.contiguous(), number, at, copied)
        totals, tokens, parents = best_continuations(log_probs, self.totals, beam)
        if ended_before is not None:
            parents = parents.masked_fill(ended_before.unsqueeze(1), 0)
        ends = tokens.eq(self.generator.eos) & totals.ne(-math.inf)
        first = ends[:, :beam].masked_fill_(self.ignored, False)  # a view
        fresh = first & (first.cumsum(dim=1) + self.found.unsqueeze(1) <= beam)
        self.found = self.found + fresh.sum(dim=1)
        self.done = (self.found >= beam) | (self.limits <= (number if at is None else at))
        # the first n candidates that do not end; if too few, others that are ignored
        first |= self.ignored
        place = ends * (2 * beam) + self.order[: ends.size(1)]
        place, chosen = place.topk(beam, dim=1, largest=False)
        self.ignored = place >= 2 * beam
        next_tokens, next_parents = tokens.gather(1, chosen), parents.gather(1, chosen)
        self.totals = totals.gather(1, chosen)
        numbers = torch.stack([next_tokens, next_parents, parents[:, :beam], fresh.long()], dim=1)
        both = torch.stack([self.totals, totals[:, :beam]], dim=1)
        if number == 0:
            self.log = _Log(self.steps, self.real, numbers, both)
        self.log.add(number if at is None else at, numbers, both)
        self.previous = next_tokens.flatten()
        continued = (next_parents + self.offsets).flatten()
        for each in self.decodings:
            each.reorder(continued)
        if self.history is not None:
            self.history = self.history.index_select(0, continued)
            after = number + 1 if at is None else at + 1
            write_slots(self.history, 1, after, self.previous.unsqueeze(1))

    def keep(self, kept: Tensor, number: int, real: int) -> None:
        """Continue only with these sentences.

        Args:
            kept: on the host; may be the first sentence again.
            number: of the step before.
            real: how many of them are real; the others are done.
        """
        self.log.keep(kept, number + 1, real)
        kept = kept.to(self.found.device)
        rows = (kept.unsqueeze(1) * self.beam + self.order[: self.beam]).flatten()
        self.sentences = len(kept)
        self.offsets = self.offsets[: len(kept)]
        self.previous, self.totals = self.previous[rows], self.totals[kept]
        self.ignored, self.found = self.ignored[kept], self.found[kept]
        self.limits, self.done = self.limits[kept], self.done[kept]
        self.found[real:] = self.beam
        if self.prefix is not None:
            self.prefix = self.prefix[kept]
        if self.history is not None:
            self.history = self.history[rows]
        if self.unknown is not None:
            self.unknown.keep(kept)
        for each in self.decodings:
            each.reorder(rows)
        self.late = _Late()
        self.graph = None

    def _restrict(
        self, log_probs: Tensor, number: int, at: Tensor | None, copied: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Apply the search options, partly in place, and divide <unk> among unknown subwords.

        Args:
            log_probs: B x n' x V, contiguous.
            number, at: of the step.
            copied: B x n' x S, the attention that copies, or None.

        Returns:
            the same with -inf at forbidden tokens, and with columns for unknown subwords; and None
                or, with a prefix, B: the sentences that end here. These have n equal hypotheses.
        """
        generator, rows = self.generator, log_probs.flatten(0, 1)
        eos, nothing, ended = generator.eos, -math.inf, None
        torch.nan_to_num_(rows, nan=nothing, posinf=math.inf, neginf=nothing)
        rows[:, generator.pad].fill_(nothing)
        if generator.unk_penalty:
            rows[:, generator.unk] -= generator.unk_penalty
        if at is not None or number >= self.first_limit:
            ends = log_probs[:, :, eos].clone()
            over = self.limits <= (number if at is None else at)
            log_probs.masked_fill_(over.view(-1, 1, 1), nothing)
            log_probs[:, :, eos] = ends
        forced: Tensor | None = None
        if self.prefix is not None:
            forced = self.prefix[:, number]
            if at is not None:
                forced = self.prefix.index_select(1, at).squeeze(1)
        if self.unknown is not None and copied is not None:
            log_probs = self.unknown.divide(log_probs, copied, forced)
            rows = log_probs.flatten(0, 1)
        if forced is not None:
            ended = self._force(log_probs, forced)
        else:
            if at is not None and generator.min_len > 1:
                rows[:, eos].masked_fill_(at < generator.min_len, nothing)
            elif number < generator.min_len and at is None:
                rows[:, eos].fill_(nothing)
            if self.suppressed is not None:
                rows.index_fill_(1, self.suppressed, nothing)
        if self.history is not None:
            rows = self._ban_ngrams(self.history, rows, number, at)
        return rows.view_as(log_probs), ended

    def _ban_ngrams(self, history: Tensor, rows: Tensor, number: int, at: Tensor | None) -> Tensor:
        """Forbid the tokens that would repeat an n-gram of a hypothesis."""
        blocker: Any = self.generator.repeat_ngram_blocker
        size = blocker.no_repeat_ngram_size
        if at is None:
            if number < size:
                return rows
            found: Tensor = blocker(history, rows, self.sentences, self.beam, number)
            return found
        last = (at + 1 - torch.arange(size - 1, 0, -1, device=at.device)).clamp(min=0)
        return ban_ngrams(history[:, 1:], history.index_select(1, last), rows)

    def _force(self, log_probs: Tensor, tokens: Tensor) -> Tensor:
        """Allow only one token per sentence: B, or padding without a prefix."""
        eos = self.generator.eos
        wanted = tokens.view(-1, 1, 1).expand(-1, log_probs.size(1), 1)
        kept = log_probs.gather(2, wanted)  # -inf for padding
        log_probs.masked_fill_(tokens.ne(self.generator.pad).view(-1, 1, 1), -math.inf)
        log_probs.scatter_(2, wanted, kept)
        ended = tokens.eq(eos)
        for x in (log_probs[:, :, eos], self.totals):
            x.copy_(torch.where(ended.unsqueeze(1), x[:, :1], x))
        return ended


def _part(batch: Any, rows: slice) -> Any:
    """These sentences of all tensors in a batch."""
    return tree_map_only(Tensor, lambda x: x[rows], batch)


class _Late:
    """Reads a small tensor `LATE` steps later, so that the host never waits for the last step.

    On a CPU, it reads at once.
    """

    def __init__(self) -> None:
        self.copies: deque[tuple[Tensor, Any]] = deque()

    def __call__(self, x: Tensor) -> Tensor | None:
        """The value from `LATE` calls ago, on the host, or None."""
        if not x.is_cuda:
            return x
        copy, event = torch.empty(x.shape, dtype=x.dtype, pin_memory=True), torch.cuda.Event()
        copy.copy_(x, non_blocking=True)
        event.record()
        self.copies.append((copy, event))
        if len(self.copies) <= LATE:
            return None
        copy, event = self.copies.popleft()
        event.synchronize()
        return copy


class _Log:
    """The choices of each step, on the device.

    Args:
        steps: how many there is room for.
        sentences: number of sentences, which come first in the batch.
        numbers, totals: as `add` takes them.
    """

    def __init__(self, steps: int, sentences: int, numbers: Tensor, totals: Tensor) -> None:
        self.rows = list(range(sentences))
        self.numbers = numbers.new_zeros(steps, *numbers.shape)
        self.totals = totals.new_zeros(steps, *totals.shape)
        self.left: list[tuple[list[int], Tensor, Tensor]] = []  # of sentences that left the batch

    def add(self, step: int | Tensor, numbers: Tensor, totals: Tensor) -> None:
        """Add a step.

        Args:
            step: its number; on the device, one int64, while it is captured.
            numbers: B x 4 x n: tokens and parents of the hypotheses that continue, parents of the
                candidates that may end, and whether they end.
            totals: B x 2 x n, of the hypotheses that continue and of those candidates.
        """
        write_slots(self.numbers, 0, step, numbers.unsqueeze(0))
        write_slots(self.totals, 0, step, totals.unsqueeze(0))

    def enlarge(self, more: int) -> None:
        """Make room for more steps."""
        self.numbers, self.totals = (
            F.pad(x, (0, 0, 0, 0, 0, 0, 0, more)) for x in (self.numbers, self.totals)
        )

    def keep(self, kept: Tensor, used: int, real: int) -> None:
        """Keep only these rows for later steps; see `_Batch.keep`."""
        stays = kept[:real].tolist()
        leaves = [row for row in range(len(self.rows)) if row not in stays]
        away = torch.tensor(leaves, dtype=torch.long, device=self.numbers.device)
        rows = [self.rows[row] for row in leaves]
        numbers, totals = (x[:used].index_select(1, away) for x in (self.numbers, self.totals))
        self.left.append((rows, numbers, totals))
        self.rows = [self.rows[row] for row in stays]
        kept = kept.to(self.numbers.device)
        self.numbers, self.totals = (x.index_select(1, kept) for x in (self.numbers, self.totals))

    def results(self, generator: BeamGenerator, used: int) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence with fairseq's entries, the best first."""
        device, beam = self.numbers.device, self.numbers.size(3)
        parts = [*self.left, (self.rows, self.numbers[:used], self.totals[:used])]
        sentences = sum(len(rows) for rows, *_ in parts)
        # tokens, parents, parents of ended ones, and which have ended, each steps x B x n
        log = np.zeros((4, used, sentences, beam), np.int64)
        totals = self.totals.new_zeros(used, sentences, 2, beam, device="cpu")
        for rows, of_numbers, of_totals in parts:
            steps = len(of_numbers)
            log[:, :steps, rows] = np.moveaxis(of_numbers[:, : len(rows)].cpu().numpy(), 2, 0)
            totals[:steps, rows] = of_totals[:, : len(rows)].cpu()
        chosen, parents, of_ended, ended = log
        last, which, columns = ended.nonzero()  # of H hypotheses, those that ended first first
        # which hypothesis of the beam each one was after each step
        at = of_ended[last, which, columns]
        after = np.zeros((len(last), used), np.int64)
        for step in range(used - 1, -1, -1):
            end = last.searchsorted(step + 1)
            after[end:, step] = at[end:]
            at[end:] = parents[step, which[end:], at[end:]]
        number, every = np.arange(len(last)), np.arange(used)
        tokens = chosen[every, which[:, None], after]
        tokens[number, last] = generator.eos
        path = totals[every, which[:, None], 0, after]
        path[number, last] = totals[last, which, 1, columns]
        scores = path[number, last]
        if generator.normalize_scores:
            scores = scores / scores.new_tensor(
                [(t + 1) ** generator.len_penalty for t in last.tolist()]
            )
        path[:, 1:] -= path[:, :-1].clone()
        order = torch.sort(scores, descending=True, stable=True).indices.tolist()
        words = torch.from_numpy(tokens).to(device)
        path, scores = path.to(device), scores.to(device)
        results: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        for h in order:
            length = last[h] + 1
            results[which[h]].append(
                {
                    "tokens": words[h, :length],
                    "score": scores[h],
                    "attention": torch.empty(0),
                    "alignment": torch.empty(0),
                    "positional_scores": path[h, :length],
                }
            )
        return results
