"""Documents and their summaries.

In the texts of a prepared folder, `<q>` stands between the sentences of a summary (see
`text.sentences`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_plugins.data.binary import Encoder, Pieces
from fairseq_plugins.data.pipeline import Shards, Task, prepare_folder
from fairseq_plugins.data.preparation import WORK
from fairseq_plugins.data.pretraining import Pretraining
from fairseq_plugins.data.readers import RAW, Example, Inputs, Item, Unusable, values
from fairseq_plugins.files import count_lines, read_pairs, write_lines
from fairseq_plugins.options.fields import option
from fairseq_plugins.text.processing import NFC
from fairseq_plugins.text.sentences import (
    BOUNDARY,
    join_sentences,
    separate_sentences,
    split_sentences,
)

SIDES = ("source", "target")
# settings that belong to the pieces and dictionaries of a folder
SHARED_BY_LIKE = (
    "lowercase", "boundary", "vocab_size", "sentencepiece_documents", "joined_dictionary",
    "normalization",
)  # fmt: skip


def sample_sentences(
    folder: Path, documents: int, summaries: bool = True, lowercase: bool = False
) -> Path:
    """Write the sentences of evenly spaced training documents, and of their summaries, to a file.

    Args:
        folder: a folder with `RAW`.
        documents: how many to take at most.
        summaries: whether to take summaries.
        lowercase: whether to lower-case them.
    """
    sides = [folder / RAW / f"train.{side}" for side in SIDES]
    stride = max(1, -(-count_lines(sides[0]) // documents))

    def lines() -> Iterator[str]:
        for number, (source, target) in enumerate(read_pairs(*sides)):
            if number % stride == 0:
                of_summary = separate_sentences(target) if summaries else []
                for sentence in split_sentences(source) + of_summary:
                    yield sentence.lower() if lowercase else sentence

    write_lines(folder / WORK / "sentences.txt", lines())
    return folder / WORK / "sentences.txt"


class Documents(Task):
    """Documents and summaries, with the settings of `summarization_settings`."""

    def samples(self, folder: Path) -> list[Path]:
        documents, lowercase = self.settings["sentencepiece_documents"], self.settings["lowercase"]
        return [sample_sentences(folder, documents, lowercase=lowercase)]

    def encoders(self, model: Any, threads: int) -> tuple[Encoder, Encoder]:
        pieces, lowercase = Pieces(model, threads), self.settings["lowercase"]
        longest = self.settings["max_source"]
        most = None if longest is None else longest - 1  # and the end symbol
        return (
            Encoder(pieces, lowercase, most=most),
            Encoder(pieces, lowercase, separate_sentences, BOUNDARY),
        )

    def notes(self, folder: Path, results: dict[str, Any]) -> list[str]:
        return ["fairseq-generate takes --remove-bpe sentencepiece --scoring rouge"]


def summary_of(sentences: Iterable[str]) -> str:
    """Sentences of ordinary text, in which the boundary token's characters are no boundary."""
    return join_sentences(sentence.replace(BOUNDARY, "< q >") for sentence in sentences)


def _texts(value: Any) -> list[str]:
    """The sentences of a list, in which `<S>` and `</S>` may stand around each; or one text."""
    if isinstance(value, str):
        return [value]
    return [text.replace("<S>", " ").replace("</S>", " ") for text in value]


def parse_document(fields: Sequence[str], item: Item) -> Example:
    """The example of a document and its summary.

    In a summary that is a string, newlines and `<q>` separate sentences.
    """
    source, target = map(_texts, values(item.content, fields))
    document = " ".join(" ".join(source).split())
    summary = join_sentences(s for text in target for s in separate_sentences(text))
    if not document or not summary:
        raise Unusable("no summary" if document else "no document" if summary else "empty")
    return Example(item.split, item.name, document, summary)


def parse_alone(pretraining: Pretraining, fields: Sequence[str], item: Item) -> Example:
    """The example of a document without a summary, which `pretraining` extracts."""
    text = " ".join(_texts(values(item.content, fields)[0]))
    source, target = pretraining.pair(text)
    if not target:
        raise Unusable("too few sentences" if text.strip() else "empty")
    return Example(item.split, item.name, source, summary_of(target))


def prepare_files(
    destination: Path,
    inputs: Inputs,
    settings: dict[str, Any],
    workers: int,
    pretraining: Pretraining | None = None,
    like: Path | None = None,
) -> None:
    """Prepare documents of files.

    Args:
        destination: the folder to make.
        inputs: the files, and the fields of document and summary.
        settings: those of `summarization_settings`.
        workers: number of processes.
        pretraining: how to make summaries, for documents without summaries.
        like: a prepared folder whose pieces and dictionaries are used; the settings must include
            those of `like.settings_like`.

    Raises:
        ConfigurationError: a file cannot be used.
    """
    settings = {**settings, **inputs.settings}
    parse: Callable[[Sequence[str], Any], Example] = parse_document
    if pretraining:
        settings["pretrain"] = list(pretraining)
        inputs, parse = inputs._replace(fields=inputs.fields[:1]), partial(parse_alone, pretraining)
    task = Documents(settings, list(inputs.of_split))
    prepare_folder(destination, task, lambda _: inputs.corpus(parse), workers, like=like)


@dataclass
class SubwordsOfDocuments(Shards):
    """The options that every preparation for summarization has."""

    vocab_size: int = option(
        32000, "the maximum number of SentencePiece's subwords, learnt from all text", least=1
    )
    sentencepiece_documents: int = option(
        20000, "learn the subwords from at most N training documents, evenly spaced", least=1
    )
    max_source: int | None = option(
        None, "truncate documents to N positions, including the end symbol; the report counts what "
        "is cut off (default: keep all)", least=2,
    )  # fmt: skip
    lowercase: bool = option(
        False, "convert everything to lower case, so that models can copy words that summaries "
        "capitalise",
    )  # fmt: skip


def summarization_settings(args: SubwordsOfDocuments) -> dict[str, Any]:
    """The settings of a preparation from these options."""
    return {
        "source_lang": "source",
        "target_lang": "target",
        "tokenizer": "none",
        "lowercase": args.lowercase,
        "subword": "sentencepiece",
        "normalization": NFC,
        "boundary": BOUNDARY,
        "vocab_size": args.vocab_size,
        "sentencepiece_documents": args.sentencepiece_documents,
        "max_source": args.max_source,
        "joined_dictionary": True,
        **args.sharding,
    }
