"""The numbers of tokens that a model reads of the texts in a prepared folder."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from fairseq.data import data_utils
from fairseq.models.transformer.transformer_config import DEFAULT_MAX_SOURCE_POSITIONS

from fairseq_plugins.compat.data_files import MissingData, check_files
from fairseq_plugins.data.prepared_folder import shards
from fairseq_plugins.errors import ConfigurationError, counted


def source_cut(args: argparse.Namespace) -> int | None:
    """The length to which --truncate-source or --shorten-method truncates; None without them."""
    if str(getattr(args, "shorten_method", "none")) != "none":
        return args.max_positions
    if not getattr(args, "truncate_source", False):
        return None
    # fairseq's own architectures set this default only when they build the model
    return getattr(args, "max_source_positions", DEFAULT_MAX_SOURCE_POSITIONS)


def sizes(*prefixes: Path) -> np.ndarray:
    """The tokens of each sentence in binarised files, such as of shards: paths without .idx.

    Raises:
        ConfigurationError: a file is damaged.
    """
    return np.concatenate([check_files(str(path)) for path in prefixes])


def _sides(
    data: Path, subset: str, source: str | None, target: str | None
) -> Iterator[tuple[list[Path], bool]]:
    """A subset's files without .idx, of all shards, and whether it is the source."""
    if not (source and target):
        try:
            source, target = data_utils.infer_language_pair(str(data))
        except MissingData:  # texts without languages
            return
    for pair in (f"{source}-{target}", f"{target}-{source}"):
        names = {f"{subset}.{pair}.{language}": language for language in (source, target)}
        there = {name: [s for s in shards(data) if (s / f"{name}.idx").is_file()] for name in names}
        for name, language in names.items():
            if there[name]:
                yield [shard / name for shard in there[name]], language == source
        if any(there.values()):
            return  # fairseq also reads the first order that exists


def measure(
    data: Path, given: argparse.Namespace, subset: str, limits: tuple[int, int] | None
) -> tuple[int, int] | None:
    """Measure the pairs of a subset.

    Args:
        data: the prepared folder.
        given: the options of a training: the languages (None for those of the data) and
            `source_cut`.
        subset: such as train.
        limits: the most tokens of a source and a target; fairseq skips longer pairs. None: none is.

    Returns:
        the tokens of the longest source or target that is not too long, and how many pairs are;
            None if the subset does not exist.

    Raises:
        ConfigurationError: the sides have different numbers of texts, or a file is damaged.
    """
    languages = (getattr(given, name, None) for name in ("source_lang", "target_lang"))
    sides, cut = list(_sides(data, subset, *languages)), source_cut(given)
    texts = data / "input0" / subset
    if texts.with_name(f"{subset}.idx").is_file():
        sides.append(([texts], True))
    found = []
    for prefixes, is_source in sides:
        lengths = sizes(*prefixes)
        found.append((np.minimum(lengths, cut) if cut and is_source else lengths, is_source))
    if len({len(lengths) for lengths, _ in found}) > 1:
        counts = " and ".join(
            f"{files[0].name} has {counted(len(lengths), 'texts')}"
            for (files, _), (lengths, _) in zip(sides, found)
        )
        raise ConfigurationError(f"DATA {data}: {counts}, so they are not pairs: prepare it again")
    if not found:
        return None
    too_long = np.zeros(len(found[0][0]), dtype=bool)
    if limits:
        for lengths, is_source in found:
            too_long |= lengths > limits[not is_source]
    longest = max(int(lengths[~too_long].max(initial=0)) for lengths, _ in found)
    return longest, int(too_long.sum())


def describe_cut(where: str, lengths: np.ndarray, limit: int, texts: str) -> str:
    """A line with the number of texts over a limit, and how much is not read.

    Args:
        where: the split.
        lengths: tokens of each text.
        limit: tokens that are read per text.
        texts: the name of these texts, such as "documents".
    """
    cut_off = np.maximum(lengths - limit, 0)
    return (
        f"{where}: {np.count_nonzero(cut_off):,} of {len(lengths):,} {texts} are longer than "
        f"{limit:,} positions and cut there: {cut_off.sum():,} of {lengths.sum():,} tokens "
        f"({100 * cut_off.sum() / max(1, lengths.sum()):.1f} %) are not read"
    )
