"""How many tokens the texts of a prepared folder have, as a model reads them."""

import argparse
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Sequence, Tuple

import numpy as np
from fairseq.data import data_utils, indexed_dataset
from fairseq.models.transformer.transformer_config import DEFAULT_MAX_SOURCE_POSITIONS

from fairseq_plugins.compat.data_files import MissingData, check_files

Languages = Tuple[Optional[str], Optional[str]]  # of source and target; None: those of the data


def source_cut(args: argparse.Namespace) -> Optional[int]:
    """The length at which --truncate-source or --shorten-method cuts; None without them."""
    if str(getattr(args, "shorten_method", "none")) != "none":
        return args.max_positions
    if not getattr(args, "truncate_source", False):
        return None
    # fairseq's own architectures set this default only when they build the model
    return getattr(args, "max_source_positions", DEFAULT_MAX_SOURCE_POSITIONS)


def languages_of(given: argparse.Namespace) -> Languages:
    """The languages that the options name."""
    return getattr(given, "source_lang", None), getattr(given, "target_lang", None)


def sizes(prefix: Path) -> np.ndarray:
    """The tokens of each sentence in a binarised file; `prefix` is its path without .idx.

    Raises:
        ConfigurationError: the file is damaged.
    """
    path = str(prefix)
    check_files(path)
    dataset = indexed_dataset.make_dataset(path, impl=indexed_dataset.infer_dataset_impl(path))
    # a copy, because the memory map closes with the dataset
    return np.array(dataset.sizes)


def _sides(data: Path, subset: str, languages: Languages) -> Iterator[Tuple[Path, bool]]:
    """The files of a subset's languages, without .idx, and whether each is the source."""
    source, target = languages
    if not (source and target):
        try:
            source, target = data_utils.infer_language_pair(str(data))
        except MissingData:  # texts without languages
            return
    for pair in (f"{source}-{target}", f"{target}-{source}"):
        names = [(f"{subset}.{pair}.{language}", language) for language in (source, target)]
        there = [each for each in names if (data / f"{each[0]}.idx").is_file()]
        yield from ((data / name, language == source) for name, language in there)
        if there:
            return  # fairseq, too, reads the first order that is there


def longest_sentences(
    data: Path,
    languages: Languages,
    subsets: Sequence[str],
    cut: Optional[int] = None,
    positions: Optional[int] = None,
) -> Dict[str, int]:
    """The tokens of the longest sentence, source or target, of each subset that exists.

    Sources, and texts to classify, count at most `cut` tokens. Sentences of more than `positions`
    tokens do not count.
    """

    def longest_of(prefix: Path, cut: Optional[int]) -> int:
        lengths = sizes(prefix) if cut is None else np.minimum(sizes(prefix), cut)
        return int(lengths[lengths <= (positions or np.inf)].max(initial=0))

    longest: Dict[str, int] = {}
    for subset in subsets:
        texts = data / "input0" / subset
        if texts.with_name(f"{subset}.idx").is_file():
            longest[subset] = longest_of(texts, cut)
        for prefix, is_source in _sides(data, subset, languages):
            size = longest_of(prefix, cut if is_source else None)
            longest[subset] = max(longest.get(subset, 0), size)
    return longest


def describe_cut(where: str, lengths: np.ndarray, limit: int, texts: str) -> str:
    """A line that tells how many texts are longer than a limit, and how much is not read.

    Args:
        where: the split.
        lengths: tokens of each text.
        limit: tokens that are read of a text.
        texts: what they are called, such as "documents".
    """
    cut_off = np.maximum(lengths - limit, 0)
    return (
        f"{where}: {np.count_nonzero(cut_off):,} of {len(lengths):,} {texts} are longer than "
        f"{limit:,} positions and cut there: {cut_off.sum():,} of {lengths.sum():,} tokens "
        f"({100 * cut_off.sum() / max(1, lengths.sum()):.1f} %) are not read"
    )


def count_too_long(
    data: Path, languages: Languages, subset: str, source: int, target: int, cut: Optional[int]
) -> int:
    """How many pairs have more tokens than these numbers, which fairseq leaves out of training.

    Sources count at most `cut` tokens.
    """
    found: Any = 0
    for prefix, is_source in _sides(data, subset, languages):
        lengths = sizes(prefix)
        if is_source:
            found = found | (np.minimum(lengths, cut or np.inf) > source)
        else:
            found = found | (lengths > target)
    return int(np.sum(found))
