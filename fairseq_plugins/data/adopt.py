"""Describe a folder of fairseq-preprocess, so that all commands take it as a prepared one."""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairseq.data import data_utils, indexed_dataset

from fairseq_plugins.compat.data_files import MissingData
from fairseq_plugins.data.cleaning import Limits
from fairseq_plugins.data.length_ratios import length_ratios
from fairseq_plugins.data.prepared_folder import RECORD, Record, needed_files
from fairseq_plugins.data.readers import RAW, SPLITS
from fairseq_plugins.errors import ConfigurationError, counted
from fairseq_plugins.files import count_lines, digest, read_lines, write_bytes, write_json
from fairseq_plugins.text.processing import NFC
from fairseq_plugins.text.subwords import KINDS, VERSION

LIMITS = Limits(max_words=1000, max_ratio=9)  # fairseq-preprocess skips no pair


def adopt(
    folder: Path,
    pair: tuple[str, str] | None,
    subword: str,
    model: Path,
    tokenizer: str,
    lowercase: bool,
    text: Path | None,
) -> list[str]:
    """Write `preparation.json`, and copy the subword model and the raw text into the folder.

    Args:
        folder: has dict.SOURCE.txt and dict.TARGET.txt, and usually binary data.
        pair: source and target language; None for those in the names of the binary data.
        subword: one of `subwords.KINDS`.
        model: the file of that kind; merges of fastBPE become those of subword-nmt.
        tokenizer: one of `processing.TOKENIZERS`, which was used before the subwords.
        lowercase: whether text was made lower-case before the subwords.
        text: has the raw text of splits as SPLIT.LANGUAGE; None for none.

    Returns:
        the splits that have text.

    Raises:
        ConfigurationError: a file is missing or does not fit, or the folder is a prepared one.
    """
    if (folder / RECORD).exists():
        raise ConfigurationError(f"{folder} has a {RECORD}: it needs no adoption")
    try:
        source, target = pair or data_utils.infer_language_pair(str(folder))
    except MissingData:
        raise ConfigurationError(
            f"DATA-BIN {folder} has no binary data that names its languages: give --source-lang "
            "and --target-lang"
        ) from None
    for path in (model, *(folder / f"dict.{side}.txt" for side in (source, target))):
        if not path.is_file():
            raise ConfigurationError(f"{path} is missing: is {folder} of fairseq-preprocess?")
    copies = _texts(folder, text, source, target) if text else {}
    kind = KINDS[subword]
    if subword == "sentencepiece":
        kind(model)  # raises an error if it is damaged
    content = _merges(model) if subword == "bpe" else model.read_bytes()
    write_bytes(folder / kind.file_name, content)
    for place, path in copies.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    sides = [(folder / f"dict.{side}.txt").read_bytes() for side in (source, target)]
    settings: dict[str, Any] = {
        "source_lang": source,
        "target_lang": target,
        "tokenizer": tokenizer,
        "lowercase": lowercase,
        "subword": subword,
        "normalization": NFC,
        # for `distill`, which prepares what a teacher writes in the same way
        **LIMITS._asdict(),
        "vocab_size": len(kind(folder / kind.file_name)),
        "joined_dictionary": sides[0] == sides[1],
        "valid_every": None,
    }
    digests = {name: digest(path) for name, path in needed_files(folder).items()}
    record = Record(settings, length_ratios=length_ratios(folder), sha256=digests)
    write_json(folder / RECORD, asdict(record))
    return sorted({place.stem for place in copies})


def _texts(folder: Path, text: Path, source: str, target: str) -> dict[Path, Path]:
    """The text of each split and language, by its place in the folder."""
    found = {}
    for split in SPLITS:
        for language in (source, target):
            path = text / f"{split}.{language}"
            binary = folder / f"{split}.{source}-{target}.{language}"
            if not path.is_file() or not indexed_dataset.dataset_exists(str(binary), None):
                continue
            lines, sentences = count_lines(path), len(data_utils.load_indexed_dataset(str(binary)))
            if lines != sentences:
                raise ConfigurationError(
                    f"--text {path} has {counted(lines, 'lines')}, but {binary} has "
                    f"{counted(sentences, 'sentences')}: give the text that was "
                    "binarised, before tokenisation and subwords"
                )
            found[folder / RAW / path.name] = path
    if not found:
        raise ConfigurationError(
            f"--text {text} has no text of {folder}: give a folder with test.{source} and "
            f"test.{target}"
        )
    return found


def _merges(codes: Path) -> bytes:
    """Merges in the form of subword-nmt; fastBPE adds counts and has no line for the version."""
    lines = [line.split(" ") for line in read_lines(codes)]
    if all(len(line) == 3 and line[2].isdigit() for line in lines):
        lines = [VERSION.split(" "), *(line[:2] for line in lines)]
    if any(len(line) != 2 for line in lines):
        raise ConfigurationError(f"--bpe-codes {codes} holds no merges of subword-nmt or fastBPE")
    return "".join(" ".join(line) + "\n" for line in lines).encode("utf-8")
