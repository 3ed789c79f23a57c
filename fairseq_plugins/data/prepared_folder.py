"""A folder made by a prepare-* command: its record, and the files that training reads."""

import functools
import hashlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Union

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import PART, digest, read_json
from fairseq_plugins.text.processing import LengthLimit, Processing, Processor
from fairseq_plugins.text.subwords import KINDS, SentencePiece
from fairseq_plugins.text.units import TASK, Cut, find_cut

RECORD = "preparation.json"  # settings, counts of each step, sizes and digests of files
MOST_RATIO = 1000  # of a corpus that can be trained on


@dataclass(frozen=True)
class Record:
    """The content of `preparation.json`; a part that a file lacks, or has damaged, is empty.

    Attributes:
        settings: everything that affects the folder's content.
        results: what was counted.
        length_ratios: `LengthLimit.ratio` by direction, such as "de-en".
        bytes, sha256: sizes and digests of `needed_files`, by name.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    length_ratios: dict[str, Any] = field(default_factory=dict)
    bytes: dict[str, Any] = field(default_factory=dict)
    sha256: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: str | Path) -> "Record":
        """Read the record of a folder; it has no settings if another program made the folder."""
        stored = read_json(Path(folder) / RECORD)
        parts = stored.items() if isinstance(stored, dict) else ()
        names = [each.name for each in fields(cls)]
        return cls(**{n: part for n, part in parts if n in names and isinstance(part, dict)})


class Prepared:
    """A prepared folder: its record, its words and its subword model, each read once."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    @classmethod
    def of(cls, data: Union[str, Path, "Prepared"]) -> "Prepared":
        """The folder of a path; a `Prepared` is returned with all that it has read."""
        return data if isinstance(data, cls) else cls(data)  # type: ignore[arg-type]

    @functools.cached_property
    def record(self) -> Record:
        """The content of its `preparation.json`."""
        return Record.read(self.folder)

    @property
    def settings(self) -> dict[str, Any]:
        """See `Record`."""
        return self.record.settings

    @property
    def task(self) -> str:
        """What it was prepared for, such as "translation", also without a record."""
        of_pairs = "summarization" if "boundary" in self.settings else "translation"
        return str(self.settings.get("task") or of_pairs)  # recorded only of other folders

    def check_one_direction(self) -> None:
        """Raise a ConfigurationError if `prepare-bidirectional` made the folder."""
        if self.settings.get("bidirectional"):
            raise ConfigurationError(
                f"{self.folder} has both directions: give the folder it was made from"
            )

    @functools.cached_property
    def processing(self) -> Processing:
        """The settings by which its text is processed.

        Raises:
            ConfigurationError: this package did not prepare the folder for text with two sides.
        """
        try:
            found = Processing.of(self.settings)
            found.check()
            return found
        except (ValueError, KeyError, TypeError) as error:
            record = self.folder / RECORD
            reason, advice = str(error), "make this one anew with them"
            if not record.is_file():
                reason = "it is missing"
                advice = "describe this one of fairseq-preprocess with the command adopt"
                advice *= bool(dictionaries(self.folder))
            if isinstance(error, KeyError) and self.settings:
                reason = f"it has no {error.args[0]}"
                if self.task not in ("translation", "summarization"):
                    reason += f", as it is for {self.task}"
            raise ConfigurationError(
                f"{record} cannot be used ({reason}): give a folder that this version's prepare-* "
                "commands made" + (advice and f", or {advice}")
            ) from None

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return self.processing.source_lang, self.processing.target_lang

    @functools.cached_property
    def subwords(self) -> Any:
        """The subword model, loaded; raises a ConfigurationError as `subword_model`."""
        kind = KINDS[self.processing.subword]
        return kind(subword_model(self.folder, kind.file_name))

    def processor(self, source_lang: str, target_lang: str) -> Processor:
        """Return what converts new text of its languages, in either direction.

        Raises:
            ConfigurationError: as `processing` and `subwords`, or it has other languages.
        """
        settings, for_summaries = self.processing, self.task == "summarization"
        settings.check_languages(source_lang, target_lang, self.folder)
        limit = self.length_limit(source_lang, target_lang)
        return Processor(settings, self.subwords, source_lang, target_lang, for_summaries, limit)

    def length_limit(self, source_lang: str, target_lang: str) -> LengthLimit:
        """The limit of translations in a direction; without a ratio if the record has none."""
        ratio = self.record.length_ratios.get(f"{source_lang}-{target_lang}")
        usable = isinstance(ratio, (int, float)) and 0 < ratio < MOST_RATIO
        return LengthLimit(ratio if usable else None)

    @functools.cached_property
    def words(self) -> dict[str, str]:
        """See `digests_of_words`."""
        return digests_of_words(self.folder)


def shards(folder: Path) -> list[Path]:
    """The folders of the shards that `--shards` made; without shards the folder itself."""
    numbered = (folder / str(number) for number in itertools.count())
    return list(itertools.takewhile(Path.is_dir, numbered)) or [folder]


def check_unsharded(folder: Path) -> None:
    """Raise a ConfigurationError if the training set has shards."""
    if shards(folder) != [folder]:
        raise ConfigurationError(
            f"{folder} has a training set in shards, which this command does not read: prepare it "
            "without --shards"
        )


