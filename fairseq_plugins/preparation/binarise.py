"""fairseq-preprocess, run in this process."""

import argparse
import logging
from pathlib import Path
from typing import List, Sequence, Set

from fairseq_plugins.preparation.files import flush_to_disk, read_lines


def binarise(
    text: Path,
    splits: Sequence[str],
    languages: Sequence[str],
    destination: Path,
    joined_dictionary: bool = False,
    workers: int = 1,
) -> None:
    """Write the dictionaries and binary data of `text/{split}.{language}` into `destination`.

    Dictionaries hold every token of the train split. Files of an unfinished run are replaced.
    """
    from fairseq import options
    from fairseq_cli import preprocess

    destination = Path(destination)
    for language in languages:  # fairseq refuses to replace a dictionary
        dictionary = destination / "dict.{}.txt".format(language)
        if dictionary.exists():
            dictionary.unlink()
    source, target = languages
    words: List[str] = ["--source-lang", source, "--target-lang", target]
    for split in splits:
        words += ["--{}pref".format(split), str(text / split)]
    words += ["--destdir", str(destination), "--workers", str(workers)]
    if joined_dictionary:
        words.append("--joined-dictionary")
    handlers, tell = preprocess.logger.handlers[:], logging.raiseExceptions
    logging.raiseExceptions = False  # report a full disk once, not for each line of the log
    preprocess.logger.addFilter(_says_something)
    try:
        preprocess.main(options.get_preprocessing_parser().parse_args(words))
    finally:  # close the log file, otherwise the next run in this process would write to it
        for handler in set(preprocess.logger.handlers) - set(handlers):
            handler.close()
            preprocess.logger.removeHandler(handler)
        preprocess.logger.removeFilter(_says_something)
        logging.raiseExceptions = tell
    for path in destination.iterdir():
        if path.suffix in (".bin", ".idx", ".txt"):
            flush_to_disk(path)


def _says_something(record: logging.LogRecord) -> bool:
    """False for the dump of all options, most of which do not concern preprocessing."""
    return not isinstance(record.msg, argparse.Namespace)


def read_types(folder: Path, language: str) -> Set[str]:
    """The tokens in `dict.{language}.txt`; fairseq adds four special symbols to them."""
    tokens = (line.rpartition(" ")[0] for line in read_lines(folder / f"dict.{language}.txt"))
    return {token for token in tokens if not token.startswith("madeupword")}
