"""Sentences of a document or summary, and how their boundaries survive in a file of one line each.

fairseq knows lines and tokens, no sentences; ROUGE-Lsum needs them. Between two sentences of a
summary stands the token `BOUNDARY`, in the text, in the dictionary, and in what the model writes:

    Rain fell.<newline>It stopped.   ->   Rain fell. <q> It stopped.

It is a token of its own, never cut into pieces and never part of the text: an article that holds
the characters `<q>` is cut into ordinary pieces.
"""

import re
from typing import Iterable, List

BOUNDARY = "<q>"

# Not the end of a sentence although a full stop and a capital follow.
ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof sen rep gov gen col capt lt sgt maj cmdr adm rev hon st sr jr vs etc inc "
    "ltd co corp jan feb mar apr jun jul aug sep sept oct nov dec fig figs eq al e.g i.e u.s "
    "u.k u.n a.m p.m d.c ph.d".split()
)
_END = re.compile(
    r"[.!?]+[\"'\u201d\u2019)\]]*\s+"  # what ends a sentence, quotation marks that belong to it,
    r"(?=[\"'\u201c\u2018(\[]*[A-Z0-9])"  # and what begins one
)


def join_sentences(sentences: Iterable[str]) -> str:
    """One line: white space of any kind is one space, `BOUNDARY` stands between sentences."""
    clean = (" ".join(sentence.split()) for sentence in sentences)
    return " {} ".format(BOUNDARY).join(sentence for sentence in clean if sentence)


def separate_sentences(text: str, boundary: str = BOUNDARY) -> List[str]:
    """The sentences of a text in which `boundary` or new lines stand between them."""
    sentences = (" ".join(s.split()) for s in text.replace(boundary, "\n").split("\n"))
    return [sentence for sentence in sentences if sentence]


def split_sentences(text: str) -> List[str]:
    """The sentences of running English text, found by punctuation and capitals.

    A full stop after a known abbreviation or a single initial ends none. Nothing of the text is
    lost but white space.
    """
    text = " ".join(text.split())
    sentences, start = [], 0
    for found in _END.finditer(text):
        last = re.split(r"[^\w.]", text[start : found.start()])[-1].lower()
        if found.group()[0] == "." and (last in ABBREVIATIONS or re.fullmatch(r"[a-z]", last)):
            continue
        if last == "no" and text[found.end()].isdigit():  # No. 1
            continue
        sentences.append(text[start : found.end()].strip())
        start = found.end()
    return sentences + [text[start:]] if text[start:] else sentences
