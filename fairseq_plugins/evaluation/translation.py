"""BLEU and chrF of translations."""

import logging
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluation import TOKENISED_BLEU
from fairseq_plugins.evaluation.bootstrap import ONE_SIDED
from fairseq_plugins.evaluation.generation import read_output
from fairseq_plugins.evaluation.splits import check_files, evenly
from fairseq_plugins.files import read_lines, write_lines
from fairseq_plugins.preparation.documents import RAW
from fairseq_plugins.preparation.translation import SUBWORDS, TOKENISED
from fairseq_plugins.prepared_folder import dictionaries
from fairseq_plugins.text.languages import is_unspaced, two_letters
from fairseq_plugins.text.moses import Moses
from fairseq_plugins.text.processing import Processing
from fairseq_plugins.text.sentences import is_blank
from fairseq_plugins.text.subwords import KINDS

NO_FIGURE = f"{TOKENISED_BLEU} is not defined for text without spaces between words: skipped"
# languages without spaces for which sacreBLEU has no tokeniser: characters are compared
_BY_CHARACTER = ("bo", "dz", "km", "lo", "my", "th")


def bleu_of(language: str, lowercase: bool, sentences: bool = False) -> BLEU:
    """sacreBLEU's BLEU with the tokeniser for a target language.

    This is sacreBLEU's choice (13a, or those for Chinese, Japanese and Korean), but characters for
    languages without spaces for which it has no tokeniser.

    Args:
        language: the target language.
        lowercase: whether to ignore case.
        sentences: whether it scores single sentences, some with fewer than four words.

    Raises:
        ConfigurationError: the tokeniser is not installed.
    """
    code = two_letters(language)
    if code in _BY_CHARACTER:
        return BLEU(lowercase=lowercase, tokenize="char", effective_order=sentences)
    try:
        return BLEU(lowercase=lowercase, trg_lang=code, effective_order=sentences)
    except RuntimeError:
        raise ConfigurationError(
            f"BLEU of the language {language} needs a tokeniser: pip install 'sacrebleu[{code}]'"
        ) from None


class Text(NamedTuple):
    """One side of a test set, one line per sentence."""

    tokens: List[str]  # for tokenised BLEU
    plain: List[str]  # for BLEU and chrF


