"""A small corpus, and an IWSLT'14 archive in the original layout."""

import io
import random
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest

from fairseq_plugins.cli import prepare_iwslt14
from fairseq_plugins.files import write_lines
from fairseq_plugins.system import workers


@pytest.fixture
def corpus(tmp_path):
    """A folder with 40, 20, 5 and 4 pairs, French to English."""
    generator = random.Random(1)
    folder = tmp_path / "raw"
    for split, size in (("train", 40), ("more", 20), ("valid", 5), ("test", 4)):
        numbers = [generator.randint(0, 999) for _ in range(size)]
        write_lines(folder / (split + ".fr"), [f"L'An {n} & plus." for n in numbers])
        write_lines(folder / (split + ".en"), [f"The Year {n} & more." for n in numbers])
    return folder


def write_tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


class Archive(NamedTuple):
    """A small de-en.tgz and what must come of it."""

    path: Path
    kept: list[tuple[str, str]]  # training pairs, tokenised, in order, valid among them
    dropped: dict[str, int]
    test: list[tuple[str, str]]  # tokenised

    @property
    def pairs(self) -> str:
        """As --expect-pairs has them."""
        valid = len(self.kept) // 23
        return f"{len(self.kept) - valid},{valid},{len(self.test)}"


def words(count: int, word: str = "wort") -> str:
    return " ".join([word] * count)


# raw pair, tokenised pair
TRAIN = [
    ("Ein Haus.", "A house.", "ein haus .", "a house ."),
    ("Das ist's: „Ja“ & 100%!", 'It\'s: "Yes" & 100%!', None, None),
    ("<title>Vom Wetter</title>", "<title>On weather</title>", "vom wetter", "on weather"),
    (
        "<description>Mehr vom Wetter.</description>",
        "<description>More on weather.</description>",
        "mehr vom wetter .",
        "more on weather .",
    ),
    (words(175), words(175), words(175), words(175)),
    (words(10), words(15), words(10), words(15)),
]
TRAIN[1] = TRAIN[1][:2] + (
    "das ist &apos; s : „ ja “ &amp; 100 % !",
    "it &apos;s : &quot; yes &quot; &amp; 100 % !",
)
METADATA = [
    "<url>http://www.ted.com/talks/1</url>",
    "<speaker>A. Person</speaker>",
    "<talkid>1</talkid>",
    "<keywords>talks, weather</keywords>",
]
DROPPED = [
    ("", "Nothing on the other side.", "empty side"),
    ("Nichts gegenüber.", "  ", "empty side"),
    (words(176), words(170), "more than 175 words"),
    (words(170), words(176), "more than 175 words"),
    (words(16), words(10), "one side more than 1.5 times as long"),
    (words(10), words(16), "one side more than 1.5 times as long"),
    ("x" * 1001, "y", "a word of more than 1000 characters"),
]
TEST = [  # one file each
    ("Gut & schön.", "Good & fine.", "gut &amp; schön .", "good &amp; fine ."),
    ("Es geht’s.", "It’s fine.", "es geht &apos; s .", "it &apos;s fine ."),
    ("A &amp; B", "A &amp; B", "a &amp; amp ; b", "a &amp; amp ; b"),
    ("Eins.", "One.", "eins .", "one ."),
    ("", "", "", ""),
]
TEST_NAMES = ["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"]


def write_archive(path: Path, ordinary: int = 100, without: str = "") -> Archive:
    """`ordinary` simple pairs and the odd ones above; `without` is a file to leave out."""
    train = list(TRAIN)
    for number in range(ordinary):
        german = f"Satz {number} von {number % 7}"
        english = f"Sentence {number} of {number % 7}"
        train.append((german, english, german.lower(), english.lower()))
    files = {}
    for side, language in enumerate(("de", "en")):
        lines = METADATA + [pair[side] for pair in train[:4]]
        lines += [pair[side] for pair in DROPPED] + METADATA + [pair[side] for pair in train[4:]]
        files["train.tags.de-en." + language] = "".join(line + "\n" for line in lines)
        for name, pair in zip(TEST_NAMES, TEST):
            files[f"IWSLT14.{name}.de-en.{language}.xml"] = (
                '<?xml version="1.0" encoding="UTF-8"?>\n<mteval>\n<srcset setid="x">\n'
                '<doc docid="1">\n<title>Not & this</title>\n'
                f'<seg id="1"> {pair[side]} </seg>\n</doc>\n</srcset>\n</mteval>\n'
            )
        # other files that the original has, not to be read
        files[f"IWSLT14.TED.tst2013.de-en.{language}.xml"] = '<seg id="1"> no </seg>\n'
    files.pop(without, None)
    write_tar(path, {f"de-en/{name}": text.encode("utf-8") for name, text in files.items()})
    dropped: dict[str, int] = {}
    for _, _, reason in DROPPED:
        dropped[reason] = dropped.get(reason, 0) + 1
    return Archive(path, [pair[2:] for pair in train], dropped, [pair[2:] for pair in TEST])


@pytest.fixture
def shared(monkeypatch):
    """Let processes share even few lines.

    Returns:
        how each work began that they shared: their number, its name, and the option that sets it.
    """
    found, killed = [], workers.killed
    monkeypatch.setattr(workers, "LINES_PER_CHUNK", 3)
    monkeypatch.setattr(workers, "killed", lambda *how: found.append(how) or killed(*how))
    return found


@pytest.fixture(scope="session")
def make_archive():
    return write_archive


@pytest.fixture(scope="session")
def archive(tmp_path_factory) -> Archive:
    return write_archive(tmp_path_factory.mktemp("archive") / "de-en.tgz")


@pytest.fixture(scope="session")
def prepared(tmp_path_factory, archive) -> Path:
    """A folder that prepare-iwslt14 made of `archive`, with 60 merges."""
    folder = tmp_path_factory.mktemp("prepared") / "iwslt14"
    prepare_iwslt14.main(
        [str(folder), "--archive", str(archive.path), "--workers", "2"]
        + ["--expect-pairs", archive.pairs, "--vocab-size", "60"]
    )
    return folder
