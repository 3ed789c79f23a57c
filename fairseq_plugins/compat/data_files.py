"""Checks of prepared data: report a missing, truncated or empty file in one line.

A folder of fairseq-preprocess has a dict.<language>.txt for each language and, for each split and
language, the tokens (.bin) and the start of each sentence (.idx). fairseq checks none of them.
"""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import Dictionary, data_utils, indexed_dataset
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer

from fairseq_plugins.compat.patch import repair
from fairseq_plugins.compat.plugin import plugin
from fairseq_plugins.errors import ConfigurationError


class MissingData(ConfigurationError, FileNotFoundError):
    """A file that a prepared folder should have."""


def remake(folder: str) -> str:
    """Advice for the user: how to create a prepared folder again."""
    how, log = plugin.how_to_prepare(Path(folder)), os.path.join(folder, "preprocess.log")
    if not how:
        how = "run fairseq-preprocess again"
        how += f" with the options in {log}" if os.path.exists(log) else ""
    return f"remove {folder} and {how}"


def _no_folder(path: str) -> MissingData:
    return MissingData(f"DATA {path}: no such folder; fairseq-preprocess makes one")


@repair(Dictionary, "add_from_file")
def check_dictionaries(original: Callable, self: Dictionary, f: Any) -> None:
    """Check that dictionaries exist and can be read."""
    if not isinstance(f, str):
        return original(self, f)
    before = len(self)
    try:
        original(self, f)
    except FileNotFoundError:
        folder = os.path.dirname(f) or "."
        if os.path.isdir(folder):
            there = ", ".join(sorted(path.name for path in Path(folder).glob("dict.*.txt")))
            how = f"give the languages of {there}, or " if there else ""
            raise MissingData(f"{f} is missing: {how}{remake(folder)}") from None
        raise _no_folder(folder) from None
    except Exception as error:
        problem = str(error).splitlines()[0]
    else:
        problem = "it is empty" if len(self) == before else ""
    if problem:
        raise ConfigurationError(
            f"{f} is not a dictionary ({problem}): {remake(os.path.dirname(f) or '.')}"
        )


@repair(data_utils, "infer_language_pair")
def check_folders(original: Callable, path: str) -> tuple[str, str]:
    """Check that a folder exists and that its file names contain the languages."""
    try:
        source, target = original(path)
    except (FileNotFoundError, NotADirectoryError):
        raise _no_folder(path) from None
    if source is None:
        raise MissingData(
            f"DATA {path} has no prepared data (such as train.de-en.de.idx): give "
            f"--source-lang and --target-lang, or {remake(path)}"
        )
    return source, target


