"""Beam search and sampling with an exported model; needs only numpy and onnxruntime."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from fairseq_plugins.options.search import Options
from fairseq_plugins.search.engine import Input
from fairseq_plugins.search.text import Output

from .folder import ATTENTION, COPIED, END, PADDING, QUERY, UNKNOWN, Export

# Initial positions of a cache, which doubles when full. It does not depend on the batch, because
# onnxruntime plans its memory anew for each new shape of an input.
CAPACITY = 32
KEPT = 0.75  # finished sentences leave the batch when less than this share remains
NEVER = -np.inf
# inputs of the graph with one row per sentence
OF_COPIES = ("source_words", "source_places", "source_before")
OF_SENTENCES = ("totals", "real", "ancestors", "tokens", *OF_COPIES)
LEAST = 1e-30  # least attention to an unknown subword, as in `torch_backend.unknown`
CANDIDATES = {"best_totals": np.float32, "best_tokens": np.int64, "parents": np.int64}
CONTINUED = [("total", "f4"), ("token", "i8"), ("parent", "i8"), ("copied", "i8")]
Candidates = tuple[np.ndarray, np.ndarray, np.ndarray]


def search(
    export: Export,
    sources: Sequence[Input],
    options: Options,
    copied: bool = False,
    aligned: bool = False,
) -> list[list[Output]]:
    """The `nbest` best hypotheses for each source of a batch, the best first.

    They equal those of fairseq's SequenceGenerator. Several threads may call this at once.

    Args:
        export: the model.
        sources: with numbers in place of subwords: those of the dictionary of V tokens, with the
            end symbol. If the model copies, subwords that the dictionary lacks have numbers from V
            on: see `search.text.number_unknown`. A prefix has no end symbol.
        options: of the search.
        copied: ask for copied positions, if the model copies.
        aligned: ask for the attention.

    Returns:
        for each source, outputs with such numbers.
    """
    return _Batch(export, sources, options, copied, aligned).run()


class _Batch:
    """The state of the search for one batch: B sentences with n hypotheses each, k = 2 n.

    In the first step, the hypotheses of a sentence are equal; a batch computes only one of them.

    Arrays that the graph reads or writes are bound once and then changed in place. Each row is a
    sentence; `rows` holds its index in `sources`. Keys and values stay in the row of the hypothesis
    that wrote them; `ancestors` gives this hypothesis for each hypothesis and position.
    """

    def __init__(
        self,
        export: Export,
        sources: Sequence[Input],
        options: Options,
        copied: bool = False,
        aligned: bool = False,
    ):
        self.export, self.sources, self.options = export, sources, options
        count, beam = len(sources), options.beam
        numbers = export.padded([source.pieces for source in sources])
        self.numbers, tokens, self.vocabulary = numbers, numbers, len(export.target.words)
        self.unknown: _Unknown | None = None
        if export.copies:
            tokens = np.where(numbers < self.vocabulary, numbers, UNKNOWN)
        if export.copies and tokens.max() < numbers.max():
            self.unknown = _Unknown(numbers - self.vocabulary, self.vocabulary)
        self.step = 0
        self.rows: Any = np.arange(count)
        self.alive = np.ones(count, bool)
        self.finished: list[list[Output]] = [[] for _ in sources]
        self.limits = np.array([source.limit for source in sources])
        self.first_limit, self.last_step = int(self.limits.min()), int(self.limits.max())
        self.prefixes = max(len(source.prefix) for source in sources)
        # of each step and row: what each hypothesis continues with
        log = (self.last_step + 1, count, beam)
        self.log = np.zeros(log, CONTINUED)
        self.copied, self.aligned = copied, aligned
        # of each step and source
        self.attention_log = np.zeros((*log, numbers.shape[1]) if aligned else 0, np.float32)
        self.groups = options.diverse_beam_groups
        self.overlap = np.zeros((count, self.groups, self.groups), np.float32)
        self.history: np.ndarray | None = None
        if options.no_repeat_ngram:
            self.history = np.full((count, beam, self.last_step + 2), END, np.int64)
        self.draws = [
            np.random.default_rng([options.seed, source.number, source.part])
            for source in (sources if options.sampling else [])
        ]
        self.arrays: dict[str, np.ndarray] = {
            "real": (tokens != PADDING).astype(np.int32),
            "step": np.zeros(1, np.int32),
            "count": np.zeros(1, np.int64),
        }
        if export.copies:
            self.arrays.update(self._copied(tokens, numbers))
        self.memory = export.encode(tokens)
        # One sentence gains nothing; draws differ from the start; and one hypothesis must have 2 n
        # candidates beside padding, the end and <unk>.
        self.needs_all = options.sampling or self.groups > 0  # log-probabilities
        wide = count == 1 or self.needs_all or export.most_candidates < 2 * beam + 3
        self.width = beam if wide else 1
        self._allocate(1 if self.width < beam else CAPACITY)
        self._bind()

    def _allocate(self, capacity: int) -> None:
        """New arrays for `width` hypotheses per sentence, before the first step."""
        size = len(self.rows), self.width
        totals = np.zeros(size, np.float32)
        if not self.needs_all:  # at first all hypotheses are equal: continue only one
            totals[:, 1:] = NEVER
        self.arrays.update(
            totals=totals,
            width=np.full(1, self.width, np.int32),
            ancestors=np.zeros((*size, capacity), np.int32),
            tokens=np.full(size, END, np.int64),
        )
        self.caches = [
            np.zeros((*size, *shape[1:2], capacity, *shape[3:]), np.float32)
            for shape in self.export.cache_shapes
        ]

    def _widen(self) -> None:
        """Continue with n hypotheses per sentence after the first step, which computed one."""
        first, self.width = self.caches, self.options.beam
        self._allocate(CAPACITY)
        for cache, one in zip(self.caches, first):
            cache[:, 0, :, 0] = one[:, 0, :, 0]
        self._bind()

    def _copied(self, tokens: np.ndarray, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """Words that attention may copy, the first position of equal words, the words before."""
        places = np.empty_like(tokens)
        for row, source in enumerate(tokens):
            _, first, which = np.unique(source, return_index=True, return_inverse=True)
            places[row] = first[which]
        found = {"source_words": tokens, "source_places": places}
        if self.export.goes_on_copying:
            before = np.roll(numbers, 1, axis=1)
            before[:, 0] = END
            found["source_before"] = np.where(tokens == PADDING, -1, before)
        return found

    def run(self) -> list[list[Output]]:
        while True:
            if self.step in (0, 1, self.options.min_len) or self.options.no_repeat_ngram:
                self._choose_count()
            forced = self._force()
            self.export.decoder.run_with_iobinding(self.binding)
            if self.aligned:
                self.attention_log[self.step, self.rows, : self.width] = self._attention()
            if self.unknown is not None:
                self.unknown.share(self.outputs[ATTENTION])
            if self.options.sampling:
                candidates = self._sampled(*self._scores(forced))
            elif self.groups:
                candidates = self._diverse(*self._scores(forced))
            else:
                candidates = self._best()
                for row, token in forced:
                    self._take_forced(row, token, *candidates)
            # the end symbol is rare, and special symbols have the smallest numbers
            ends = None
            if np.count_nonzero(candidates[1] <= END):
                ends = (candidates[1] == END) & (candidates[0] > NEVER)
                self._finish(ends, *candidates)
            if self.step >= self.first_limit:
                self.alive &= self.step < self.limits
            remaining = np.count_nonzero(self.alive)
            if not remaining:
                break
            self._continue(ends, *candidates)
            if remaining < KEPT * len(self.rows):
                self._keep(np.flatnonzero(self.alive))
        return [
            sorted(found, key=lambda hypothesis: -hypothesis.score)[: self.options.nbest]
            for found in self.finished
        ]

    def _bind(self) -> None:
        """Allocate arrays whose size depends on the number of sentences, and bind all arrays."""
        count, width = len(self.rows), self.width
        self.index = np.arange(count)[:, None]
        self.forced = np.zeros((count, width, 1), np.int64)
        self.outputs = {"forced_scores": np.empty((count, width, 1), np.float32)}
        attends = self.copied or self.unknown is not None or self.aligned and self.export.copies
        kinds = [ATTENTION] * attends + [COPIED] * self.copied
        for name in kinds:
            self.outputs[name] = np.empty((count, width, self.numbers.shape[1]), np.float32)
        if self.aligned and not self.export.copies:
            self.outputs[QUERY] = np.empty((count, width, self.export.query_size), np.float32)
        self.arrays["shape"] = np.array([count, width, -1], np.int64)
        self.arrays["forced"] = self.forced
        self.binding = self.export.decoder.io_binding()
        for name, array in self.arrays.items():
            self.binding.bind_ortvalue_input(name, self.export.value(array))
        for name, array in self.outputs.items():
            self.binding.bind_ortvalue_output(name, self.export.value(array))
        self._bind_candidates()
        if self.needs_all:
            self.binding.bind_output("log_probs")
        for name, value in zip(self.export.memory_names, self.memory):
            self.binding.bind_ortvalue_input(name, value)
        for name, cache in zip(self.export.cache_names, self.caches):
            value = self.export.value(cache.reshape(count * width, *cache.shape[2:]))
            self.binding.bind_ortvalue_input(name, value)
            self.binding.bind_ortvalue_output("new_" + name, value)

    def _choose_count(self) -> None:
        """Request enough candidates to keep 2 n after removing forbidden ones."""
        beam, options = self.options.beam, self.options
        self.never = [PADDING]
        if self.step < options.min_len:
            self.never.append(END)
        self.repeated = self._repeated() if options.no_repeat_ngram else []
        repeated = 0
        if self.repeated:
            repeated = max(Counter(row for row, _, _ in self.repeated).values())
        # in steps of 8, because each new number allocates memory
        count = 2 * beam + beam * len(self.never) + repeated + -repeated % 8
        if self.unknown is not None:
            count += beam  # <unk> of each hypothesis, which is divided
        count = min(count, self.export.most_candidates * self.width)
        if count != self.arrays["count"][0]:
            self.arrays["count"][0] = count
            self._bind_candidates()

    def _bind_candidates(self) -> None:
        shape = (len(self.rows), int(self.arrays["count"][0]))
        for name, kind in CANDIDATES.items():
            self.outputs[name] = np.empty(shape, kind)
            self.binding.bind_ortvalue_output(name, self.export.value(self.outputs[name]))

    def _repeated(self) -> list[tuple[int, int, int]]:
        """Row, hypothesis and token of each continuation that would repeat an n-gram."""
        size = self.options.no_repeat_ngram
        if self.history is None or self.step < size:
            return []
        written = self.history[:, :, 1 : self.step + 1]  # without the initial end symbol
        ngrams = sliding_window_view(written, size, axis=2)
        again = (ngrams[..., :-1] == ngrams[:, :, -1:, 1:]).all(axis=3)
        rows, numbers, _ = again.nonzero()
        return list(zip(rows.tolist(), numbers.tolist(), ngrams[again][:, -1].tolist()))

    def _force(self) -> list[tuple[int, int]]:
        """Request the scores of forced tokens: prefixes, and the end symbol at the limit."""
        if self.step >= self.prefixes and self.step < self.first_limit:
            return []
        rows = []
        for row, number in enumerate(self.rows):
            prefix = self.sources[number].prefix
            if self.step < len(prefix):
                rows.append((row, int(prefix[self.step])))
            elif self.step >= self.limits[row]:
                rows.append((row, END))
        for row, token in rows:
            self.forced[row] = token if token < self.vocabulary else UNKNOWN
        return rows

    def _take_forced(
        self, row: int, token: int, totals: np.ndarray, tokens: np.ndarray, parents: np.ndarray
    ) -> None:
        """Make a forced token the only candidate of each hypothesis."""
        width = self.width
        scores = self.arrays["totals"][row] + self.outputs["forced_scores"][row, :, 0]
        if token >= self.vocabulary and self.unknown is not None:
            scores = scores + self.unknown.shares[row, :, token - self.vocabulary]
        order = np.argsort(-scores, kind="stable")
        totals[row, :width], totals[row, width:] = scores[order], NEVER
        tokens[row], parents[row, :width] = token, order

    def _best(self) -> Candidates:
        """Totals, tokens and parents of the 2 n best candidates, each B x 2 n."""
        found = tuple(self.outputs[name] for name in CANDIDATES)
        if self.unknown is not None:
            found = self.unknown.divide(*found)
        _, tokens, parents = found
        if self.repeated or np.count_nonzero(tokens <= END):
            bad = (tokens[:, :, None] == self.never).any(axis=2)
            for row, number, token in self.repeated:
                bad[row] |= (parents[row] == number) & (tokens[row] == token)
            if bad.any():
                found[0][bad] = NEVER
                order = np.argsort(bad, axis=1, kind="stable")
                found = tuple(array[self.index, order] for array in found)
        return tuple(array[:, : 2 * self.options.beam] for array in found)  # type: ignore

    def _scores(self, forced: list[tuple[int, int]]) -> tuple[np.ndarray, int]:
        """Log-probabilities, B x n x W + m with m unknown subwords, -inf if forbidden; and W."""
        options = self.options
        log_probs = self.binding.get_outputs()[len(self.outputs)].numpy()
        if options.temperature != 1:
            log_probs = log_probs / options.temperature
            top = log_probs.max(axis=2, keepdims=True)
            log_probs -= top + np.log(np.exp(log_probs - top).sum(axis=2, keepdims=True))
        words = log_probs.shape[2]  # whole groups
        columns = log_probs
        if self.unknown is not None:
            columns = self.unknown.add_columns(log_probs)

        def place(token: int) -> int:
            return token if token < self.vocabulary else token - self.vocabulary + words

        kept = [
            (log_probs if token == UNKNOWN else columns)[row, :, place(token)].copy()
            for row, token in forced
        ]
        columns[:, :, self.never] = NEVER
        for row, number, token in self.repeated:
            columns[row, number, place(token)] = NEVER
        for (row, token), scores in zip(forced, kept):
            columns[row] = NEVER
            columns[row, :, place(token)] = scores
        return columns, words

    def _diverse(self, log_probs: np.ndarray, words: int) -> Candidates:
        """The 2 n candidates of fairseq's DiverseBeamSearch: group g has hypotheses g, g + G, ...

        A token loses the strength for each candidate of an earlier group that has it, and once more
        for each earlier token that both groups shared.
        """
        rows, _, columns = log_probs.shape
        size = 2 * self.options.beam // self.groups
        totals = np.empty((rows, size, self.groups), np.float32)
        tokens, parents = np.empty((2, rows, size, self.groups), np.int64)
        for group in range(self.groups):
            penalty = np.zeros((rows, columns), np.float32)
            for other in range(group):
                more = 1 + self.overlap[:, group, other, None]
                np.add.at(penalty, (self.index, tokens[:, :, other]), more)
            scores = log_probs[:, group :: self.groups]
            scores = scores - np.float32(self.options.diverse_beam_strength) * penalty[:, None]
            if self.step:
                scores = scores + self.arrays["totals"][:, group :: self.groups, None]
            else:  # all are equal
                scores = scores[:, :1]
            flat = scores.reshape(rows, -1)
            best = np.argsort(-flat, axis=1, kind="stable")[:, :size]
            totals[:, :, group] = flat[self.index, best]
            tokens[:, :, group] = best % columns
            parents[:, :, group] = best // columns * self.groups + group
        self.overlap += (tokens[:, :, :, None] == tokens[:, :, None]).sum(axis=1)
        tokens = np.where(tokens < words, tokens, tokens - words + self.vocabulary)
        return totals.reshape(rows, -1), tokens.reshape(rows, -1), parents.reshape(rows, -1)

    def _sampled(self, log_probs: np.ndarray, words: int) -> Candidates:
        """Totals, tokens and parents of one drawn token per hypothesis, each B x n."""
        options, own = self.options, words
        shape = log_probs.shape[:2]
        totals, tokens = np.full(shape, NEVER, np.float32), np.zeros(shape, np.int64)
        for row in np.flatnonzero(self.alive):
            if self.unknown is not None:  # draws do not depend on other sentences
                own = words + int(self.unknown.counts[row])
            scores = log_probs[row, :, :own]
            allowed = scores
            if options.sampling_topp:
                order = np.argsort(-scores, axis=1, kind="stable")
                found = np.exp(np.take_along_axis(scores, order, axis=1))
                beyond = np.zeros(scores.shape, bool)
                np.put_along_axis(
                    beyond, order, found.cumsum(axis=1) - found >= options.sampling_topp, axis=1
                )
                allowed = np.where(beyond, NEVER, scores)
            elif 0 < options.sampling_topk < scores.shape[1]:
                least = np.partition(scores, -options.sampling_topk, axis=1)
                least = least[:, -options.sampling_topk, None]
                allowed = np.where(scores >= least, scores, NEVER)
            # Gumbel-max: the index of the largest sum is a draw from the distribution
            chosen = (allowed + self.draws[row].gumbel(size=scores.shape)).argmax(axis=1)
            tokens[row] = np.where(chosen < words, chosen, chosen - words + self.vocabulary)
            totals[row] = self.arrays["totals"][row] + scores[np.arange(len(chosen)), chosen]
        return totals, tokens, np.broadcast_to(np.arange(shape[1]), shape)

    def _finish(
        self, ends: np.ndarray, totals: np.ndarray, tokens: np.ndarray, parents: np.ndarray
    ) -> None:
        """Store hypotheses that end among the n best candidates as finished."""
        beam = self.options.beam
        ends = ends[:, :beam]
        for row in np.flatnonzero(ends.any(axis=1) & self.alive):
            found = self.finished[self.rows[row]]
            for column in np.flatnonzero(ends[row])[: beam - len(found)]:
                found.append(self._hypothesis(row, parents[row, column], totals[row, column]))
            self.alive[row] = len(found) < beam

    def _hypothesis(self, row: Any, parent: Any, total: float) -> Output:
        source, parents, path = self.rows[row], [parent], []
        for log in self.log[: self.step, row][::-1]:
            path.append(log[parents[-1]].item())
            parents.append(path[-1][2])
        totals, tokens, _, places = zip(*path[::-1]) if path else [()] * 4
        scores = [after - before for after, before in zip([*totals, float(total)], [0.0, *totals])]
        score = float(total) / (self.step + 1) ** self.options.lenpen
        where = [None if at < 0 else at for at in places] if self.copied else []
        attention = None
        if self.aligned:
            attention = self.attention_log[range(self.step + 1), source, parents[::-1]]
            attention = attention[:, : len(self.sources[source].pieces)]
        complete = self.step < self.limits[row]
        return Output([*tokens, END], bool(complete), where, score, scores, attention)

    def _continue(
        self,
        ends: np.ndarray | None,
        totals: np.ndarray,
        tokens: np.ndarray,
        parents: np.ndarray,
    ) -> None:
        """Continue with the n best candidates that do not end."""
        beam, step, arrays = self.options.beam, self.step, self.arrays
        if ends is not None:
            if self.options.sampling:
                totals[ends] = NEVER
            else:
                order = np.argsort(ends, axis=1, kind="stable")[:, :beam]
                totals, tokens, parents = (
                    array[self.index, order] for array in (totals, tokens, parents)
                )
        totals, tokens, parents = totals[:, :beam], tokens[:, :beam], parents[:, :beam]
        log = self.log[step]
        log["total"], log["token"], log["parent"] = totals, tokens, parents
        if self.copied:
            log["copied"] = self._copied_from(totals, tokens, parents)
        if self.width < beam:
            self._widen()
        arrays["totals"][:] = totals
        arrays["tokens"][:] = tokens
        if self.step == 0 or self.prefixes or self.needs_all:
            # candidates without a score may have tokens outside the vocabulary
            arrays["tokens"][totals == NEVER] = END
        if self.history is not None:
            self.history[:, :, : step + 1] = self.history[self.index, parents, : step + 1]
            self.history[:, :, step + 1] = tokens
        if step + 1 == arrays["ancestors"].shape[2]:
            self._grow()
        ancestors = arrays["ancestors"]
        ancestors[:, :, :step] = ancestors[self.index, parents, :step]
        ancestors[:, :, step] = parents
        self.step += 1
        arrays["step"][0] = self.step

    def _attention(self) -> np.ndarray:
        """The attention of the last layer in this step, mean of its heads, B x n x S."""
        if self.export.copies:
            return self.outputs[ATTENTION].copy()
        keys = self.memory[self.export.last_keys].numpy()  # B x h x S x s
        rows, heads, _, size = keys.shape
        query = self.outputs[QUERY].reshape(rows, -1, heads, size).transpose(0, 2, 1, 3)
        scores = query @ keys.transpose(0, 1, 3, 2) * np.float32(size**-0.5)
        scores = np.where((self.numbers[self.rows] == PADDING)[:, None, None], NEVER, scores)
        weights = np.exp(scores - scores.max(axis=3, keepdims=True))
        weights /= weights.sum(axis=3, keepdims=True)
        return np.asarray(weights.mean(axis=1))

    def _copied_from(
        self, totals: np.ndarray, tokens: np.ndarray, parents: np.ndarray
    ) -> np.ndarray:
        """The source position that each new token copies, or -1, B x n.

        A token is copied if most of its probability is, and if it is unknown, as only the source
        has it.
        """
        same = self.numbers[self.rows][:, None] == tokens[:, :, None]  # B x n x S
        attention = np.where(same, self.outputs[ATTENTION][self.index, parents], -1)
        share = np.where(same, self.outputs[COPIED][self.index, parents], NEVER).max(axis=2)
        with np.errstate(invalid="ignore"):
            share -= totals - self.arrays["totals"][self.index, parents]
        unknown = (tokens == UNKNOWN) | (tokens >= self.vocabulary)
        copied = same.any(axis=2) & (unknown | (share > np.log(0.5)))
        return np.where(copied, attention.argmax(axis=2), -1)

    def _grow(self) -> None:
        """Double the capacity of the caches."""

        def doubled(array: np.ndarray, axis: int) -> np.ndarray:
            return np.concatenate([array, np.zeros_like(array)], axis=axis)

        self.caches = [doubled(cache, 3) for cache in self.caches]
        self.arrays["ancestors"] = doubled(self.arrays["ancestors"], 2)
        self._bind()

    def _keep(self, kept: np.ndarray) -> None:
        """Keep only these rows of the batch: the unfinished sentences."""
        for name in OF_SENTENCES:
            if name in self.arrays:
                self.arrays[name] = self.arrays[name][kept]
        for cache in self.caches:  # in place: new memory would cost more than all else here
            for new, old in enumerate(kept.tolist()):
                if new < old:
                    cache[new, :, :, : self.step] = cache[old, :, :, : self.step]
        self.caches = [cache[: len(kept)] for cache in self.caches]
        self.memory = [self.export.value(value.numpy()[kept]) for value in self.memory]
        self.rows, self.alive, self.limits = self.rows[kept], self.alive[kept], self.limits[kept]
        self.log, self.overlap = self.log[:, kept], self.overlap[kept]
        if self.unknown is not None:
            self.unknown.keep(kept)
        if self.history is not None:
            self.history = self.history[kept]
        if self.draws:
            self.draws = [self.draws[row] for row in kept]
        self._bind()


class _Unknown:
    """Divides <unk> among the subwords of B sources that the dictionary of V tokens lacks.

    This is `torch_backend.unknown.UnknownSubwords` for candidates.

    Args:
        lacking: B x S, j at the j-th distinct unknown subword of a sentence, below 0 elsewhere.
        vocabulary: V.

    Attributes:
        counts: B, the number of such subwords; at most m.
        shares: B x n x m, the logarithm of the share of each one in the last step.
    """

    def __init__(self, lacking: np.ndarray, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.counts = lacking.max(axis=1).clip(min=-1) + 1
        self.numbers = np.arange(self.counts.max())
        self.at = (lacking[:, :, None] == self.numbers).astype(np.float32)  # B x S x m
        self.shares = np.zeros(0, np.float32)

    def keep(self, kept: np.ndarray) -> None:
        """Keep only these sentences."""
        self.counts, self.at = self.counts[kept], self.at[kept]

    def divide(self, totals: np.ndarray, tokens: np.ndarray, parents: np.ndarray) -> Candidates:
        """Totals, tokens and parents of the candidates of a step, the best first."""
        divided = (tokens == UNKNOWN) & (self.counts > 0)[:, None]
        rows, columns = divided.nonzero()
        if not len(rows):
            return totals, tokens, parents
        whole = np.full(self.shares.shape[:2], NEVER, np.float32)
        whole[rows, parents[rows, columns]] = totals[rows, columns]
        more = whole[:, :, None] + self.shares
        totals = np.concatenate([np.where(divided, NEVER, totals), more.reshape(len(more), -1)], 1)
        more_tokens = np.broadcast_to(self.vocabulary + self.numbers, more.shape)
        more_parents = np.broadcast_to(np.arange(more.shape[1])[:, None], more.shape)
        tokens = np.concatenate([tokens, more_tokens.reshape(len(more), -1)], 1)
        parents = np.concatenate([parents, more_parents.reshape(len(more), -1)], 1)
        order = np.argsort(-totals, axis=1, kind="stable")
        found = (np.take_along_axis(array, order, axis=1) for array in (totals, tokens, parents))
        return tuple(found)  # type: ignore

    def add_columns(self, log_probs: np.ndarray) -> np.ndarray:
        """Log-probabilities, B x n x W, with m columns at the end."""
        whole = log_probs[:, :, UNKNOWN, None]
        log_probs = np.concatenate([log_probs, whole + self.shares], axis=2)
        log_probs[self.counts > 0, :, UNKNOWN] = NEVER
        return log_probs

    def share(self, attention: np.ndarray) -> None:
        """Compute the shares of a step from the attention that copies, B x n x S."""
        real = self.at.any(axis=1, keepdims=True)
        mass = attention @ self.at + np.where(real, np.float32(LEAST), 0)
        with np.errstate(divide="ignore"):
            shares = np.log(mass) - np.log(mass.sum(axis=2, keepdims=True).clip(min=LEAST))
        self.shares = np.asarray(shares, np.float32)
