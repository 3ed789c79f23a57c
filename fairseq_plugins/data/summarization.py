"""Documents and their summaries, from raw text to fairseq's data.

The prepared folder holds the binary data and

- `text/raw/SPLIT.source` and `.target`: one document or summary per line, with `<q>` between the
  sentences of a summary (see `sentences`); `.id`: their names;
- `text/pieces/`: the same in SentencePiece pieces, lower-cased on request;
- `left_out.txt`: every document that could not be used, and why.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq_plugins.arguments import add_flag, add_number
from fairseq_plugins.data import report
from fairseq_plugins.data.like import learn_or_copy
from fairseq_plugins.data.pretraining import Pretraining
from fairseq_plugins.data.readers import LEFT_OUT, RAW, find_files, read_files
from fairseq_plugins.data.report import form_of_text, left_out, table, unknown_tokens
from fairseq_plugins.files import count_lines, read_pairs, write_columns, write_lines
from fairseq_plugins.preparation.binarise import binarise, count_unknown, read_types
from fairseq_plugins.preparation.steps import Preparation
from fairseq_plugins.text.processing import NFC
from fairseq_plugins.text.sentences import BOUNDARY, separate_sentences, split_sentences
from fairseq_plugins.text.subwords import SentencePiece
from fairseq_plugins.workers import add_workers_option, map_lines

SIDES = ("source", "target")
# settings that belong to the pieces and dictionaries of a folder
SHARED_BY_LIKE = (
    "lowercase", "boundary", "vocab_size", "sentencepiece_documents", "joined_dictionary",
    "normalization",
)  # fmt: skip
PIECES = "text/pieces"
SAMPLE = "work/sentencepiece.txt"


def sample_sentences(
    folder: Path, documents: int, summaries: bool = True, lowercase: bool = False
) -> int:
    """Write `SAMPLE`: sentences of evenly spaced training documents, and of their summaries."""
    total = count_lines(folder / RAW / "train.source")
    stride = max(1, -(-total // documents))

    def lines() -> Iterator[str]:
        sides = (folder / RAW / "train.source", folder / RAW / "train.target")
        for number, (source, target) in enumerate(read_pairs(*sides)):
            if number % stride == 0:
                of_summary = separate_sentences(target) if summaries else []
                for sentence in split_sentences(source) + of_summary:
                    yield sentence.lower() if lowercase else sentence

    return write_lines(folder / SAMPLE, lines())


def cut(
    folder: Path,
    split: str,
    max_source: int | None,
    workers: int,
    lowercase: bool,
    option: str = "--workers",
) -> dict[str, int]:
    """Write `PIECES` of a split; returns the counts of documents, pieces and cuts.

    The boundary is always a single token in the target. A source is truncated to `max_source`
    positions, including the end symbol that fairseq adds.
    """
    raw = [folder / RAW / f"{split}.{side}" for side in SIDES]
    numbers = dict.fromkeys(
        "documents source target longest_source longest_target cut_documents cut_pieces "
        "summary_sentences".split(),
        0,
    )
    model, total = SentencePiece(folder / SentencePiece.file_name), count_lines(raw[0])

    def pieces_of(text: str) -> str:
        return model.cut(text.lower() if lowercase else text)

    def cut_pair(pair: tuple[str, str]) -> tuple[str, str, int]:
        """Pieces of the source, pieces of the target, and the number of truncated source pieces."""
        source = pieces_of(pair[0]).split(" ")
        kept = source if max_source is None else source[: max_source - 1]
        target = filter(None, map(pieces_of, separate_sentences(pair[1])))
        return " ".join(kept), f" {BOUNDARY} ".join(target), len(source) - len(kept)

    def pairs() -> Iterator[tuple[str, str]]:
        how = (workers, "pieces of " + split, total)
        results = map_lines(cut_pair, read_pairs(*raw), *how, option=option)
        for source, target, cut_off in results:
            numbers["documents"] += 1
            for side, text in zip(SIDES, (source, target)):
                length = text.count(" ") + 1
                numbers[side] += length
                numbers["longest_" + side] = max(numbers["longest_" + side], length)
            numbers["cut_documents"] += cut_off > 0
            numbers["cut_pieces"] += cut_off
            numbers["summary_sentences"] += target.split(" ").count(BOUNDARY) + 1
            yield source, target

    write_columns([folder / PIECES / path.name for path in raw], pairs())
    return numbers


def prepare(
    preparation: Preparation, found: dict[str, Any], workers: int, like: Path | None = None
) -> None:
    """Learn pieces, cut, binarise, report; `RAW` must be in the folder.

    Args:
        preparation: with the settings of `summarization_settings`.
        found: the result of `write_documents`.
        workers: number of processes.
        like: a prepared folder whose pieces and dictionaries are used.
    """
    folder, settings, step = preparation.folder, preparation.settings, preparation.step
    splits = list(found["documents"])
    if like is None:
        sample = (settings["sentencepiece_documents"], True, settings["lowercase"])
        step("sample sentences of train", sample_sentences, folder, *sample)
    learnt = learn_or_copy(preparation, "pieces", SentencePiece, [folder / SAMPLE], like)
    how = (settings["max_source"], workers, settings["lowercase"])
    numbers = {split: step("cut " + split, cut, folder, split, *how) for split in splits}
    into = (folder, settings["joined_dictionary"], workers, like)
    step("binarise", binarise, folder / PIECES, splits, SIDES, *into)
    types = {side: len(read_types(folder, side)) for side in SIDES}
    names = {f"{split}.{side}": side for split in splits for side in SIDES}
    pieces = {name: folder / PIECES / name for name in names}
    known = {name: folder / f"dict.{side}.txt" for name, side in names.items()}
    unknown = step("count unknown pieces", count_unknown, pieces, known)
    what = f"{learnt:,} {SentencePiece(folder / SentencePiece.file_name).contents}"
    report.write(folder, _report(settings, found, what, types, numbers, unknown))
    preparation.finish(leave_out=["work"])


def prepare_files(
    destination: Path,
    inputs: dict[str, Path],
    settings: dict[str, Any],
    workers: int,
    pretraining: Pretraining | None = None,
    like: Path | None = None,
) -> None:
    """Prepare documents of text files or JSON lines.

    Args:
        destination: the folder to make.
        inputs: for each split a file of JSON lines, or the prefix of two files.
        settings: those of `summarization_settings`, and "fields".
        workers: number of processes.
        pretraining: how to make summaries, for documents without summaries.
        like: a prepared folder whose pieces and dictionaries are used; the settings must include
            those of `reuse.settings_like`.

    Raises:
        ConfigurationError: files are missing.
    """
    files = find_files(inputs, "source" if pretraining else "target")
    settings = {**settings, "inputs": files}
    if pretraining:
        settings["pretrain"] = list(pretraining)
    with Preparation(destination, settings) as preparation:
        if not preparation.finished:
            how = (preparation, inputs, workers, pretraining)
            found = preparation.step("read documents", read_files, *how)
            prepare(preparation, found, workers, like)


def _report(
    settings: dict[str, Any],
    found: dict[str, Any],
    learnt: str,
    types: dict[str, int],
    numbers: dict[str, dict[str, int]],
    unknown: dict[str, int],
) -> list[str]:
    rows = [["split", "documents", "source pieces", "longest", "target pieces", "longest"]]
    rows[0].append("summary sentences")
    for split, n in numbers.items():
        row = [split, f"{n['documents']:,}"]
        for side in SIDES:
            row += [f"{n[side] / n['documents']:.1f}", f"{n['longest_' + side]:,}"]
        rows.append([*row, f"{n['summary_sentences'] / n['documents']:.2f}"])
    lines = table(rows) + ["", "Pieces and sentences are means over documents."]
    for side in SIDES:
        longest = 1 + max(n["longest_" + side] for n in numbers.values())
        lines.append(
            f"With its end symbol the longest {side} takes {longest:,} positions: "
            f"--max-{side}-positions, 1024 by default, must not be less"
            + (", unless --truncate-source cuts." if side == "source" else ".")
        )
    limit = settings["max_source"]
    lines += ["", *(["No source was cut off."] if limit is None else [])]
    for split, n in numbers.items() if limit is not None else ():
        share = 100 * n["cut_pieces"] / (n["cut_pieces"] + n["source"])
        lines.append(
            f"{split}: {n['cut_documents']:,} of {n['documents']:,} sources were cut off to take "
            f"{limit:,} positions, {n['cut_pieces']:,} pieces in all ({share:.1f} %)"
        )
    of_sides = {f"{split}.{side}": n[side] for split, n in numbers.items() for side in SIDES}
    return [
        *lines,
        "",
        *left_out(found["left_out"], "documents", LEFT_OUT),
        "",
        f"{learnt}; dictionary types: {types['source']:,} source, {types['target']:,} target"
        + " (one dictionary)" * settings["joined_dictionary"],
        *unknown_tokens(unknown, of_sides, "pieces"),
        f"Between the sentences of a summary stands {BOUNDARY}",
        *form_of_text(settings),
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that every preparation for summarization has."""
    add_number(
        parser, "--vocab-size", "maximum number of SentencePiece pieces, learnt from all text",
        32000,
    )  # fmt: skip
    add_number(
        parser, "--sentencepiece-documents", "learn pieces from at most N training documents, "
        "evenly spaced", 20000,
    )  # fmt: skip
    add_number(
        parser, "--max-source", "truncate documents to N positions, including the end symbol; the "
        "report counts what is cut off (default: keep all)", least=2,
    )  # fmt: skip
    add_flag(
        parser, "--lowercase", "lower-case everything, so that models can copy words that "
        "summaries capitalise",
    )  # fmt: skip
    add_workers_option(parser)


def summarization_settings(args: argparse.Namespace, like: Path | None = None) -> dict[str, Any]:
    """The settings of a preparation from these options.

    Args:
        args: the options.
        like: a prepared folder whose pieces are used.
    """
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
    }


def show(folder: Path) -> None:
    """Print the report of a prepared folder, and what fairseq-generate needs."""
    report.show(folder, "fairseq-generate takes --remove-bpe sentencepiece --scoring rouge")