@repair(data_utils, "load_indexed_dataset")
def check_data(
    original: Callable, path: str, dictionary: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Check that .bin and .idx files are complete and fit the dictionary.

    This reads all tokens once, at the speed of the disk; training reads them anyway.
    """
    check_files(path, dictionary)
    try:
        return original(path, dictionary, *args, **kwargs)
    except (ArithmeticError, AssertionError, LookupError, RecursionError, ValueError) as error:
        how = remake(os.path.dirname(path) or ".")
        raise ConfigurationError(f"the data {path} cannot be read ({error}): {how}") from None


@repair(TranslationTask, "load_dataset")
def name_missing_subsets(
    original: Callable, self: TranslationTask, split: str, *args: Any, **kwargs: Any
) -> None:
    """Report what to do if a subset is missing, or only one of its files."""
    try:
        original(self, split, *args, **kwargs)
    except FileNotFoundError as error:
        if isinstance(error, MissingData):
            raise
        folder = str(self.cfg.data).split(os.pathsep)[0]
        source, target = self.cfg.source_lang, self.cfg.target_lang
        for pair in ((source, target), (target, source)):
            check_files(os.path.join(folder, "{}.{}-{}.{}".format(split, *pair, source)))
        raise MissingData(
            f"{folder} has no {split}.{source}-{target}.{source}.idx: choose another "
            f"subset or other languages, or {remake(folder)}"
        ) from None


def check_files(path: str, dictionary: Any = None) -> np.ndarray:
    """The tokens of each sentence in `path`.idx and `path`.bin, which belong together.

    If both are missing, there are none, and fairseq handles it.

    Raises:
        ConfigurationError: they do not, or the dictionary lacks a token.
    """
    index, tokens = indexed_dataset.index_file_path(path), indexed_dataset.data_file_path(path)
    how = remake(os.path.dirname(path) or ".")
    there = os.path.exists(index), os.path.exists(tokens)
    if not any(there):
        return np.zeros(0, np.int64)
    if not all(there):
        raise MissingData(f"{tokens if there[0] else index} is missing: {how}")
    try:
        sizes, ends, kind, first = _read_index(Path(index).read_bytes())
    except (OverflowError, struct.error) as error:
        raise ConfigurationError(f"{index} is cut short: {how}") from error
    except (KeyError, ValueError):
        raise ConfigurationError(f"{index} is damaged: {how}") from None
    expected = int(ends[-1]) if len(ends) else 0
    found = os.path.getsize(tokens)
    if found != expected:
        problem = "is cut short" if found < expected else "does not belong to its .idx"
        raise ConfigurationError(f"{tokens} {problem} ({found:,} bytes, not {expected:,}): {how}")
    if expected == 0:
        raise ConfigurationError(f"{tokens} is empty, as was the text it was made from: {how}")
    for file in (index, tokens):
        for folder in list(Path(file).parents)[:2]:  # some tasks have one folder per side
            plugin.check_intact(folder, Path(file))
    if dictionary is not None and kind is not None:
        written = np.memmap(tokens, dtype=kind, mode="r")
        largest = int(written.max()) - first
        if written.min() < first:
            raise ConfigurationError(f"{tokens} is damaged: {how}")
        if largest >= len(dictionary):
            language = path.rsplit(".", 1)[-1]
            raise ConfigurationError(
                f"{os.path.join(os.path.dirname(path), f'dict.{language}.txt')} has "
                f"{len(dictionary):,} entries, but {tokens} has the token {largest:,}: the "
                f"dictionary was cut or belongs to other data; {how}"
            )
    return sizes


def _read_index(content: bytes) -> tuple[np.ndarray, np.ndarray, np.dtype | None, int]:
    """Read an .idx file of one of fairseq's three formats.

    Returns:
        the number of tokens of each sentence; its end in the .bin file, in bytes; the type of the
            tokens there, None if they are compressed; what is added to each token there.

    Raises:
        OverflowError, struct.error: it is cut short.
        KeyError, ValueError: it is damaged.
    """

    def numbers(count: int, dtype: type, offset: int) -> np.ndarray:
        if len(content) < offset + np.dtype(dtype).itemsize * count:  # before memory is requested
            raise OverflowError
        return np.frombuffer(content, dtype, count, offset).astype(np.int64)

    kind, first, magic = None, 0, content[:8]
    if magic == b"MMIDIDX\0":  # the default
        version, code, count = struct.unpack_from("<QBQ", content, 9)
        kind = np.dtype(indexed_dataset._code_to_dtype[code])
        sizes = numbers(count, np.int32, 26)
        ends = numbers(count, np.int64, 26 + 4 * count) + sizes * kind.itemsize
    elif magic == b"TNTIDX\0\0":  # --dataset-impl lazy and cached; its tokens begin at 1
        version, code, width, count, axes = struct.unpack_from("<5Q", content, 8)
        kind, first = np.dtype(indexed_dataset._code_to_dtype[code]), 1
        one_axis = numbers(count + 1, np.int64, 48) == np.arange(count + 1)
        sizes = numbers(axes, np.int64, 56 + 8 * count + 8 * (count + 1))
        ends = numbers(count, np.int64, 56 + 8 * (count + 1)) * width
        if width != kind.itemsize or axes != count or not one_axis.all():
            raise ValueError
    elif magic == b"HUFFIDX\0":  # --dataset-impl huffman
        version, length, count = struct.unpack_from("<QQQ", content, 9)
        sizes, ends = numbers(count, np.int32, 33), numbers(count, np.int64, 33 + 4 * count)
        if length != (ends[-1] if count else 0):
            raise ValueError
    elif len(content) < 9:
        raise OverflowError
    else:
        raise ValueError
    lengths = np.diff(ends, prepend=0)
    if version != 1 or (sizes < 0).any() or (lengths < 0).any():
        raise ValueError
    if kind is not None and (kind.kind not in "iu" or (lengths != sizes * kind.itemsize).any()):
        raise ValueError
    return sizes, ends, kind, first


@repair(Trainer, "get_train_iterator")
def require_targets_for_training(
    original: Callable, self: Trainer, *args: Any, **kwargs: Any
) -> Any:
    """Refuse to train without targets: fairseq then silently loads only sources."""
    iterator = original(self, *args, **kwargs)
    _check_targets(self.task, self.cfg.dataset.train_subset)
    return iterator


@repair(Trainer, "get_valid_iterator")
def require_targets_for_validation(
    original: Callable, self: Trainer, subset: str, *args: Any, **kwargs: Any
) -> Any:
    """Refuse to validate without targets."""
    _check_targets(self.task, subset)
    return original(self, subset, *args, **kwargs)


def _check_targets(task: Any, subset: str) -> None:
    dataset = task.dataset(subset)
    if isinstance(task, TranslationTask) and getattr(dataset, "tgt", dataset) is None:
        folder = str(task.cfg.data).split(os.pathsep)[0]
        source, target = task.cfg.source_lang, task.cfg.target_lang
        raise MissingData(
            f"{os.path.join(folder, f'{subset}.{source}-{target}.{target}.idx')} is missing: "
            f"{remake(folder)}"
        )
