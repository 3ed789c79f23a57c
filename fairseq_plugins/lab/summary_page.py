"""A Markdown page: summaries with their documents, references and first sentences."""

import html
from collections.abc import Sequence
from itertools import groupby

from fairseq_plugins.lab.lead import first_sentences
from fairseq_plugins.search.text import Summary
from fairseq_plugins.text.sentences import BOUNDARY, separate_sentences


def section(number: int, document: str, reference: str, summary: Summary) -> str:
    """The part of the page about one document.

    Args:
        number: the document's number, from 1.
        document: the document, on one line.
        reference: its reference summary, on one line.
        summary: the model's summary.

    Returns:
        lines without line ends: a heading, then the document, the reference, the first sentence
            and the summary, with copied subwords in bold.
    """
    ours = _plain(summary.summary) if summary.copied is None else mark_copied(summary.copied)
    read = "" if summary.read == summary.subwords else f", read to subword {summary.read:,}"
    rows = {
        f"Document ({summary.subwords:,} subwords{read})": _plain([document]),
        "Reference": _plain(separate_sentences(reference)),
        "Lead-1": _plain(first_sentences(document, 1)),
        "Summary": ours,
    }
    return "\n\n".join([f"## {number}", *(f"**{name}.** {text}" for name, text in rows.items())])


def mark_copied(pieces: Sequence[tuple[str, int | None]]) -> str:
    """The text of SentencePiece subwords, with copied ones between <b> and </b>.

    Args:
        pieces: each with the position it copies, or None.
    """
    text = ""
    for copied, run in groupby(pieces, key=lambda pair: pair[1] is not None):
        words = "".join(" " if piece == BOUNDARY else piece for piece, _ in run)
        words = html.escape(words.replace("\u2581", " "), quote=False)
        bare = words.lstrip()
        text += words[: len(words) - len(bare)] + (f"<b>{bare}</b>" if copied and bare else bare)
    return " ".join(text.split())


def _plain(sentences: list[str]) -> str:
    return html.escape(" ".join(sentences), quote=False)
