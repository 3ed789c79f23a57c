"""Extract the IWSLT'14 German-English archive as fairseq's prepare-iwslt14.sh does."""

import re
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from fairseq_plugins.data.archives import open_archive
from fairseq_plugins.data.download import DownloadError, check, fetch
from fairseq_plugins.data.readers import Corpus, Item, parse_texts
from fairseq_plugins.errors import ConfigurationError, counted
from fairseq_plugins.files import LONGEST_LINE, decode, digest, raw_lines

URL = "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
SIZE = 19982877
CHECKSUM = "md5:10936dfdf616504ddbd844e91b94ef4a"
VALID_EVERY = 23
PAIRS = "160239,7283,6750"
DOWNLOADS = "original"
LANGUAGES = ("de", "en")
TEST_FILES = (
    "IWSLT14.TED.dev2010",
    "IWSLT14.TEDX.dev2012",
    "IWSLT14.TED.tst2010",
    "IWSLT14.TED.tst2011",
    "IWSLT14.TED.tst2012",
)

_LEFT_OUT = ("<url>", "<talkid>", "<keywords>", "<speaker>")
_STRIPPED = re.compile(r"</?(?:title|description)>")
_SEGMENT_BEGIN = re.compile(r'<seg id="[0-9]*">\s*')
_SEGMENT_END = re.compile(r"\s*</seg>\s*")


def origin(given: Path | None, original: bool) -> str:
    """The checksum of the archive, for the settings of a preparation.

    Args:
        given: a copy of the archive; None to download it.
        original: whether the copy must be that of the papers.

    Raises:
        ConfigurationError: the copy cannot be read, or is another file.
    """
    try:
        if given is not None:
            check(given, CHECKSUM, SIZE)
    except DownloadError as error:
        if original or given is None or not given.is_file():
            raise ConfigurationError(
                f"{error}: give a complete copy of de-en.tgz, or for another archive the numbers "
                "of its pairs with --expect-pairs"
            ) from None
        return digest(given)
    return CHECKSUM


def train_lines(lines: Iterator[str]) -> Iterator[str]:
    """The text of `train.tags.de-en.*`: no metadata, and no tags around titles and descriptions."""
    for line in lines:
        if not any(tag in line for tag in _LEFT_OUT):
            yield _STRIPPED.sub("", line).strip()


def segments(lines: Iterator[str]) -> Iterator[str]:
    """The text of the `<seg>` lines of an xml file.

    The lines are not parsed as xml, because the files have unescaped `&`, and the original script
    keeps escaped characters as they are.
    """
    for line in lines:
        if "<seg id" in line:
            text = _SEGMENT_END.sub("", _SEGMENT_BEGIN.sub("", line))
            yield text.replace("\u2019", "'").strip()


def read(folder: Path, given: Path | None) -> Corpus:
    """The pairs of the archive, which is downloaded if no copy is given.

    Args:
        folder: the folder under construction.
        given: a copy of the archive.

    Raises:
        ConfigurationError: as `fetch` and `pairs_of`.
    """
    pairs = pairs_of(given or fetch(URL, folder / DOWNLOADS / "de-en.tgz", CHECKSUM, SIZE))
    return Corpus(pairs, partial(parse_texts, LANGUAGES), len(pairs))


def pairs_of(archive: Path) -> list[Item]:
    """The pairs of train, then those of test.

    Raises:
        ConfigurationError: the archive cannot be read, lacks a file, or its sides differ in length.
    """
    files = [("train", "train.tags.de-en.{}", train_lines)]
    files += [("test", f"{name}.de-en.{{}}.xml", segments) for name in TEST_FILES]
    found: dict[str, list[Item]] = {"train": [], "test": []}
    with open_archive(archive) as tar:
        names = {Path(member.name).name: member for member in tar if member.isfile()}
        for split, file, text_of in files:
            here = [file.format(language) for language in LANGUAGES]
            source, target = (list(text_of(_lines(tar, names, name, archive))) for name in here)
            if len(source) != len(target):
                raise ConfigurationError(
                    f"{here[1]} has {counted(len(target), 'lines')} of text, and the German side "
                    f"{len(source):,}: they must be aligned"
                )
            for pair in zip(source, target):
                found[split].append(Item(split, f"{split}:{len(found[split]) + 1}", pair))
    return found["train"] + found["test"]


def _lines(
    tar: tarfile.TarFile, names: dict[str, tarfile.TarInfo], name: str, archive: Path
) -> Iterator[str]:
    if name not in names:
        raise ConfigurationError(
            f"{archive} has no file {name}: is it the IWSLT'14 archive de-en.tgz?"
        )
    file = tar.extractfile(names[name])
    assert file is not None
    where = f"{name} in {archive}"
    with file:
        for number, line in enumerate(raw_lines(file, where), 1):
            if line is None:
                raise ConfigurationError(
                    f"{where}, line {number} is longer than {LONGEST_LINE:,} bytes"
                )
            yield decode(line, where, number)
