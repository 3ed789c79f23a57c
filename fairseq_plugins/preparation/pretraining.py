"""Pairs from documents without summaries, to pretrain a summarizer with."""

import re
from collections import Counter
from typing import List, NamedTuple, Tuple

from fairseq_plugins.preparation.sentences import split_sentences

KINDS = ("lead", "gap")
GAP = (
    "\u2026"  # stands where a sentence was taken out; ordinary text, which gets a piece of its own
)


class Pretraining(NamedTuple):
    """How a document becomes a pair.

    `lead`: the first sentences are the summary of what follows them (Zhu et al. 2019). `gap`: those
    sentences are taken out and are the summary, in their order, that have the most in common with
    the rest of the document, by the F1 of ROUGE-1 of each alone (PEGASUS, Zhang et al. 2020,
    Ind-Orig); `GAP` stands in their places.
    """

    kind: str
    sentences: int

    def pair(self, text: str) -> Tuple[str, List[str]]:
        """The document in one line, and the sentences of its summary; none if it is too short."""
        sentences = split_sentences(text)
        if len(sentences) <= self.sentences:
            return "", []
        if self.kind == "lead":
            return " ".join(sentences[self.sentences :]), sentences[: self.sentences]
        scores = importance(sentences)
        best = sorted(range(len(sentences)), key=lambda n: -scores[n])[: self.sentences]
        document = [GAP if n in best else sentence for n, sentence in enumerate(sentences)]
        return " ".join(document), [sentences[n] for n in sorted(best)]


def importance(sentences: List[str]) -> List[float]:
    """ROUGE-1 (F1, without stemming) of each sentence against all others."""
    counts = [Counter(re.findall(r"\w+", sentence.lower())) for sentence in sentences]
    whole: Counter = sum(counts, Counter())
    total = sum(whole.values())
    return [
        2 * sum(min(n, whole[word] - n) for word, n in count.items()) / max(1, total)
        for count in counts
    ]
