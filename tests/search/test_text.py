"""Cutting lines that are too long for the model."""

from types import SimpleNamespace

import pytest

from fairseq_plugins.api import Translator
from fairseq_plugins.search.text import Output
from fairseq_plugins.text.processing import LengthLimit
from fairseq_plugins.text.protection import Restored
from fairseq_plugins.text.subwords import KINDS


class Echo:
    """Reads at most eight subwords, and writes each part between brackets, of two kinds."""

    name, max_source, max_output, min_len = "echo", 8, 8, 1
    summarizes = copies = False

    def __init__(self, kind):
        self.processor = SimpleNamespace(
            encode=str,
            decode=str,
            protection=None,
            restored=lambda pieces, line, repaired="": Restored(pieces, None),
            subwords=KINDS[kind],
            length_limit=LengthLimit(),
        )

    def search(self, inputs, count, copied, done, aligned):
        texts = [" ".join(each.pieces) for each in inputs]
        return [[Output(f"[{t}]", True), Output(f"({t})", t != "short")][:count] for t in texts]


@pytest.mark.parametrize(
    "kind, line, parts",
    [
        ("bpe", "a b c d e. f g h i j", ["a b c d e.", "f g h i j"]),  # after a sentence
        ("bpe", "a. b c d e f g@@ h@@ i j", ["a. b c d e f", "g@@ h@@ i j"]),  # after a word
        ("bpe", "a@@ b@@ c@@ d@@ e@@ f@@ g@@ h@@ i", ["a@@ b@@ c@@ d@@ e@@ f@@ g@@ h@@", "i"]),
        ("bpe", "\u5f88@@ \u597d@@ a@@ b@@ c@@ \u3002@@ \u6211@@ d@@ e", 6),
        ("sentencepiece", "\u2581a b c d e \u3002 \u4e1f f g", 6),
        ("sentencepiece", "\u2581a b c d e \uff1f f \u3002 g", 8),
        ("sentencepiece", "\u2581a \u2581b \u2581c d e. \u2581f g h i", 5),
    ],
)
def test_long_lines_are_cut_after_sentences_or_words(kind, line, parts):
    """`parts`, or the number of subwords in the first of two."""
    if isinstance(parts, int):
        pieces = line.split()
        parts = [" ".join(pieces[:parts]), " ".join(pieces[parts:])]
    translator = Translator(Echo(kind))
    assert translator.translate([line, "short"]) == [" ".join(f"[{p}]" for p in parts), "[short]"]
    assert translator.split == [1]
    assert translator.candidates([line, "", "short"], 2) == [
        [Output(" ".join(f"{a}{p}{b}" for p in parts), True) for a, b in ("[]", "()")],
        [Output("", True)],
        [Output("[short]", True), Output("(short)", False)],
    ]
