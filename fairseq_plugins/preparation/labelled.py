"""Read labelled texts from their original formats as lines ``label <TAB> text``."""

import re
from collections import Counter
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import LONGEST_LINE, read_lines
from fairseq_plugins.preparation.archives import read_members
from fairseq_plugins.preparation.documents import Document, Item, Unusable, text_of
from fairseq_plugins.text.subwords import SPECIAL

REVIEW = re.compile(r"(?:^|/)(train|test)/(pos|neg)/(\d+)_\d+\.txt$")
IMAGES = re.compile(r"(?:^|/)(data_batch_\d|test_batch)\.bin$")
CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()  # CIFAR-10's order
PIXELS = 32 * 32


def read_labelled(item: Item) -> Document:
    """Convert ``label <TAB> text`` in bytes to a document with the label as its target.

    Each run of white space becomes one space; nothing else changes.
    """
    label, tab, text = text_of(item.content).partition("\t")
    if not tab:
        raise Unusable("no tab between label and text")
    label, text = label.strip(), " ".join(text.split())
    if len(label.split()) != 1 or label in SPECIAL:
        raise Unusable("no label of one word")
    if not text:
        raise Unusable("no text")
    return Document(item.split, item.name, text, label)


def imdb_items(path: Path, valid_every: int) -> Iterator[Item]:
    """The labelled reviews of the Large Movie Review Dataset (Maas et al. 2011).

    Args:
        path: the archive, or its folder aclImdb, which has train/pos and so on.
        valid_every: every n-th training review goes to valid.

    Raises:
        ConfigurationError: the archive cannot be read, or has no reviews.
    """
    found = 0
    for name, content in _reviews(path):
        match = REVIEW.search(name)
        assert match is not None
        split, label, number = match.groups()
        if split == "train" and int(number) % valid_every == 0:
            split = "valid"
        found += 1
        text = None if content is None else label.encode() + b"\t" + content
        yield Item(split, "/".join(name.split("/")[-3:]), text)
    if not found:
        raise ConfigurationError(
            f"--imdb {path} holds no reviews (train/pos/0_9.txt and so on): give "
            "aclImdb_v1.tar.gz or its folder aclImdb"
        )


def _reviews(path: Path) -> Iterator[Tuple[str, Optional[bytes]]]:
    if not path.is_dir():
        yield from read_members(path, lambda name: REVIEW.search(name) is not None)
        return
    for file in imdb_files(path):
        large = file.stat().st_size > LONGEST_LINE
        yield file.as_posix(), None if large else file.read_bytes()


def imdb_files(folder: Path) -> List[Path]:
    """The files of the labelled reviews in the folder aclImdb, sorted."""
    files = [file for part in ("train", "test") for file in (folder / part).glob("*/*.txt")]
    return sorted(file for file in files if REVIEW.search(file.as_posix()))


def cifar10_items(path: Path, valid_every: int) -> Iterator[Item]:
    """The images of the binary version of CIFAR-10, each as 1,024 grey levels.

    A record is one byte for the class, then 3 x 1,024 bytes for red, green and blue, row by row.
    The grey level is ``0.299 R + 0.587 G + 0.114 B``, rounded to an integer from 0 to 255.

    Args:
        path: cifar-10-binary.tar.gz.
        valid_every: every n-th image of the training files goes to valid.

    Raises:
        ConfigurationError: the archive is not the binary version.
    """
    number = 0
    for name, content in read_members(path, lambda name: IMAGES.search(name) is not None):
        size = 1 + 3 * PIXELS
        if content is None or len(content) % size or max(content[::size], default=0) > 9:
            raise ConfigurationError(
                f"--cifar10 {path}: {name} is not a file of CIFAR-10's binary version"
            )
        for start in range(0, len(content), size):
            split = "test" if "test_batch" in name else "train"
            if split == "train":
                number += 1
                split = "valid" if number % valid_every == 0 else "train"
            image = content[start + 1 : start + size]
            red, green, blue = (image[c * PIXELS : (c + 1) * PIXELS] for c in range(3))
            levels = [
                (299 * r + 587 * g + 114 * b + 500) // 1000 for r, g, b in zip(red, green, blue)
            ]
            text = f"{CLASSES[content[start]]}\t{' '.join(map(str, levels))}"
            yield Item(split, f"{name.rpartition('/')[2]}:{start // size}", text.encode())
    if not number:
        raise ConfigurationError(
            f"--cifar10 {path} holds no data_batch_1.bin: give cifar-10-binary.tar.gz, the version "
            "for C programs (the one for Python holds pickles, which can run code)"
        )


def count_labels(targets: Dict[str, Path]) -> Dict[str, Dict[str, int]]:
    """Count each label in the files of each split; labels are in alphabetical order.

    Raises:
        ConfigurationError: train has fewer than two labels, or another split has a label that is
            not in train.
    """
    counts = {
        split: dict(sorted(Counter(read_lines(path)).items())) for split, path in targets.items()
    }
    known = counts["train"]
    if len(known) < 2:
        raise ConfigurationError(
            f"all texts of train have the label {next(iter(known))}: at least two labels are needed"
        )
    for split, labels in counts.items():
        strange = [label for label in labels if label not in known]
        if strange:
            raise ConfigurationError(
                f"{split} has {len(strange)} label(s) that train does not have, such as "
                f"{strange[0]}: a classifier knows only the labels of train"
            )
    return counts
