"""Initialise an embedding with pre-trained word vectors in the text format of GloVe or word2vec."""

import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import open_regular, raw_lines
from fairseq_plugins.system.progress import progress_bar

WORD_BEGINS = "\u2581"  # marks the start of a word in SentencePiece symbols
LOW_COVERAGE = 0.2  # share of the dictionary; a warning is logged below it

logger = logging.getLogger(__name__)


def load_word_vectors(path: str, dictionary: Any, embedding: nn.Embedding, option: str) -> None:
    """Set the embeddings of a dictionary's words to pre-trained vectors, in place.

    A SentencePiece symbol that starts a word (`▁the`) takes the vector of the word. Words without a
    vector are drawn from a normal distribution with the mean and covariance of the vectors found,
    as in Fastformer (section A.2). If the file has vectors for at most d symbols, the others stay
    unchanged. Padding stays zero.

    Args:
        path: a text file with a word and its d numbers per line, separated by single spaces. A
            first line of two integers is skipped: it is the header of word2vec.
        dictionary: fairseq's dictionary, of V symbols.
        embedding: V x d.
        option: the option that gave the file, such as "--encoder-embed-path", for messages.

    Raises:
        ConfigurationError: the file cannot be read or parsed, has vectors of another size, or has
            none of the dictionary's words.
    """
    wanted: dict[str, list[int]] = {}
    for index in range(len(dictionary)):
        if index != dictionary.pad():
            symbol = dictionary[index]
            word = symbol[1:] if symbol.startswith(WORD_BEGINS) else symbol
            wanted.setdefault(word or symbol, []).append(index)
    found = torch.zeros(len(dictionary), dtype=torch.bool)
    weight = embedding.weight.data
    try:
        for word, numbers in _read(path, embedding.embedding_dim, option):
            for index in wanted.pop(word, ()):
                weight[index] = numbers
                found[index] = True
    except OSError as error:
        raise ConfigurationError(f"{option} {path}: {error.strerror}") from None
    _report_coverage(found, dictionary, path, option)
    missing = ~found
    missing[dictionary.pad()] = False
    if int(found.sum()) > embedding.embedding_dim:
        weight[missing] = _draw_like(weight[found], int(missing.sum()))


def _read(path: str, dim: int, option: str) -> Iterator[tuple[str, Tensor]]:
    """Yield words and their vectors, d each. A word may contain spaces."""
    with open_regular(path) as file:
        lines = progress_bar(raw_lines(file, path), description="word vectors", unit=" words")
        size_is_known = False
        for number, line in enumerate(lines, 1):
            fields = (line or b"").decode("utf-8", "replace").rstrip().split(" ")
            if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                continue
            if not size_is_known:
                _check_size(len(fields) - 1, dim, path, option)
                size_is_known = True
            try:
                vector = torch.tensor([float(field) for field in fields[-dim:]])
            except ValueError:
                vector = torch.empty(0)
            if len(vector) != dim or len(fields) == dim or not vector.isfinite().all():
                raise ConfigurationError(
                    f"{option} {path}, line {number}: not a word and {dim} finite numbers (below "
                    "3.4e38) with single spaces between"
                )
            yield " ".join(fields[:-dim]), vector


def _check_size(size: int, dim: int, path: str, option: str) -> None:
    if size != dim:
        side = "encoder" if "encoder" in option else "decoder"
        raise ConfigurationError(
            f"{option} {path} has vectors of {size} numbers, but --{side}-embed-dim is {dim}: give "
            f"vectors of {dim}, or --{side}-embed-dim {size} with --{side}-attention-heads that "
            "divide it"
        )


def _report_coverage(found: Tensor, dictionary: Any, path: str, option: str) -> None:
    count, total = int(found.sum()), len(dictionary) - 1  # all symbols but padding
    if count == 0:
        examples = ", ".join(
            dictionary[index] for index in range(len(dictionary) - 3, len(dictionary))
        )
        raise ConfigurationError(
            f"{option} {path} has none of the dictionary's {total:,} words (such as {examples}): "
            "subwords have no vectors unless they are whole words, and case must match; "
            "give vectors for this dictionary's units, or remove the option"
        )
    logger.info(
        f"{option} {path}: {count:,} of the dictionary's {total:,} words found "
        f"({100 * count / total:.1f} %)"
    )
    if count < LOW_COVERAGE * total:
        logger.warning(
            "few of the dictionary's words have a vector: subwords lack them unless they are whole "
            "words, and case must match"
        )


def _draw_like(vectors: Tensor, count: int) -> Tensor:
    """Draw `count` x d normal vectors with the mean and covariance of `vectors`, N x d."""
    mean = vectors.mean(dim=0)
    centred = (vectors - mean).double()
    values, directions = torch.linalg.eigh(centred.t() @ centred / (len(vectors) - 1))
    root = directions * values.clamp(min=0).sqrt()
    noise = torch.randn(count, vectors.size(1), dtype=torch.float64)
    return mean + (noise @ root.t()).to(mean)
