"""fairseq's generator, with a beam search that keeps its decisions on the device."""

import logging
import math
import os
import threading
from collections import deque
from typing import Any, NamedTuple, Optional

import numpy as np
import torch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from fairseq_plugins.errors import first_cause
from fairseq_plugins.graphs.cuda_graph import graph_class

from .ensemble import BeamEnsemble
from .grouped_top_k import best_continuations
from .unknown import NUMBERS, UnknownSubwords

logger = logging.getLogger(__name__)
_warm = threading.local()  # `new_graph`: what has captured, as libraries have memory per thread

VARIABLE = "FAIRSEQ_PLUGINS_CAPTURED_SEARCH"
LATE = 2  # on a GPU, the host reads which sentences have ended this many steps later
KEPT = 0.5  # on a GPU, they leave the batch when less than this share remains
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

    With `captures`, a step of decoder and search is captured as a CUDA graph, which later steps of
    the batch replay. This is for GPUs, and off unless FAIRSEQ_PLUGINS_CAPTURED_SEARCH is 1. The
    first two steps, the last one and those with a prefix are not captured; neither are searches
    with --no-repeat-ngram-size.

    In a batch with "source_numbers" (see `unknown.number_unknown`), tokens from V on stand for
    subwords of their source that the dictionary lacks.
    """

    captures: bool | None = None  # whether to capture steps; None: the variable decides

    def _generate(
        self,
        sample: dict[str, dict[str, Tensor]],
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> list[list[Hypothesis]]:
        if constraints is not None:  # an error of fairseq's
            return super()._generate(sample, prefix_tokens, constraints, bos_token)
        more: Any = sample.get(NUMBERS), sample.get(LIMITS)
        return _Batch(self, sample["net_input"], prefix_tokens, bos_token, *more).run()


class _Batch:
    """The search for one batch: B sentences with n hypotheses each, at most T steps.

    In the first step, all hypotheses of a sentence are equal, and only n' = 1 is computed; then n'
    = n. Of up to 2 n candidates of a sentence, those that end among the first n are results, and
    the first n others continue. Sentences with n results are done. They leave the batch later;
    until then, their rows are computed and ignored.
    """

    def __init__(
        self,
        generator: BeamGenerator,
        net_input: dict[str, Tensor],
        prefix: Tensor | None,
        start: int | None,
        numbers: Tensor | None = None,
        limits: Tensor | None = None,
    ) -> None:
        self.generator = generator
        self.model: BeamEnsemble = generator.model
        self.beam, self.prefix = generator.beam_size, prefix
        source = net_input["src_tokens"]
        self.sentences, length = source.shape[:2]
        if limits is None:
            longest = int(generator.max_len_a * length + generator.max_len_b)
            limits = torch.full((self.sentences,), longest)
        limits = limits.clamp(max=generator.max_len - 1)
        self.first_limit, self.last = int(limits.min()), int(limits.max())
        self.limits = limits.to(source.device)
        assert generator.min_len <= self.last, (
            "min_len cannot be larger than max_len, please adjust these!"
        )
        self.unknown: UnknownSubwords | None = None
        if numbers is not None:
            self.unknown = UnknownSubwords(numbers, generator.tgt_dict)
        encoded = self.model.forward_encoder(net_input)
        self.decodings = self.model.begin(encoded, self.beam, numbers)
        start = generator.eos if start is None else start
        rows = self.sentences * self.beam
        self.previous = source.new_full((rows,), start, dtype=torch.long)
        self.offsets = torch.arange(0, rows, self.beam, device=source.device).unsqueeze(1)  # B x 1
        self.order = torch.arange(2 * self.beam, device=source.device)
        self.ignored = self.order.new_zeros(self.sentences, self.beam, dtype=torch.bool)
        self.found = self.order.new_zeros(self.sentences)  # results of each sentence
        self.history: Tensor | None = None  # (B n) x (T + 1), if n-grams must not repeat
        if generator.repeat_ngram_blocker is not None:
            self.history = self.previous.new_full((rows, self.last + 2), generator.pad)
            self.history[:, 0] = start
        self.log = _Log(self.last + 1, self.sentences, self.beam)
        self.late = _Late()
        captures = generator.captures
        if captures is None:
            captures = os.environ.get(VARIABLE, "0") == "1"
        self.new_graph = graph_class(source.device) if captures else None
        self.captured: _Captured | None = None

    def run(self) -> list[list[Hypothesis]]:
        for number in range(self.last + 1):
            if self.new_graph is not None and self._can_capture(number):
                self._replay(number)
            else:
                self.step(number)
            done = self.late((self.found >= self.beam) | (self.limits <= number))
            if done is None or not bool(done.any()):
                continue
            if bool(done.all()):
                break
            if not self.found.is_cuda or int(done.sum()) > (1 - KEPT) * len(done):
                self.keep(done.logical_not().nonzero().squeeze(1))
        results = self.log.results(self.generator)
        # after the last step each sentence has a result, unless the search options forbid all
        assert all(results), f"{self.last} < {self.last}"
        return results

    def step(self, number: int, at: Tensor | None = None) -> None:
        """Find the candidates of a step, log those that end, and continue the best others.

        Args:
            number: the number of the step, from 0.
            at: the same on the device (one int64) while the step is captured.
        """
        beam = self.beam
        log_probs, copied = self.model.step(
            self.decodings, self.previous, number, self.generator.temperature, at
        )
        if number == 0:
            self.totals = log_probs.new_zeros(self.sentences, 1)
        log_probs, ended_before = self._restrict(log_probs.contiguous(), number, copied)
        totals, tokens, parents = best_continuations(log_probs, self.totals, beam)
        if ended_before is not None:
            parents = parents.masked_fill(ended_before.unsqueeze(1), 0)
        ends = tokens.eq(self.generator.eos) & totals.ne(-math.inf)
        first = ends[:, :beam].masked_fill_(self.ignored, False)  # a view
        fresh = first & (first.cumsum(dim=1) + self.found.unsqueeze(1) <= beam)
        self.found = self.found + fresh.sum(dim=1)
        # the first n candidates that do not end; if too few, others that are ignored
        first |= self.ignored
        place = ends * (2 * beam) + self.order[: ends.size(1)]
        place, chosen = place.topk(beam, dim=1, largest=False)
        self.ignored = place >= 2 * beam
        next_tokens, next_parents = tokens.gather(1, chosen), parents.gather(1, chosen)
        self.totals = totals.gather(1, chosen)
        self.log.add(
            number if at is None else at,
            torch.stack([next_tokens, next_parents, parents[:, :beam], fresh.long()], dim=1),
            torch.stack([self.totals, totals[:, :beam]], dim=1),
        )
        self.previous = next_tokens.flatten()
        continued = (next_parents + self.offsets).flatten()
        for decoding in self.decodings:
            decoding.reorder(continued)
        if self.history is not None:
            self.history = self.history.index_select(0, continued)
            self.history[:, number + 1] = self.previous

    def _can_capture(self, number: int) -> bool:
        """Whether a step equals the following ones, except for its number."""
        prefix = 0 if self.prefix is None else self.prefix.size(1)
        return (
            max(2, prefix) <= number < self.first_limit
            and self.history is None
            and self.generator.token_indices_to_suppress is None
        )

    def _replay(self, number: int) -> None:
        """Replay the captured step; capture it first, or again if something fixed changed."""
        for decoding in self.decodings:
            decoding.reserve(number)
        kind = [number < self.generator.min_len, *(d.room() for d in self.decodings)]
        if self.captured is None or self.captured.kind != kind:
            self.captured = self._capture(number, kind)
        if self.captured is None:
            self.step(number)
            return
        self.captured.at.fill_(number)
        self.captured.graph.replay()
        self.log.used = number + 1

    def _capture(self, number: int, kind: list[Any]) -> Optional["_Captured"]:
        """Capture a step; None if that fails, and then nothing else is captured."""
        assert self.new_graph is not None
        state = [x.clone() for x in self._state()]  # state that a captured graph reads and writes
        before = [x.clone() for x in state]
        at = torch.full((1,), number, device=self.found.device)
        graph = self.new_graph()
        try:
            # earlier steps ran the same kernels; libraries allocate here, once
            warm = getattr(_warm, "new_graph", None) is type(graph)
            contexts = [] if warm else [graph.warming_up()]
            for context in (*contexts, graph.capturing()):
                self._set_state(state)
                with context:
                    self.step(number, at)
                    for x, new in zip(state, self._state()):
                        x.copy_(new)
                for x, old in zip(state, before):
                    x.copy_(old)
            _warm.new_graph = type(graph)
        except RuntimeError as error:
            self.new_graph = None
            logger.warning(f"search steps are not captured: {first_cause(error)}")
            graph.recover()
            return None
        finally:
            self._set_state(before if self.new_graph is None else state)
        return _Captured(graph, at, kind)

    def _state(self) -> list[Tensor]:
        """The state that a step replaces; caches and log are written in place."""
        visible = [decoding.visible for decoding in self.decodings]
        return [self.previous, self.totals, self.ignored, self.found, *visible]

    def _set_state(self, state: list[Tensor]) -> None:
        self.previous, self.totals, self.ignored, self.found, *visible = state
        for decoding, of_decoding in zip(self.decodings, visible):
            decoding.visible = of_decoding

    def keep(self, kept: Tensor) -> None:
        """Continue only with these sentences; `kept` is on the host."""
        kept = kept.to(self.found.device)
        rows = (kept.unsqueeze(1) * self.beam + self.order[: self.beam]).flatten()
        self.sentences = len(kept)
        self.offsets = self.offsets[: len(kept)]
        self.previous, self.totals = self.previous[rows], self.totals[kept]
        self.ignored, self.found = self.ignored[kept], self.found[kept]
        self.limits = self.limits[kept]
        if self.prefix is not None:
            self.prefix = self.prefix[kept]
        if self.history is not None:
            self.history = self.history[rows]
        if self.unknown is not None:
            self.unknown.keep(kept)
        for decoding in self.decodings:
            decoding.reorder(rows)
        self.log.keep(kept)
        self.late = _Late()
        self.captured = None

    def _restrict(
        self, log_probs: Tensor, number: int, copied: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Apply the search options, partly in place, and divide <unk> among unknown subwords.

        Args:
            log_probs: B x n' x V, contiguous.
            number: of the step.
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
        if number >= self.first_limit:
            ends = log_probs[:, :, eos].clone()
            log_probs.masked_fill_((self.limits <= number).view(-1, 1, 1), nothing)
            log_probs[:, :, eos] = ends
        forced: Tensor | None = None
        if self.prefix is not None and number < min(self.prefix.size(1), self.last):
            forced = self.prefix[:, number]
        if self.unknown is not None and copied is not None:
            log_probs = self.unknown.divide(log_probs, copied, forced)
            rows = log_probs.flatten(0, 1)
        if forced is not None:
            ended = self._force(log_probs, forced)
        else:
            if number < generator.min_len:
                rows[:, eos].fill_(nothing)
            if generator.token_indices_to_suppress is not None:
                rows.index_fill_(1, generator.token_indices_to_suppress.to(rows.device), nothing)
        if (
            self.history is not None
            and number >= generator.repeat_ngram_blocker.no_repeat_ngram_size
        ):
            rows = generator.repeat_ngram_blocker(
                self.history, rows, self.sentences, self.beam, number
            )
        return rows.view_as(log_probs), ended

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


class _Captured(NamedTuple):
    """A captured search step, its input (the number), and everything fixed in it."""

    graph: Any
    at: Tensor
    kind: list[Any]


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
    """The choices of each step, on the device, in the rows of all B sentences.

    Args:
        steps, sentences, beam: the largest numbers.
    """

    def __init__(self, steps: int, sentences: int, beam: int) -> None:
        self.shape = steps, sentences, beam
        self.rows: Tensor | None = None  # rows of the remaining sentences; None: all
        self.numbers: Tensor | None = None
        self.used = 0

    def add(self, step: int | Tensor, numbers: Tensor, totals: Tensor) -> None:
        """Add a step.

        Args:
            step: its number; on the device, one int64, while it is captured.
            numbers: B x 4 x n: tokens and parents of the hypotheses that continue, parents of the
                candidates that may end, and whether they end.
            totals: B x 2 x n, of the hypotheses that continue and of those candidates.
        """
        steps, sentences, beam = self.shape
        if self.numbers is None:
            self.numbers = numbers.new_zeros(steps, sentences, 4, beam)
            self.totals = totals.new_zeros(steps, sentences, 2, beam)
        if not isinstance(step, Tensor):
            self.used = step + 1
        for log, new in ((self.numbers, numbers), (self.totals, totals)):
            if isinstance(step, Tensor):
                rows = slice(None) if self.rows is None else self.rows
                log[step, rows] = new
            elif self.rows is None:
                log[step] = new
            else:
                log[step].index_copy_(0, self.rows, new)

    def keep(self, kept: Tensor) -> None:
        """Keep only these rows for later steps."""
        self.rows = kept if self.rows is None else self.rows[kept]

    def results(self, generator: BeamGenerator) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence with fairseq's entries, the best first."""
        assert self.numbers is not None
        device = self.numbers.device
        # tokens, parents, parents of ended ones, and which have ended, each steps x B x n
        log = np.moveaxis(self.numbers[: self.used].cpu().numpy(), 2, 0)
        chosen, parents, of_ended, ended = log
        last, sentences, columns = ended.nonzero()  # of H hypotheses, those that ended first first
        # which hypothesis of the beam each one was after each step
        at = of_ended[last, sentences, columns]
        after = np.zeros((len(last), self.used), np.int64)
        for step in range(self.used - 1, -1, -1):
            end = last.searchsorted(step + 1)
            after[end:, step] = at[end:]
            at[end:] = parents[step, sentences[end:], at[end:]]
        number, steps = np.arange(len(last)), np.arange(self.used)
        tokens = chosen[steps, sentences[:, None], after]
        tokens[number, last] = generator.eos
        totals = self.totals[: self.used].cpu()
        path = totals[steps, sentences[:, None], 0, after]
        path[number, last] = totals[last, sentences, 1, columns]
        scores = path[number, last]
        if generator.normalize_scores:
            scores = scores / scores.new_tensor(
                [(t + 1) ** generator.len_penalty for t in last.tolist()]
            )
        path[:, 1:] -= path[:, :-1].clone()
        order = torch.sort(scores, descending=True, stable=True).indices.tolist()
        words = torch.from_numpy(tokens).to(device)
        path, scores = path.to(device), scores.to(device)
        results: list[list[Hypothesis]] = [[] for _ in range(self.shape[1])]
        for h in order:
            length = last[h] + 1
            results[sentences[h]].append(
                {
                    "tokens": words[h, :length],
                    "score": scores[h],
                    "attention": torch.empty(0),
                    "alignment": torch.empty(0),
                    "positional_scores": path[h, :length],
                }
            )
        return results
