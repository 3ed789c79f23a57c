"""The tokens of texts to classify: subwords, words or bytes."""

from collections.abc import Callable
from pathlib import Path

from fairseq_plugins.data.prepared_folder import RECORD, stored_settings, subword_model
from fairseq_plugins.errors import ConfigurationError
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


def load_cut(folder: Path) -> tuple[Cut, int | None]:
    """How a prepared folder converts raw texts to tokens.

    Returns:
        the function, and the number of tokens kept per text; None for all.

    Raises:
        ConfigurationError: the folder was not prepared for classification, lacks its subword model,
            or holds images or pairs of texts.
    """
    settings = stored_settings(folder)
    if settings.get("task") != TASK:
        raise ConfigurationError(
            f"{folder} was not made by prepare-classification, so {RECORD} does not say how to "
            "split text: give the folder with --data"
        )
    if settings["units"] == "pixels":
        raise ConfigurationError(f"{folder} was made from images: it takes no raw text")
    if settings.get("pairs"):
        raise ConfigurationError(f"{folder} was made from pairs of texts, but a line has only one")
    if settings["units"] == "subwords":
        subword_model(folder, SentencePiece.file_name)
    cut = find_cut(settings["units"], folder)
    positions = settings["max_positions"]
    return cut, None if positions is None else positions - 1