def check_data(folder: Path, option: str = "DATA") -> None:
    """Raise a ConfigurationError unless this is a prepared folder, which users call `option`."""
    made_by = "the prepare-* commands create one"
    if folder.is_file():
        raise ConfigurationError(f"{option} {folder} is a file: give the prepared folder")
    if not folder.is_dir():
        unfinished = folder.with_name(folder.name + PART).is_dir()
        advice = "its preparation was not finished: rerun it" if unfinished else made_by
        raise ConfigurationError(f"{option} {folder}: no such folder; {advice}")
    if not dictionaries(folder):
        raise ConfigurationError(f"{option} {folder} has no dictionaries (dict.*.txt); {made_by}")
    if (folder / RECORD).exists() and read_json(folder / RECORD) is None:
        raise ConfigurationError(
            f"{option} {folder}: its {RECORD} is damaged: restore it, or prepare the folder again"
        )


def needed_files(folder: Path) -> dict[str, Path]:
    """The files of a prepared folder that models and new text need, by relative name."""
    tokens = [path for ending in ("bin", "idx") for path in folder.rglob(f"*.{ending}")]
    found = [*dictionaries(folder), *subword_models(folder), *tokens]
    return {path.relative_to(folder).as_posix(): path for path in sorted(found)}


def check_intact(folder: Path, path: Path) -> None:
    """Compare a file of a prepared folder with the digest in the folder's record, if it has one.

    It reads a file once, at 1 to 2 GB per second, and again only if its size or time changes.

    Raises:
        ConfigurationError: its content has changed since preparation.
    """
    expected = Record.read(folder).sha256.get(path.relative_to(folder).as_posix())
    if expected is None:
        return
    status = path.stat()
    if _digest(path, status.st_size, status.st_mtime_ns) != expected:
        raise ConfigurationError(
            f"{path} is damaged or another file (its SHA-256 is not the one in {RECORD}): copy it "
            "again from the prepared folder, or prepare that again"
        )


def fingerprint(paths: Iterable[Path]) -> str:
    """A checksum of everything read from a folder; equal settings may have different content."""
    content = hashlib.sha256()
    for path in paths:
        content.update(f"{path.name} {digest(path)}\n".encode())
    return content.hexdigest()


def subword_model(folder: Path, name: str) -> Path:
    """The subword model in a prepared folder or an export.

    Raises:
        ConfigurationError: it is missing, or its content has changed since preparation.
    """
    path = folder / name
    if not path.is_file():
        raise ConfigurationError(f"{path} is missing: copy it from the prepared folder")
    check_intact(folder, path)
    return path


def load_cut(folder: Path) -> tuple[Cut, int | None]:
    """How a prepared folder converts raw texts to tokens.

    Returns:
        the function, and the number of tokens kept per text; None for all.

    Raises:
        ConfigurationError: the folder was not prepared for classification, lacks its subword model,
            or holds images or pairs of texts.
    """
    settings = Record.read(folder).settings
    if settings.get("task") != TASK:
        raise ConfigurationError(
            f"{folder} was not made by prepare-classification, so {RECORD} does not say how to "
            "split text: give the folder with --data"
        )
    if settings["units"] == "pixels":
        raise ConfigurationError(f"{folder} was made from images: it takes no raw text")
    if settings.get("pairs"):
        raise ConfigurationError(f"{folder} was made from pairs of texts, but a line has only one")
    if settings["units"] == "subwords":
        subword_model(folder, SentencePiece.file_name)
    cut = find_cut(settings["units"], folder)
    positions = settings["max_positions"]
    return cut, None if positions is None else positions - 1


@functools.lru_cache(maxsize=256)
def _digest(path: Path, size: int, changed: int) -> str:
    """The digest of a file, computed again if its size or time has changed."""
    return digest(path)


def dictionaries(folder: Path) -> list[Path]:
    """The dictionaries in a prepared folder: those of languages, or of texts and labels."""
    places = ("dict.*.txt", "input0/dict.txt", "label/dict.txt")
    return sorted(path for place in places for path in folder.glob(place))


def subword_models(folder: Path) -> list[Path]:
    """The subword model in a prepared folder, if it has one."""
    paths = [folder / kind.file_name for kind in KINDS.values()]
    return [path for path in paths if path.is_file()]


def digests_of_words(folder: Path) -> dict[str, str]:
    """The SHA-256 of the words of each dictionary, without their counts, and of the subword model.

    Raises:
        OSError, UnicodeDecodeError: a dictionary cannot be read.
        ConfigurationError: the subword model cannot be read.
    """
    found = {path.name: digest(path) for path in subword_models(folder)}
    for dictionary in dictionaries(folder):
        name = dictionary.relative_to(folder).as_posix()
        found[name] = digest_of_words(dictionary.read_text(encoding="utf-8"))
    return found


def digest_of_words(text: str) -> str:
    """The SHA-256 of the words of a dictionary, without their counts, given the file's text."""
    words = "\n".join(line.rpartition(" ")[0] for line in text.split("\n"))
    return hashlib.sha256(words.encode("utf-8")).hexdigest()


def differing(known: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """The files that both have, with different words; see `digests_of_words`."""
    return [name for name, digest in here.items() if known.get(name, digest) != digest]
