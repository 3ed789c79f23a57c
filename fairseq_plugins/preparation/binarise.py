"""Run fairseq-preprocess in this process."""

import argparse
import contextlib
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from unittest import mock

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import flush_to_disk, read_lines
from fairseq_plugins.text.subwords import END
from fairseq_plugins.workers import Pool, killed


def binarise(
    text: Path,
    splits: Sequence[str],
    languages: Sequence[str],
    destination: Path,
    joined_dictionary: bool = False,
    workers: int = 1,
    like: Path | None = None,
    option: str = "--workers",
) -> None:
    """Write the dictionaries and binary data of `text/{split}.{language}` into `destination`.

    Files of an unfinished run are replaced.

    Args:
        text: the folder with the text.
        splits, languages: names of the files.
        destination: the folder to write.
        joined_dictionary: whether both languages share a dictionary.
        workers: number of processes.
        like: a folder whose dictionaries are used; None builds them from all tokens of train.
        option: the user's option that sets `workers`, for an error.
    """
    source, target = languages
    words: list[str] = ["--source-lang", source, "--target-lang", target]
    for split in splits:
        words += [f"--{split}pref", str(text / split)]
    if joined_dictionary:
        words.append("--joined-dictionary")
    if like is not None:
        words += ["--srcdict", str(like / f"dict.{source}.txt")]
        if not joined_dictionary:
            words += ["--tgtdict", str(like / f"dict.{target}.txt")]
    dictionaries = [f"dict.{language}.txt" for language in languages]
    _preprocess(words, Path(destination), dictionaries, workers, option)


def binarise_one_side(
    files: dict[str, Path],
    destination: Path,
    dictionary: Path | None = None,
    workers: int = 1,
) -> None:
    """Write `dict.txt` and the binary data `train`, `valid`, ..., from one text file per split.

    Args:
        files: the text file of each split.
        destination: the folder to write.
        dictionary: a dictionary to use; None builds one from all tokens of train.
        workers: number of processes.
    """
    words: list[str] = ["--only-source"]
    for split, path in files.items():
        words += [f"--{split}pref", str(path)]
    if dictionary is not None:
        words += ["--srcdict", str(dictionary)]
    _preprocess(words, Path(destination), ["dict.txt"], workers)


def _preprocess(
    words: list[str],
    destination: Path,
    dictionaries: Sequence[str],
    workers: int,
    option: str = "--workers",
) -> None:
    from fairseq import binarizer, options
    from fairseq.data import dictionary
    from fairseq_cli import preprocess

    for name in dictionaries:  # fairseq refuses to replace a dictionary
        if (destination / name).exists():
            (destination / name).unlink()
    # leftovers of workers from a killed run; fairseq overwrites only some of them
    for path in destination.glob("*.pt[0-9]*"):
        if path.suffix in (".bin", ".idx"):
            path.unlink()
    words += ["--destdir", str(destination), "--workers", str(workers)]
    pools = [mock.patch.object(module, "Pool", Pool) for module in (binarizer, dictionary)]
    try:
        with pools[0], pools[1], _only_to_its_file(preprocess.logger):
            preprocess.main(options.get_preprocessing_parser().parse_args(words))
    except BrokenProcessPool:
        raise ConfigurationError(killed(workers, "binarise", option)) from None
    for path in destination.iterdir():
        if path.suffix in (".bin", ".idx", ".txt"):
            flush_to_disk(path)


@contextlib.contextmanager
def _only_to_its_file(logger: logging.Logger) -> Iterator[None]:
    """Let fairseq-preprocess log to preprocess.log only; commands have their own report."""
    handlers, propagate, tell = logger.handlers[:], logger.propagate, logging.raiseExceptions
    logging.raiseExceptions = False  # report a full disk once, not for each line of the log
    logger.propagate = False
    logger.addFilter(_says_something)
    try:
        yield
    finally:  # close the log file; otherwise the next run in this process would write to it
        for handler in set(logger.handlers) - set(handlers):
            handler.close()
            logger.removeHandler(handler)
        logger.removeFilter(_says_something)
        logger.propagate, logging.raiseExceptions = propagate, tell


def _says_something(record: logging.LogRecord) -> bool:
    """Whether to log a record; False for fairseq's list of all options, mostly irrelevant here."""
    return not isinstance(record.msg, argparse.Namespace)


def count_unknown(texts: dict[str, Path], dictionaries: dict[str, Path]) -> dict[str, int]:
    """The tokens of texts that their dictionaries lack, so that the model sees ``<unk>``."""
    counts = {}
    for name, text in texts.items():
        types = {END, *_types(dictionaries[name])}  # between the texts of a pair
        counts[name] = sum(t not in types for line in read_lines(text) for t in line.split())
    return counts


def read_types(folder: Path, language: str) -> set[str]:
    """The tokens in `dict.{language}.txt`; fairseq adds four special symbols to them."""
    return _types(folder / f"dict.{language}.txt")


def _types(dictionary: Path) -> set[str]:
    tokens = (line.rpartition(" ")[0] for line in read_lines(dictionary))
    return {token for token in tokens if not token.startswith("madeupword")}
