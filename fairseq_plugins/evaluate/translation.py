"""BLEU and chrF of translations."""

import copy
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from fairseq_plugins.api import Translator
from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.data.readers import RAW
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate import TOKENISED_BLEU, form_of
from fairseq_plugins.evaluate.test_sets import Output, Written, files_of_pair
from fairseq_plugins.files import read_lines
from fairseq_plugins.scoring.bootstrap import Metric
from fairseq_plugins.text.languages import is_unspaced, scored_as
from fairseq_plugins.text.moses import Moses
from fairseq_plugins.text.sentences import is_blank

NO_FIGURE = f"{TOKENISED_BLEU} is not defined for text without spaces between words: skipped"
# languages without spaces for which sacreBLEU has no tokeniser: characters are compared
_BY_CHARACTER = ("bo", "dz", "km", "lo", "my", "th")


class MissingTokeniser(ConfigurationError):
    """sacreBLEU's tokeniser for a language is not installed."""


def bleu_of(language: str, lowercase: bool, sentences: bool = False) -> BLEU:
    """sacreBLEU's BLEU with the tokeniser for a target language.

    This is sacreBLEU's choice (13a, or those for Chinese, Japanese and Korean), but characters for
    languages without spaces for which it has no tokeniser.

    Args:
        language: the target language.
        lowercase: whether to ignore case.
        sentences: whether it scores single sentences, some with fewer than four words.

    Raises:
        MissingTokeniser: the tokeniser is not installed.
    """
    code = scored_as(language)
    if code in _BY_CHARACTER:
        return BLEU(lowercase=lowercase, tokenize="char", effective_order=sentences)
    try:
        return BLEU(lowercase=lowercase, trg_lang=code, effective_order=sentences)
    except RuntimeError:
        raise MissingTokeniser(
            f"BLEU of the language {language} needs a tokeniser: pip install 'sacrebleu[{code}]'"
        ) from None


class Translations(Written):
    """The references of a split, and the conversion of subwords to text for scoring.

    References have the columns of an output: "hypothesis", the plain text, and "tokens".
    If the text was tokenised before preparation (BPE without a tokenizer), tokenised BLEU uses
    those tokens, and BLEU and chrF use text detokenised by Moses. With SentencePiece only,
    tokenised BLEU uses Moses tokens, if there are spaces between words.

    Args:
        data: a prepared folder.
        split: test, valid or train.
        target: the target language, one of the folder's two languages; None for the folder's.
        option: the option that errors name; None: --split with its value.

    Raises:
        ConfigurationError: the folder was not prepared by this package, or lacks the split or the
            language, or the tokeniser for the language is not installed.
    """

    kind = Translator

    def __init__(
        self,
        data: Path | Prepared,
        split: str,
        target: str | None = None,
        option: str | None = None,
    ):
        prepared = Prepared.of(data)
        data, settings, languages = prepared.folder, prepared.processing, prepared.languages
        target = target or settings.target_lang
        source = languages[languages[0] == target]
        self._processor = prepared.processor(source, target)  # which checks the languages
        self.data, self.lowercase = data, settings.lowercase
        raw, self._source = (data / RAW / f"{split}.{side}" for side in (target, source))
        self.files = files_of_pair(prepared, split, [raw, self._source], option)
        self._subwords = prepared.subwords
        self.language = target
        tokenise = self._tokenise = settings.tokenise(target)
        self._moses, self._undo = Moses(scored_as(target)), tokenise.undo
        self._tokenised_before = settings.tokenised_before
        self._untokenised = settings.tokenizer == "none" and not self._tokenised_before
        plain = list(read_lines(raw))
        if self._tokenised_before:
            plain = [self._moses.detokenise(line) for line in plain]
        tokens = [self._tokens(tokenise(line)) for line in read_lines(raw)]
        self.references = {"hypothesis": plain, "tokens": tokens}
        self.total = len(plain)
        self.notes = [NO_FIGURE] if not self._tokenised_before and is_unspaced(plain) else []
        self.sacrebleu()  # fail before the test set is translated

    @property
    def blank(self) -> list[bool]:
        """For each line, whether its source has no visible text, and so no translation."""
        return [is_blank(line) for line in read_lines(self._source)]

    @property
    def source_pieces(self) -> list[str]:
        """The subwords of each source, separated by spaces."""
        return [self._processor.encode(line) for line in read_lines(self._source)]

    def text(self, pieces: Sequence[str], sources: Sequence[str] | None = None) -> Output:
        """Convert translations in subwords, separated by spaces, to tokens and to plain text.

        The raw sources are for their protected text.
        """
        lines = [self._subwords.join(line) for line in pieces]
        undo = self._moses.detokenise if self._tokenised_before else self._undo
        plain = [undo(line) for line in lines]
        if sources is not None and self._processor.protection is not None:
            restored = partial(map, lambda *of: self._processor.restore(*of).text)
            plain = list(restored(plain, sources))
            before = self._tokenised_before
            lines = list(restored(lines, sources) if before else map(self._tokenise, plain))
        return {"hypothesis": plain, "tokens": [self._tokens(line) for line in lines]}

    def _tokens(self, line: str) -> str:
        return self._moses.tokenise(line) if self._untokenised else line

    def sacrebleu(self) -> dict[str, Any]:
        """sacreBLEU metrics by name. Tokenised BLEU is not smoothed, as in multi-bleu.perl."""
        found: dict[str, Any] = {}
        if not self.notes:
            found[TOKENISED_BLEU] = BLEU(
                tokenize="none", smooth_method="none", lowercase=True, force=True
            )
        found["BLEU"] = bleu_of(self.language, self.lowercase)
        found["chrF2"] = CHRF(lowercase=self.lowercase)
        return found

    def metrics(self, *outputs: Output) -> list[Metric]:
        """See `TestSet.metrics`."""
        return [of_sacrebleu(*named, self.references) for named in self.sacrebleu().items()]

    def written(self, model: Translator) -> Output:
        """See `Written.written`."""
        sources = list(read_lines(self._source))
        pieces = model.pieces(sources)
        self.cut_off = len(model.cut_off)
        return self.text(pieces, sources)

    def texts(self) -> Output:
        """See `TestSet.texts`."""
        return {"source": read_lines(self._source), "reference": self.references["hypothesis"]}


def of_sacrebleu(name: str, metric: Any, references: Output) -> Metric:
    """A metric of sacreBLEU on one form of the text."""
    form = form_of(name)
    lines = references[form]
    metric.corpus_score(lines[:1], [lines[:1]])  # now its signature tells the number of references

    def statistics(output: Output) -> np.ndarray:
        return np.array(metric._extract_corpus_statistics(output[form], [lines]), dtype=float)

    def score(sums: np.ndarray, metric: Any = metric) -> float:
        return metric._compute_score_from_stats(sums).score

    single = copy.copy(metric)
    single.effective_order = True  # for texts of fewer than four words
    of_text = None if name == TOKENISED_BLEU else partial(score, metric=single)
    return Metric(name, statistics, score, str(metric.get_signature()), False, of_text)
