"""Make pairs for pre-training summarizers from documents without summaries."""

from collections import Counter
from typing import NamedTuple

from fairseq_plugins.text.languages import words
from fairseq_plugins.text.sentences import spaced_sentences

KINDS = ("lead", "gap")
GAP = "\u2026"  # replaces an extracted sentence; ordinary text, for which a piece is learnt


class Pretraining(NamedTuple):
    """Converts a document to a pair of document and summary.

    Args:
        kind: "lead": the first sentences are the summary of the rest (Zhu et al. 2019). "gap": the
            most important sentences are the summary, in the document's order, and `GAP` replaces
            each in the document. Importance is ROUGE-1 F1 of a single sentence against the rest
            (PEGASUS, Zhang et al. 2020, Ind-Orig).
        sentences: the number of sentences of a summary.
    """

    kind: str
    sentences: int

    def pair(self, text: str) -> tuple[str, list[str]]:
        """The document in one line and the sentences of its summary; "", [] if it is too short."""
        sentences = spaced_sentences(text)
        if len(sentences) <= self.sentences:
            return "", []
        if self.kind == "lead":
            summary = sentences[: self.sentences]
            return "".join(sentences[self.sentences :]), list(map(str.strip, summary))
        scores = importance(sentences)
        best = sorted(range(len(sentences)), key=lambda n: -scores[n])[: self.sentences]
        document = [
            sentence.replace(sentence.strip(), GAP) if n in best else sentence
            for n, sentence in enumerate(sentences)
        ]
        return "".join(document), [sentences[n].strip() for n in sorted(best)]


def importance(sentences: list[str]) -> list[float]:
    """ROUGE-1 (F1, without stemming) of each sentence against all others."""
    counts = [Counter(words(sentence)) for sentence in sentences]
    whole: Counter = sum(counts, Counter())
    total = sum(whole.values())
    return [
        2 * sum(min(n, whole[word] - n) for word, n in count.items()) / max(1, total)
        for count in counts
    ]
