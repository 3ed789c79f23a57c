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

        def cut_to_pieces(text: str) -> list[str]:
            return [] if is_blank(text) else model.cut(" ".join(normalise(text).split())).split()

        return cut_to_pieces
    if units == "bytes":
        # in UTF-8, each as two hexadecimal digits
        return lambda text: [
            f"{byte:02x}" for byte in " ".join(normalise(text).split()).encode("utf-8")
        ]
    # words equal to fairseq's special symbols are unknown
    return lambda text: ["<unk>" if w in SPECIAL else w for w in normalise(text).split()]
