"""Sentence boundaries in documents and summaries of one line each.

ROUGE-Lsum needs sentences, but fairseq has only lines and tokens. The token `BOUNDARY` separates
the sentences of a summary in the text, in the dictionary and in the model's output:

    Rain fell.<newline>It stopped.   ->   Rain fell. <q> It stopped.

The token is never split into pieces and never stands for text: the characters `<q>` in an article
become ordinary pieces.
"""

import re
import unicodedata
from collections.abc import Iterable

BOUNDARY = "<q>"
_UNSEEN = frozenset(("Cc", "Cf", "Zl", "Zp", "Zs"))  # categories of Unicode

# Words that do not end a sentence, even if a full stop and a capital follow.
ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof sen rep gov gen col capt lt sgt maj cmdr adm rev hon st sr jr vs etc inc "
    "ltd co corp jan feb mar apr jun jul aug sep sept oct nov dec fig figs eq al e.g i.e u.s "
    "u.k u.n a.m p.m d.c ph.d".split()
)
LONGEST_ABBREVIATION = max(map(len, ABBREVIATIONS))
# (?<!...): a run of marks is tried once, not from each of them
_END = re.compile(
    r"(?<![.!?])[.!?]+[\"'\u201d\u2019)\]]*\s+"  # the end of a sentence, with quotation marks,
    r"(?=[\"'\u201c\u2018(\[]*([^\W_]))"  # and the beginning of the next
    "|[\u3002\uff01\uff1f\uff61]+[\"'\u201d\u2019\u300d\u300f\uff09)\\]]*\\s*"  # Chinese, Japanese
    # of Indian languages, Urdu and Arabic
    r"|(?<![\u0964\u06d4\u061f])[\u0964\u06d4\u061f]+[\"'\u201d\u2019)\]]*\s+"
)


def is_blank(text: str) -> bool:
    """Whether a text has nothing to read: only spaces and invisible characters.

    Invisible are control and format characters, such as the zero-width space.
    """
    if text[:1].isalnum():
        return False
    return all(unicodedata.category(character) in _UNSEEN for character in text)


def join_sentences(sentences: Iterable[str]) -> str:
    """Sentences as one line, with `BOUNDARY` between them and single spaces."""
    clean = (" ".join(sentence.split()) for sentence in sentences)
    return f" {BOUNDARY} ".join(sentence for sentence in clean if sentence)


def separate_sentences(text: str) -> list[str]:
    """The sentences of a text, separated by `BOUNDARY` or newlines."""
    sentences = (" ".join(s.split()) for s in text.replace(BOUNDARY, "\n").split("\n"))
    return [sentence for sentence in sentences if sentence]


def split_sentences(text: str) -> list[str]:
    """The sentences of a text without the spaces between them, see `spaced_sentences`."""
    return list(map(str.strip, spaced_sentences(text)))


def spaced_sentences(text: str) -> list[str]:
    """The sentences of a text, found by punctuation and, in scripts that have them, capitals.

    A full stop after a known English abbreviation or a single initial does not end a sentence.
    Joined, they are the text with single spaces: all but the last keep the space after them.
    """
    text = " ".join(text.split())
    sentences, start = [], 0
    for found in _END.finditer(text):
        if found.group(1) and found.group(1).islower():
            continue
        before = text[max(start, found.start() - LONGEST_ABBREVIATION - 1) : found.start()]
        last = re.split(r"[^\w.]", before)[-1].lower()
        if found.group()[0] == "." and (last in ABBREVIATIONS or re.fullmatch(r"[a-z]", last)):
            continue
        if last == "no" and text[found.end() :][:1].isdigit():  # No. 1
            continue
        sentences.append(text[start : found.end()])
        start = found.end()
    return sentences + [text[start:]] if text[start:] else sentences
