"""The tokens of texts to classify: subwords, words or bytes."""

from collections.abc import Callable
from pathlib import Path

from fairseq_plugins.text.processing import normalise
from fairseq_plugins.text.sentences import is_blank
from fairseq_plugins.text.subwords import SPECIAL, SentencePiece

TASK = "classification"
Cut = Callable[[str], list[str]]


def find_cut(units: str, folder: Path) -> Cut:
    """Return the function that converts a text to its tokens.

    Args:
        units: "subwords", "words", "bytes", or "pixels", which are treated as words.
        folder: the folder with the subword model.
    """
    if units == "subwords":
        model = SentencePiece(folder / SentencePiece.file_name)
        return lambda text: [] if is_blank(text) else model.cut(_with_single_spaces(text)).split()
    if units == "bytes":  # in UTF-8, each as two hexadecimal digits
        return lambda text: [f"{b:02x}" for b in _with_single_spaces(text).encode("utf-8")]
    # words equal to fairseq's special symbols are unknown
    return lambda text: ["<unk>" if w in SPECIAL else w for w in normalise(text).split()]


def _with_single_spaces(text: str) -> str:
    return " ".join(normalise(text).split())
