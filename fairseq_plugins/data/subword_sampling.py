"""Sample segmentations of words into subwords (subword regularisation).

A sampler has three steps: `prepare` analyses a word once, given the pieces of its usual
segmentation; `begin` sets the source of random numbers; `draw` samples a segmentation of the word
as indices of the dictionary. Segmentations with pieces that the dictionary lacks are never drawn.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.text.subwords import BytePairEncoding

Pieces = tuple[int, ...]  # indices of the dictionary
Random = Callable[[], float]  # uniform in [0, 1)


class _Segmentation:
    """The symbols of a word after some BPE merges, and the merges that are possible next."""

    __slots__ = ("symbols", "merges", "after", "pieces")

    def __init__(self, symbols: tuple[str, ...], merges: list[tuple[int, ...]]):
        self.symbols = symbols
        self.merges = merges  # positions of each mergeable pair, the best pair first
        self.after: dict[tuple[int, ...], _Segmentation] = {}  # by the merged positions
        # computed when first needed; empty if the dictionary lacks one of the pieces
        self.pieces: Pieces | None = None


class BPEDropout:
    """BPE-dropout (Provilkov et al., ACL 2020), with the steps of subword-nmt.

    BPE merges pairs of symbols, the best pair first. At each step, each possible merge is dropped
    with probability `dropout`. The word is complete if no merge is left.

    Two optimisations make this fast. The sampler draws the number of merges until the next dropped
    one, so that most words need only one comparison. It caches segmentations, so that the other
    words need one look-up per merge.

    Args:
        model: the file of merges.
        dictionary: fairseq's dictionary.
        dropout: the probability, at least 0 and below 1.
    """

    file_name = BytePairEncoding.file_name
    option = "--bpe-dropout"
    is_word_end = staticmethod(BytePairEncoding.is_word_end)
    attempts = 10  # attempts to draw known pieces, before the usual ones are returned
    memory = 200000  # cached segmentations

    def __init__(self, model: Path, dictionary: Any, dropout: float):
        bpe = BytePairEncoding(model).bpe
        self._ranks: dict[tuple[str, str], int] = bpe.bpe_codes
        self._separate_end = bpe.version == (0, 1)
        self._dictionary = dictionary
        self._per_gap = 1 / math.log1p(-dropout) if dropout else -math.inf
        self._seen: dict[tuple[str, ...], _Segmentation] = {}
        self._words: list[_Segmentation] = []

    def begin(self, random: Random) -> None:
        """Use `random` for all following draws."""
        self._random = random
        self._kept = self._gap()

    def _gap(self) -> float:
        """Number of merges kept before the next dropped one, from the geometric distribution."""
        return math.log(1.0 - self._random()) * self._per_gap // 1

    def prepare(self, pieces: Sequence[str]) -> Any | None:
        """Analyse a word for `draw`; None if `pieces` is not the model's segmentation."""
        word = "".join(piece[:-2] for piece in pieces[:-1]) + pieces[-1]
        if not word:
            return None
        symbols = (*word, "</w>") if self._separate_end else (*word[:-1], word[-1] + "</w>")
        start = now = self._segmentation(symbols)
        places = 0
        while now.merges:
            places += len(now.merges[0])
            now = self._merge(now, now.merges[0])
        usual = self._pieces(now)
        if not usual or usual != tuple(map(self._dictionary.index, pieces)):
            return None
        self._words.append(start)
        return places, usual, start

    def draw(self, word: Any) -> Pieces:
        """Sample a segmentation; returns indices of the dictionary."""
        places, usual, start = word
        for _ in range(self.attempts):
            if places <= self._kept:  # no merge of this word is dropped
                self._kept -= places
                return usual
            pieces = self._pieces(self._walk(start))
            if pieces:
                return pieces
        return usual

    def _walk(self, now: _Segmentation) -> _Segmentation:
        while True:
            for places in now.merges:
                if len(places) == 1:
                    if not self._keep():
                        continue
                else:
                    places = tuple([place for place in places if self._keep()])
                    if not places:
                        continue
                now = now.after.get(places) or self._merge(now, places)
                break
            else:
                return now

    def _keep(self) -> bool:
        if self._kept:
            self._kept -= 1
            return True
        self._kept = self._gap()
        return False

    def _merge(self, now: _Segmentation, places: tuple[int, ...]) -> _Segmentation:
        symbols: list[str] = []
        done = 0
        for place in places:
            if place >= done:  # pairs may overlap: of x x x merge only the first two
                symbols += now.symbols[done:place]
                symbols.append(now.symbols[place] + now.symbols[place + 1])
                done = place + 2
        after = self._segmentation((*symbols, *now.symbols[done:]))
        now.after[places] = after
        return after

    def _segmentation(self, symbols: tuple[str, ...]) -> _Segmentation:
        found = self._seen.get(symbols)
        if found is not None:
            return found
        if len(self._seen) >= self.memory:
            self._seen.clear()
            for word in self._words:
                word.after.clear()
        places: dict[int, list[int]] = {}
        for place, pair in enumerate(zip(symbols, symbols[1:])):
            rank = self._ranks.get(pair)
            if rank is not None:
                places.setdefault(rank, []).append(place)
        made = _Segmentation(symbols, [tuple(places[rank]) for rank in sorted(places)])
        self._seen[symbols] = made
        return made

    def _pieces(self, done: _Segmentation) -> Pieces:
        if done.pieces is None:
            symbols = list(done.symbols)
            symbols[-1] = symbols[-1][: -len("</w>")]
            if not symbols[-1]:
                del symbols[-1]
            index = self._dictionary.index
            pieces = (*(index(symbol + "@@") for symbol in symbols[:-1]), index(symbols[-1]))
            done.pieces = () if self._dictionary.unk() in pieces else pieces
        return done.pieces