class Translations:
    """The references of a split, and the conversion of subwords to text for scoring.

    If the text was tokenised before preparation (BPE without a tokenizer), tokenised BLEU uses
    those tokens, and BLEU and chrF use text detokenised by Moses. With SentencePiece only,
    tokenised BLEU uses Moses tokens, if there are spaces between words.

    Args:
        data: a prepared folder.
        split: test, valid or train.
        target: the target language, one of the folder's two languages.
        option: the option that errors name; None: --split with its value.

    Raises:
        ConfigurationError: the folder was not prepared by this package, or lacks the split or the
            language, or the tokeniser for the language is not installed.
    """

    def __init__(self, data: Path, split: str, target: str, option: Optional[str] = None):
        settings = Processing.load(data)
        languages = (settings.source_lang, settings.target_lang)
        if target not in languages:
            raise ConfigurationError(
                f"the model translates to {target}, and {data} holds {' and '.join(languages)}"
            )
        self.split, self.lowercase = split, settings.lowercase
        self.words: List[str] = []  # extra options for fairseq-generate
        binary = [
            data / f"{split}.{'-'.join(languages)}.{language}.{end}"
            for language in languages
            for end in ("bin", "idx")
        ]
        raw, tokenised = (data / form / f"{split}.{target}" for form in (RAW, TOKENISED))
        self.files = [*dictionaries(data), *binary, raw, tokenised]
        option = option or f"--split {split}"
        self._source = data / RAW / f"{split}.{languages[languages[0] == target]}"
        self.text_files = [self._source]
        check_files(option, [*self.files, *self.text_files], data, data.glob("*.*-*.*.idx"))
        kind = KINDS[settings.subword]
        self._subwords = kind(data / kind.file_name)
        self.language = target
        self._moses, self._undo = Moses(two_letters(target)), settings.tokenise(target).undo
        self._tokenised_before = settings.tokenizer == "none" and settings.subword == "bpe"
        self._untokenised = settings.tokenizer == "none" and settings.subword != "bpe"
        plain = list(read_lines(raw))
        if self._tokenised_before:
            plain = [self._moses.detokenise(line) for line in plain]
        self.references = Text([self._tokens(line) for line in read_lines(tokenised)], plain)
        self.total = len(plain)
        self.notes = [NO_FIGURE] if not self._tokenised_before and is_unspaced(plain) else []
        self.metrics()  # fail before the test set is translated

    @property
    def blank(self) -> List[bool]:
        """For each line, whether its source has no visible text, and so no translation."""
        return [is_blank(line) for line in read_lines(self._source)]

    @property
    def source_pieces(self) -> List[str]:
        """The subwords of each source, separated by spaces; empty if the folder lacks them."""
        path = self._source.parents[2] / SUBWORDS / self._source.name
        return list(read_lines(path)) if path.is_file() else []

    def keep(self, lines: Sequence[int]) -> None:
        """Restrict `score` and `compare` to these lines of the split."""
        tokens, plain = self.references
        self.references = Text([tokens[i] for i in lines], [plain[i] for i in lines])
        self.total = len(lines)

    def text(self, pieces: Sequence[str]) -> Text:
        """Convert translations in subwords, separated by spaces, to tokens and to plain text."""
        lines = [self._subwords.join(line) for line in pieces]
        undo = self._moses.detokenise if self._tokenised_before else self._undo
        return Text([self._tokens(line) for line in lines], [undo(line) for line in lines])

    def _tokens(self, line: str) -> str:
        return self._moses.tokenise(line) if self._untokenised else line

    def metrics(self) -> Dict[str, Any]:
        """sacreBLEU metrics by name. Tokenised BLEU is not smoothed, as in multi-bleu.perl."""
        found: Dict[str, Any] = {}
        if not self.notes:
            found[TOKENISED_BLEU] = BLEU(
                tokenize="none", smooth_method="none", lowercase=True, force=True
            )
        found["BLEU"] = bleu_of(self.language, self.lowercase)
        found["chrF2"] = CHRF(lowercase=self.lowercase)
        return found

    def read(self, log: Path) -> Text:
        """Translations from the output of `evaluation.hypotheses`.

        Raises:
            ConfigurationError: sentences are missing.
        """
        found = read_output(log, self.total)
        for number, blank in enumerate(self.blank):
            if blank:  # earlier releases also translated such lines
                found[number] = ""
        return self.text(found)

    def write(self, text: Text, folder: Path) -> None:
        """Write hypotheses.tokens and hypotheses.txt, one translation per line."""
        write_lines(folder / "hypotheses.tokens", text.tokens)
        write_lines(folder / "hypotheses.txt", text.plain)

    def examples(self, text: Text, count: int) -> Iterator[str]:
        """Yield up to `count` translations, each after its source and reference."""
        sources = list(read_lines(self._source))
        for number in evenly(len(sources), count):
            yield f"  source      {sources[number]}"
            yield f"  reference   {self.references.plain[number]}"
            yield f"  translation {text.plain[number]}\n"

    @staticmethod
    def side(text: Text, metric: str) -> List[str]:
        """The form of the text that a metric needs: tokens or plain text."""
        return text.tokens if metric == TOKENISED_BLEU else text.plain

    def score(self, text: Text) -> Dict[str, Dict[str, Any]]:
        """Score and signature of each metric."""
        scores = {}
        for name, metric in self.metrics().items():
            result = metric.corpus_score(self.side(text, name), [self.side(self.references, name)])
            signature = str(metric.get_signature())
            scores[name] = {"score": result.score, "signature": signature}
        return scores

    def compare(self, ours: Text, baseline: Text, samples: int) -> Dict[str, Any]:
        """Paired bootstrap test (Koehn 2004) for each score, with sacreBLEU.

        Each sample draws as many sentences as the test set has, with replacement, and the same
        sentences for both systems. p is the share of samples whose absolute difference exceeds
        their mean absolute difference by more than the observed one: only the upper side, so a
        two-sided p is about twice as large. The interval contains 95 % of the samples' scores.

        Args:
            ours, baseline: the output of the two systems.
            samples: the number of bootstrap samples.

        Returns:
            for each metric, the same as `bootstrap.paired`.
        """
        texts = (baseline, ours)
        logging.getLogger("sacrebleu").setLevel(logging.WARNING)
        found: Dict[str, Any] = {}
        for name, metric in self.metrics().items():
            paired: Any = PairedTest(
                [(str(system), self.side(text, name)) for system, text in enumerate(texts)],
                {name: metric},
                [self.side(self.references, name)],
                test_type="bs",
                n_samples=samples,
            )
            signatures, results = paired()
            (key,) = signatures
            theirs, mine = results[key]
            difference = mine.score - theirs.score
            found[name] = {
                "score": mine.score,
                "interval": [float(mine.mean - mine.ci), float(mine.mean + mine.ci)],
                "baseline": theirs.score,
                "baseline_interval": [
                    float(theirs.mean - theirs.ci),
                    float(theirs.mean + theirs.ci),
                ],
                "difference": difference,
                # with equal systems no sample deviates, and sacreBLEU would report the smallest p
                "p": float(mine.p_value) if difference != 0 else 1.0,
                "sides": ONE_SIDED,
                "signature": str(signatures[key]),
            }
        return found
