"""Labelled texts, for fairseq's task `sentence_prediction`."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_plugins.data import report
from fairseq_plugins.data.binary import Bytes, Encoder, Pieces, Symbols, Words, build_dictionary
from fairseq_plugins.data.pipeline import Task
from fairseq_plugins.data.readers import RAW, Example, Item, Unusable, values
from fairseq_plugins.data.summarization import sample_sentences
from fairseq_plugins.errors import ConfigurationError, counted, flag
from fairseq_plugins.files import read_lines
from fairseq_plugins.options.fields import option
from fairseq_plugins.system.workers import Workers
from fairseq_plugins.text.processing import NFC
from fairseq_plugins.text.subwords import END, SPECIAL
from fairseq_plugins.text.units import TASK

FIELDS = ("label", "text")
LABELS_SHOWN = 50


def parse_labelled(fields: Sequence[str], item: Item) -> Example:
    """The example of a label and a text, in which each run of white space becomes one space."""
    label, text = values(item.content, fields)
    if isinstance(label, list) or isinstance(text, list):
        raise Unusable("a field is a list")
    label, text = label.strip(), " ".join(text.split())
    if len(label.split()) != 1 or label in SPECIAL:
        raise Unusable("no label of one word")
    if not text:
        raise Unusable("no text")
    return Example(item.split, item.name, text, label)


class Labelled(Task):
    """Texts and labels, with the settings of `classification_settings`.

    Tabs in a text separate the texts of a pair. Each gets the full length limit.

    Args:
        settings: the settings.
        splits: the splits.
        notes: more lines for the report.
    """

    units = "texts"
    longest = ("--max-positions must not be less, or give --shorten-method truncate",)

    def __init__(self, settings: dict[str, Any], splits: Sequence[str], notes: Iterable[str] = ()):
        super().__init__(settings, splits)
        self.subword = "sentencepiece" if settings["units"] == "subwords" else None
        self.more_notes = list(notes)

    def samples(self, folder: Path) -> list[Path]:
        return [sample_sentences(folder, self.settings["sentencepiece_documents"], False)]

    def encoders(self, model: Any, threads: int) -> tuple[Encoder, Encoder]:
        units, longest = self.settings["units"], self.settings["max_positions"]
        numbers: Any = Bytes() if units == "bytes" else Words()
        if model is not None:
            numbers = Pieces(model, threads)
        most = None if longest is None else longest - 1
        texts_of_pair = partial(str.split, sep="\t")
        return Encoder(numbers, False, texts_of_pair, END, most), Encoder(Words())

    def files(self, split: str, side: str) -> tuple[str, str]:
        folder = "input0" if side == "source" else "label"
        return f"{folder}/{split}", f"{folder}/dict.txt"

    def dictionaries(self, symbols: Sequence[Symbols], counts: Sequence[Any]) -> list[Any]:
        from fairseq.data import Dictionary

        texts, labels = Dictionary(), Dictionary()
        if self.settings["units"] == "bytes":  # all, because later texts may have more than train
            for symbol in sorted(symbols[0].keys() - {END}):
                texts.add_symbol(symbol)
        else:
            texts = build_dictionary(symbols[0], counts[:1])
        for label, number in sorted(symbols[1].items()):
            if number < len(counts[1]):
                labels.add_symbol(label, int(counts[1][number]))
        return [texts, labels]

    def check(self, folder: Path) -> dict[str, Any]:
        return {"labels": count_labels({s: folder / RAW / f"{s}.target" for s in self.splits})}

    def notes(self, folder: Path, results: dict[str, Any]) -> list[str]:
        labels = results["labels"]
        names = list(labels["train"])
        rows = [["label", *labels]]
        for name in names[:LABELS_SHOWN]:
            rows.append([name, *(f"{counts.get(name, 0):,}" for counts in labels.values())])
        lines = report.table(rows)
        if len(names) > LABELS_SHOWN:
            more = len(names) - LABELS_SHOWN
            lines.append(f"... and {more:,} more labels: label/dict.txt has all")
        return [*lines, "", *self.more_notes]


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
            f"all training texts have the label {next(iter(known))}: at least two labels are needed"
        )
    for split, labels in counts.items():
        strange = [label for label in labels if label not in known]
        if strange:
            raise ConfigurationError(
                f"{split} has {counted(len(strange), 'labels')} that train does not have, such as "
                f"{strange[0]}: a classifier knows only the labels of the training set"
            )
    return counts


OF_PIECES = {"vocab_size": 16000, "sentencepiece_documents": 20000}  # options only for subwords


@dataclass
class Units(Workers):
    """The options that set how texts become tokens."""

    bytes: bool = option(False, "use bytes as tokens instead of subwords", group="units")
    words: bool = option(False, "use words, separated by spaces, as tokens", group="units")
    vocab_size: int | None = option(
        None, "the maximum number of SentencePiece's subwords, learnt from the training set "
        f"(default: {OF_PIECES['vocab_size']:,})", least=1,
    )  # fmt: skip
    sentencepiece_documents: int | None = option(
        None, "learn the subwords from at most N training texts, evenly spaced (default: "
        f"{OF_PIECES['sentencepiece_documents']:,})", least=1,
    )  # fmt: skip
    max_positions: int | None = option(
        None, "truncate texts to N positions, including the end symbol; the report counts what is "
        "cut off (default: keep all)", least=2,
    )  # fmt: skip


def units_of(args: Any) -> str:
    """The units of tokens, as chosen by the options of `Units`."""
    return "bytes" if args.bytes else "words" if args.words else "subwords"


def classification_settings(args: Any, units: str) -> dict[str, Any]:
    """The settings of a preparation from these options.

    Raises:
        ConfigurationError: an option is out of range or has no effect.
    """
    longest = getattr(args, "max_positions", None)
    settings = {"task": TASK, "units": units, "max_positions": longest, "normalization": NFC}
    for name, default in OF_PIECES.items():
        given = getattr(args, name, None)
        if units == "subwords":
            settings[name] = default if given is None else given
        elif given is not None:
            raise ConfigurationError(
                f"{flag(name)} {given} is for SentencePiece, but tokens are {units}: remove it"
            )
    return settings
