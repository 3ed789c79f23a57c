"""Translate raw text with a trained or an exported model.

Translator("runs/transformer_ftc").translate(["Guten Morgen!"])
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.search.choose_engine import open_engine
from fairseq_plugins.search.engine import Engine, Input, Place, Progress, search
from fairseq_plugins.search.text import Lock, Output, encode, listed
from fairseq_plugins.text.processing import MORE, LengthLimit

PART_OF_WORD = 100  # subwords; long parts would be slow to translate, and have no sense
FULL_STOPS = ("\u3002", "\uff01", "\uff1f")  # full stops of Chinese and Japanese


class Scored(NamedTuple):
    """One of several translations of a line."""

    text: str
    score: float  # as in fairseq: sum of log-probabilities over length to the power of lenpen
    complete: bool = True  # False if it was stopped at the length limit
    tokens: tuple[str, ...] = ()  # the subwords of the text


class Translator:
    """Translates lines with beam search. Several threads may share one.

    Args:
        models, data: see `search.choose_engine.open_engine`.
        progress: show a bar on stderr; or a function that is called with the number of texts of
            each finished batch.
        options: options of `open_engine`, such as cpu=True, int8=True or threads=2, and of the
            search, such as beam=5, nbest=1, lenpen=1.0, sampling=True; see `search.options`.

    Attributes:
        engine: runs the model.
        max_length: maps the tokens of a source to the maximum subwords of its translation; at first
            the `LengthLimit` of the model's data, which a longer `min_len` or prefix raises.
        split: numbers (from 1) of lines that were too long for the model and translated in parts.
        cut_off: numbers of lines whose translation was stopped at the length limit. A service that
            runs for long should clear `split` and `cut_off`, which grow.
        lines_seen: how many lines were translated, also empty ones.

    Raises:
        ConfigurationError: as `search.choose_engine.open_engine`, or the model summarizes.
    """

    def __init__(
        self,
        models: Engine | Place | Sequence[Place],
        data: Place | None = None,
        *,
        progress: Progress = False,
        **options: Any,
    ) -> None:
        self.engine = open_engine(models, data, **options)
        if self.engine.summarizes:
            raise ConfigurationError(
                f"--model {self.engine.name} was trained with --task summarization: it is for the "
                "command summarize"
            )
        least = self._least = self.engine.min_len
        if least > self.engine.max_output:
            raise ConfigurationError(
                f"--min-len {least}: this model writes at most {self.engine.max_output:,} subwords"
            )
        self.processor, self.max_source = self.engine.processor, self.engine.max_source
        self.max_length: Callable[[int], int] = self.processor.length_limit
        self.split: list[int] = []
        self.cut_off: list[int] = []
        self._progress, self._nbest = progress, options.get("nbest", 1)
        self.lines_seen = 0
        self._counting = Lock()

    def translate(self, lines: Iterable[str]) -> list[str]:
        """One translation per line, in the order of `lines`; a line without words stays empty."""
        return [self.processor.decode(found) if found else "" for found in self.pieces(lines)]

    def pieces(self, lines: Iterable[str]) -> list[str]:
        """As `translate`, in the subwords of the model, separated by spaces."""
        return [outputs[0].pieces for outputs in self.candidates(lines, 1)]

    def candidates(
        self,
        lines: Iterable[str],
        count: int,
        prefixes: Iterable[str] | None = None,
        first: int = 0,
    ) -> list[list[Output]]:
        """Up to `count` translations per line in subwords, the best first; for a line without
        words,
        one empty translation. A line in parts joins the best of each part, the next best, ...

        Args:
            lines: raw text.
            count: at least 1; at most the beam size is returned.
            prefixes: for each line, raw text with which its translations must begin.
            first: the number (from 0) of the first line, for the draws of sampling and messages.

        Raises:
            ConfigurationError: a prefix or min_len is too long, or the number of prefixes is
                wrong.
        """
        lines = listed(lines)
        inputs: list[Input] = []
        begin = self._prefixes(lines, prefixes)
        split, cut_off = [], set()
        for number, line in enumerate(lines):
            pieces = encode(self.processor, line)
            if len(pieces) > self.max_source:
                split.append(number)
            for place, part in enumerate(self._within_limit(pieces)):
                prefix, begin[number] = begin[number], []  # the prefix of the first part
                limit = self.max_length(len(part) + 1)
                if isinstance(self.max_length, LengthLimit):
                    limit = max(limit, self._least, len(prefix) + MORE)
                limit = min(limit, self.engine.max_output)
                if self._least > limit:
                    raise ConfigurationError(
                        f"--min-len {self._least}: line {first + number + 1} has {len(part):,} "
                        f"subwords, which become at most {limit:,}: give a smaller number, or a "
                        "larger length limit"
                    )
                if len(prefix) > limit:
                    raise ConfigurationError(
                        f"prefix {first + number + 1} has {len(prefix):,} subwords, but the "
                        f"limit is {limit:,}: give a shorter one"
                    )
                inputs.append(Input(part, limit, prefix, first + number, place))
        found: list[list[list[Output]]] = [[] for _ in lines]
        searched = search(self.engine, inputs, count, self._progress)
        for each, outputs in zip(inputs, searched):
            found[each.number - first].append(outputs)
            if not outputs[0].complete:
                cut_off.add(each.number - first)
        with self._counting:
            before, self.lines_seen = self.lines_seen + 1, self.lines_seen + len(lines)
            self.split += [before + number for number in split]
            self.cut_off += [before + number for number in sorted(cut_off)]
        return [
            [
                Output(
                    " ".join(o.pieces for o in each),
                    all(o.complete for o in each),
                    score=sum(o.score for o in each),
                )
                for each in (zip(*outputs) if outputs else [()])
            ]
            for outputs in found
        ]

    def hypotheses(
        self,
        lines: Iterable[str],
        prefixes: Iterable[str] | None = None,
        split: bool = False,
        first: int = 0,
    ) -> list[list[Scored]]:
        """`nbest` translations per line with scores, the best first; "" for a line without words.

        Args:
            lines: raw text.
            prefixes: for each line, raw text with which its translations must begin.
            split: translate a line that is too long in parts, and add their scores.
            first: the number (from 0) of the first line, for the draws of sampling and messages.

        Raises:
            ConfigurationError: a prefix or min_len is too long, or the number of prefixes is
                wrong; or a line is too long, without `split`.
        """
        lines = listed(lines)
        for number, line in enumerate([] if split else lines, first + 1):
            length = len(encode(self.processor, line))
            if length > self.max_source:
                raise ConfigurationError(
                    f"line {number} has {length:,} subwords, but the model reads at most "
                    f"{self.max_source:,}: split it, or give split=True"
                )
        return [
            [
                Scored(
                    self.processor.decode(o.pieces) if o.pieces else "",
                    o.score,
                    o.complete,
                    tuple(o.pieces.split()),
                )
                for o in outputs
            ]
            for outputs in self.candidates(lines, self._nbest, prefixes, first)
        ]

    def _prefixes(self, lines: list[str], prefixes: Iterable[str] | None) -> list[list[str]]:
        """The subwords of the prefix of each line."""
        if prefixes is None:
            return [[] for _ in lines]
        prefixes = listed(prefixes)
        if len(prefixes) != len(lines):
            raise ConfigurationError(
                f"prefixes: there are {len(prefixes):,} for {len(lines):,} lines: give one for "
                'each line, "" for none'
            )
        return [self.processor.encode_target(prefix).split() for prefix in prefixes]

    def _within_limit(self, pieces: list[str]) -> list[list[str]]:
        """Split a long line: after a sentence in the second half, otherwise after a word.

        If half of the limit has no end of a word, the first `PART_OF_WORD` subwords are a part.
        """
        parts, start = [], 0
        while len(pieces) - start > self.max_source:
            window = range(start + self.max_source, start + self.max_source // 2, -1)
            words = [end for end in window if self.processor.subwords.is_word_end(pieces, end)]
            sentences = [end for end in words if pieces[end - 1][-1] in ".!?\u2026"]
            # Chinese and Japanese have no spaces, so a sentence may end within a word
            ends = {end for end in window if pieces[end - 1].replace("@@", "")[-1:] in FULL_STOPS}
            sentences = sorted({*sentences, *ends}, reverse=True)
            end = (sentences or words or [start + min(PART_OF_WORD, self.max_source)])[0]
            parts.append(pieces[start:end])
            start = end
        return parts + [pieces[start:]] if pieces else parts
