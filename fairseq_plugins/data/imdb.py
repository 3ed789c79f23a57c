"""The Large Movie Review Dataset (IMDB, Maas et al. 2011): reviews with two labels."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from fairseq_plugins.data.archives import read_members
from fairseq_plugins.data.classification import FIELDS, parse_labelled
from fairseq_plugins.data.readers import Example, Item, text_of
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import LONGEST_LINE, digest

REVIEW = re.compile(r"(?:^|/)(train|test)/(pos|neg)/(\d+)_\d+\.txt$")


def imdb_items(path: Path, valid_every: int) -> Iterator[Item]:
    """Yield the labelled reviews; the content of an item is a label and the bytes of a text.

    Args:
        path: the archive, or its folder aclImdb, which has train/pos and so on.
        valid_every: every n-th training review goes to valid.

    Raises:
        ConfigurationError: the archive cannot be read, or has no reviews.
    """
    found = 0
    for name, content in _files(path) if path.is_dir() else read_members(path, _is_review):
        split, label, number = REVIEW.search(name).groups()  # type: ignore[union-attr]
        if split == "train" and int(number) % valid_every == 0:
            split = "valid"
        found += 1
        yield Item(split, "/".join(name.split("/")[-3:]), (label, content))
    if not found:
        raise ConfigurationError(
            f"--imdb {path} holds no reviews (train/pos/0_9.txt and so on): give "
            "aclImdb_v1.tar.gz or its folder aclImdb"
        )


def _is_review(name: str) -> bool:
    return REVIEW.search(name) is not None


def _files(folder: Path) -> Iterator[tuple[str, bytes | None]]:
    for file in imdb_files(folder):
        large = file.stat().st_size > LONGEST_LINE
        yield file.as_posix(), None if large else file.read_bytes()


def imdb_files(folder: Path) -> list[Path]:
    """The files of the labelled reviews in the folder aclImdb, sorted."""
    files = [file for part in ("train", "test") for file in (folder / part).glob("*/*.txt")]
    return sorted(file for file in files if _is_review(file.as_posix()) and file.is_file())


def parse_review(item: Item) -> Example:
    """The example of a review."""
    label, content = item.content
    return parse_labelled(FIELDS, item._replace(content=(label, text_of(content))))


def imdb_identity(path: Path) -> str | dict[str, str]:
    """The checksum of the archive, or of the names and contents of the reviews in a folder."""
    if not path.is_dir():
        return {"archive": digest(path)}
    files = (f"{file.relative_to(path)} {digest(file)}" for file in imdb_files(path))
    return hashlib.sha256("\n".join(files).encode("utf-8", "surrogateescape")).hexdigest()
