"""Read labelled texts from their original formats as lines ``label <TAB> text``."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fairseq_plugins.data.archives import read_members
from fairseq_plugins.data.readers import Document, Item, Unusable, text_of
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import LONGEST_LINE, read_lines
from fairseq_plugins.text.subwords import SPECIAL

REVIEW = re.compile(r"(?:^|/)(train|test)/(pos|neg)/(\d+)_\d+\.txt$")


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


def _reviews(path: Path) -> Iterator[tuple[str, bytes | None]]:
    if not path.is_dir():
        yield from read_members(path, lambda name: REVIEW.search(name) is not None)
        return
    for file in imdb_files(path):
        large = file.stat().st_size > LONGEST_LINE
        yield file.as_posix(), None if large else file.read_bytes()


def imdb_files(folder: Path) -> list[Path]:
    """The files of the labelled reviews in the folder aclImdb, sorted."""
    files = [file for part in ("train", "test") for file in (folder / part).glob("*/*.txt")]
    return sorted(file for file in files if REVIEW.search(file.as_posix()) and file.is_file())


def count_labels(targets: dict[str, Path]) -> dict[str, dict[str, int]]:
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
