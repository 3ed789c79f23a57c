"""News stories in the format of the CNN/DailyMail corpus: `.story` files in tar archives.

A `.story` file has the paragraphs of the article, separated by empty lines, and then the
highlights, each after a line `@highlight`. Its name is the SHA-1 of the story's URL.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from fairseq_plugins.data.archives import read_members
from fairseq_plugins.data.readers import Unusable, text_of
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import LONGEST_LINE, read_input

MARK = "@highlight"
ENDS = (".", "!", "?", "...", "\u2026", "'", "`", '"', "\u2019", "\u201d", ")")


def parse_story(content: bytes | None) -> tuple[list[str], list[str]]:
    """Split a `.story` file into the paragraphs of its article and its highlights.

    Each paragraph and highlight that ends with neither punctuation nor a quotation mark gets a full
    stop, as in See et al. 2017.

    Args:
        content: the file; None if it is too long.

    Raises:
        Unusable: it is too long, not UTF-8, or has no article or highlights.
    """
    if content is None:
        raise Unusable(f"more than {LONGEST_LINE:,} bytes")
    article: list[str] = []
    highlights: list[str] = []
    after_mark = False
    for line in re.split(r"\r\n|\r|\n", text_of(content).lstrip("\ufeff")):
        line = " ".join(line.split())
        if line == MARK:
            after_mark = True
            highlights.append("")
        elif line and after_mark:
            highlights[-1] = (highlights[-1] + " " + line).strip()
        elif line:
            article.append(line)
    highlights = [highlight for highlight in highlights if highlight]
    if not article or not highlights:
        raise Unusable("no highlights" if article else "no article" if highlights else "empty")
    # in highlights with a space before it, as in most highlights of the corpus
    return [with_full_stop(x, ".") for x in article], [with_full_stop(x, " .") for x in highlights]


def with_full_stop(line: str, stop: str) -> str:
    """The line, with `stop` added if it does not end with punctuation or a quotation mark."""
    return line if line.endswith(ENDS) else line + stop


def read_story_files(
    archives: Iterable[str | Path],
) -> Iterator[tuple[str, bytes | None]]:
    """Ids and contents of the `.story` files of tar archives, read sequentially.

    One story is in memory at a time; None replaces a story over `LONGEST_LINE`.

    Raises:
        ConfigurationError: an archive is missing, damaged, or holds no story.
    """
    for path in archives:
        found = 0
        for name, content in read_members(path, lambda name: name.endswith(".story")):
            found += 1
            yield name.rpartition("/")[2].removesuffix(".story"), content
        if not found:
            raise ConfigurationError(f"{path} holds no file named *.story")


def read_ids(path: str | Path) -> list[str]:
    """Story ids from a file with one per line: an id, a file name, or the story's URL.

    Raises:
        ConfigurationError: the file is missing or empty, or a line is not an id.
    """
    ids = []
    for number, line in enumerate(read_input(path), 1):
        line = (line or "").strip()
        if not line:
            continue
        if "://" in line:
            line = hashlib.sha1(line.encode("utf-8")).hexdigest()
        line = line.removesuffix(".story")
        if not line or " " in line:
            raise ConfigurationError(
                f"{path}, line {number}: '{line}' is neither a story's id nor its URL"
            )
        ids.append(line)
    if not ids:
        raise ConfigurationError(f"{path} is empty: give one story per line")
    return ids
