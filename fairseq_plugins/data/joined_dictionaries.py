"""Join the two dictionaries of a prepared language pair, without segmenting its text again."""

import shutil
from pathlib import Path

import numpy as np

from fairseq_plugins.data.binary import concatenate
from fairseq_plugins.data.preparation import Preparation
from fairseq_plugins.data.prepared_folder import (
    RECORD,
    Prepared,
    check_intact,
    check_unsharded,
    fingerprint,
    needed_files,
)
from fairseq_plugins.data.readers import RAW
from fairseq_plugins.data.report import NAME
from fairseq_plugins.errors import ConfigurationError


def join_dictionaries(pair: Path, destination: Path) -> int:
    """Write a folder like `pair` with one dictionary, as --joined-dictionary would have made it.

    A subword of valid or test that was unknown stays unknown, even if the other side has it.

    Args:
        pair: a prepared folder with two dictionaries.
        destination: the folder to write.

    Returns:
        the number of types of the dictionary, without padding.

    Raises:
        ConfigurationError: `pair` was not prepared for a language pair, is damaged, has one
            dictionary already, tagged sources, or binary data that is not of --dataset-impl mmap;
            or `destination` exists with other content.
    """
    from fairseq.data import Dictionary
    from fairseq.data.indexed_dataset import best_fitting_int_dtype

    prepared = Prepared(pair)
    languages, settings = prepared.languages, prepared.settings
    check_unsharded(pair)
    if settings.get("tag"):
        raise ConfigurationError(f"{pair} has sources with a tag: join what it was distilled from")
    read = needed_files(pair)
    for path in read.values():
        check_intact(pair, path)
    source, target = (Dictionary.load(str(pair / f"dict.{side}.txt")) for side in languages)
    if source == target:
        raise ConfigurationError(f"{pair} has one dictionary for both languages already: train it")
    joined = Dictionary()
    for own in (source, target):
        for symbol, count in list(zip(own.symbols, own.count))[own.nspecial :]:
            if count or not symbol.startswith("madeupword"):  # which are padding
                joined.add_symbol(symbol, count)
    joined.finalize(padding_factor=8)
    types = sum(count > 0 for count in joined.count[joined.nspecial :])
    kind = best_fitting_int_dtype(len(joined))
    wanted = {**settings, "joined_dictionary": True, "pair": fingerprint(read.values())}
    with Preparation(destination, wanted) as preparation:
        if not preparation.finished:
            folder = preparation.folder
            for path in pair.iterdir():
                if path.is_file() and path.suffix not in (".bin", ".idx") and path.name != RECORD:
                    shutil.copyfile(path, folder / path.name)
            if (pair / RAW).is_dir():
                shutil.copytree(pair / RAW, folder / RAW)
            for side, own in zip(languages, (source, target)):
                joined.save(str(folder / f"dict.{side}.txt"))
                table = np.array([joined.index(symbol) for symbol in own.symbols], kind)
                for index in pair.glob(f"*.{'-'.join(languages)}.{side}.idx"):
                    concatenate([index.with_suffix("")], folder / index.stem, table)
            with open(folder / NAME, "a", encoding="utf-8") as report:
                report.write(f"The dictionaries were joined later, in one of {types:,} types\n")
            counted = prepared.record.results
            preparation.finish({**counted, "types": dict.fromkeys(languages, types)})
    return types
