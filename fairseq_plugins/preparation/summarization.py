"""Documents and their summaries, from raw text to fairseq's data.

In the prepared folder stand, for each split, `text/raw/SPLIT.source` and `.target` (a document or
summary a line, `<q>` between the sentences of a summary: see `sentences`) and `.id` (their names),
`text/pieces/` with the same in SentencePiece pieces, the binary data, and `left_out.txt`, which
names every document that could not be used and says why.
"""

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.preparation.binarise import binarise, read_types
from fairseq_plugins.preparation.files import (
    LONGEST_LINE,
    count_lines,
    open_to_read,
    raw_lines,
    read_input_pairs,
    read_pairs,
    write_lines,
    written_whole,
)
from fairseq_plugins.preparation.report import NAME as REPORT
from fairseq_plugins.preparation.report import table
from fairseq_plugins.preparation.sentences import (
    BOUNDARY,
    join_sentences,
    separate_sentences,
    split_sentences,
)
from fairseq_plugins.preparation.steps import Preparation
from fairseq_plugins.preparation.stories import parse_story, read_story_files
from fairseq_plugins.preparation.subwords import SentencePiece
from fairseq_plugins.preparation.workers import add_workers_option, check_workers, map_lines

SPLITS = ("train", "valid", "test")
RAW = "text/raw"
PIECES = "text/pieces"
SAMPLE = "work/sentencepiece.txt"
LEFT_OUT = "left_out.txt"
NAMES_SHOWN = 10
LONGEST_PROBLEM = 300  # characters
TOO_LONG = f"a line of more than {LONGEST_LINE:,} bytes"
LONGEST_SAMPLE_LINE = 1000  # characters; SentencePiece skips lines of more than 4,192 bytes


class Item(NamedTuple):
    """A document as it was read: `content` is bytes of a story or of a JSON line, or two lines.

    None stands for what is too long.
    """

    split: str
    name: str
    content: Any


class Document(NamedTuple):
    """A document in one line, its summary in one line, or the problem with it."""

    split: str
    name: str
    source: str
    target: str
    problem: str = ""


class StoryReader:
    """From a `.story` file to a document."""

    def __init__(self, add_full_stops: bool, drop_prefix: bool):
        self.add_full_stops = add_full_stops
        self.drop_prefix = drop_prefix

    def __call__(self, item: Item) -> Document:
        story = parse_story(item.name, item.content, self.add_full_stops, self.drop_prefix)
        # in a story the characters of the boundary are text
        highlights = (line.replace(BOUNDARY, "< q >") for line in story.highlights)
        return Document(
            item.split,
            item.name,
            " ".join(story.article),
            join_sentences(highlights),
            story.problem,
        )


class JsonReader:
    """From a line of JSON to a document.

    A field is a text or a list of sentences; `<S>` and `</S>` around sentences are taken off. In a
    summary that is a text, new lines and `<q>` are boundaries.
    """

    def __init__(self, fields: Sequence[str], split: bool):
        self.fields = tuple(fields)
        self.split = split

    def __call__(self, item: Item) -> Document:
        try:
            source, target = map(self._sentences, self._entry(item.content))
        except ValueError as problem:
            return Document(item.split, item.name, "", "", str(problem))
        return _document(item, " ".join(source), target, self.split)

    def _entry(self, line: Optional[bytes]) -> List[Any]:
        """The two fields, or a ValueError that says why there are none."""
        if line is None:
            raise ValueError(TOO_LONG)
        try:
            entry = json.loads(line.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ValueError(f"byte {error.start} is not UTF-8") from None
        except RecursionError:
            raise ValueError("no JSON: brackets are nested too deeply") from None
        except ValueError as error:
            raise ValueError(f"no JSON: {error}") from None
        if not isinstance(entry, dict):
            raise ValueError("no JSON object")
        for field in self.fields:
            if field not in entry:
                names = ", ".join(sorted(entry))
                raise ValueError(f"no field '{field}': choose two with --fields: {names}")
        return [entry[field] for field in self.fields]

    @staticmethod
    def _sentences(value: Any) -> List[str]:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError("a field is neither text nor a list of texts")
        try:
            "".join(texts).encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError("not UTF-8: half of a surrogate pair") from None
        if isinstance(value, str):
            return texts
        return [text.replace("<S>", " ").replace("</S>", " ") for text in texts]


class PairReader:
    """From a line of `.source` and one of `.target` to a document."""

    def __init__(self, split: bool):
        self.split = split

    def __call__(self, item: Item) -> Document:
        source, target = item.content
        if source is None or target is None:
            return Document(item.split, item.name, "", "", TOO_LONG)
        return _document(item, source, [target], self.split)


def _document(item: Item, source: str, target: Sequence[str], split: bool) -> Document:
    source = " ".join(source.split())
    sentences = [s for text in target for s in separate_sentences(text)]
    if split:
        sentences = [s for sentence in sentences for s in split_sentences(sentence)]
    problem = ""
    if not source or not sentences:
        problem = "no summary" if source else "no document" if sentences else "empty"
    return Document(item.split, item.name, source, join_sentences(sentences), problem)


def splits_of_stories(ids: Dict[str, List[str]]) -> Dict[str, str]:
    """From the ids in each split to the split of each id.

    Raises:
        ConfigurationError: a story is named twice.
    """
    wanted: Dict[str, str] = {}
    for split, names in ids.items():
        for name in names:
            if name in wanted:
                raise ConfigurationError(
                    "story {} is named twice, in {} and in {}: each belongs to one split, "
                    "once".format(name, wanted[name], split)
                )
            wanted[name] = split
    return wanted


def story_items(archives: Sequence[Path], wanted: Dict[str, str]) -> Iterator[Item]:
    """The stories of archives that have a split; what was found is taken out of `wanted`."""
    for name, content in read_story_files(archives):
        split_of_story = wanted.pop(name, None)
        if split_of_story is not None:
            yield Item(split_of_story, name, content)


def json_items(split: str, path: Path) -> Iterator[Item]:
    """The lines of a JSONL file."""
    with open_to_read(path) as file:
        for number, line in enumerate(raw_lines(file), 1):
            if line is None or line.strip():
                yield Item(split, "{}:{}".format(path.name, number), line)


def pair_items(split: str, prefix: Path) -> Iterator[Item]:
    """The lines of `PREFIX.source` and `PREFIX.target`."""
    sides = (prefix.with_name(prefix.name + side) for side in (".source", ".target"))
    for number, pair in enumerate(read_input_pairs(*sides), 1):
        yield Item(split, "{}:{}".format(prefix.name, number), pair)


def write_documents(
    folder: Path,
    items: Iterable[Item],
    read: Any,
    workers: int,
    splits: Sequence[str],
    total: Optional[int] = None,
) -> Dict[str, Any]:
    """Write `RAW` and `LEFT_OUT`, one document in memory after the other.

    Args:
        folder: of the preparation.
        items: documents as they were read.
        read: from Item to Document.
        workers: processes.
        splits: those that must not be empty.
        total: how many items there are, if known, for the progress bar.

    Returns:
        `documents`: how many in each split; `left_out`: for each reason how many; `named`: the
        first ones, by name.

    Raises:
        ConfigurationError: a split has no document.
    """
    counts = dict.fromkeys(splits, 0)
    left_out: Dict[str, int] = {}
    named: List[str] = []
    with contextlib.ExitStack() as stack:
        files = {
            split: [
                stack.enter_context(written_whole(folder / RAW / "{}.{}".format(split, kind)))
                for kind in ("source", "target", "id")
            ]
            for split in splits
        }
        report = stack.enter_context(written_whole(folder / LEFT_OUT))
        documents = map_lines(read, items, workers, "documents read", total)
        for document in documents:
            if document.problem:
                problem = _in_one_line(document.problem)
                reason = problem.partition(":")[0]
                reason = "not UTF-8" if reason.endswith("is not UTF-8") else reason
                left_out[reason] = left_out.get(reason, 0) + 1
                line = "{}\t{}\t{}".format(document.split, document.name, problem)
                report.write(line + "\n")
                if len(named) < NAMES_SHOWN:
                    named.append(line.replace("\t", "  "))
                continue
            counts[document.split] += 1
            for file, text in zip(
                files[document.split], (document.source, document.target, document.name)
            ):
                file.write(text + "\n")
    for split, count in counts.items():
        if not count:
            raise ConfigurationError(
                f"no document of {split} can be used"
                + (f": {named[0]}; all are in {folder / LEFT_OUT}" if named else "")
            )
    return {"documents": counts, "left_out": left_out, "named": named}


def _in_one_line(problem: str) -> str:
    """A problem that may quote the text, fit for a file of one line each."""
    text = " ".join(problem.split())[:LONGEST_PROBLEM]
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def check_documents(
    found: Dict[str, Any], expected: Optional[Dict[str, int]], missing: Sequence[str]
) -> None:
    """Compare the numbers of documents with what there must be.

    Args:
        found: as `write_documents` returns it.
        expected: documents of each split that can be used, or None for any number.
        missing: ids that were listed and not found.

    Raises:
        ConfigurationError: the numbers differ, or documents are missing.
    """
    if missing:
        raise ConfigurationError(
            "{:,} listed stories are not in the archives ({}{}): give all archives with "
            "--stories, or pass --expect any to do without them".format(
                len(missing), ", ".join(missing[:3]), ", ..." if len(missing) > 3 else ""
            )
        )
    if expected is not None and found["documents"] != expected:
        raise ConfigurationError(
            "{} documents came out instead of {} (train / valid / test): archives or lists are "
            "not those of the corpus. To go on with them, pass --expect any, and do not compare "
            "the results with published ones".format(
                *(
                    " / ".join("{:,}".format(n.get(s, 0)) for s in SPLITS)
                    for n in (found["documents"], expected)
                )
            )
        )


def sample_sentences(folder: Path, documents: int) -> int:
    """Write `SAMPLE`: the sentences of evenly spaced training documents and of their summaries."""
    total = count_lines(folder / RAW / "train.source")
    stride = max(1, -(-total // documents))

    def lines() -> Iterator[str]:
        sides = (folder / RAW / "train.source", folder / RAW / "train.target")
        for number, (source, target) in enumerate(read_pairs(*sides)):
            if number % stride == 0:
                for sentence in split_sentences(source) + separate_sentences(target):
                    yield from _short_lines(sentence)

    return write_lines(folder / SAMPLE, lines())


def _short_lines(text: str) -> Iterator[str]:
    while len(text) > LONGEST_SAMPLE_LINE:
        end = text.rfind(" ", 1, LONGEST_SAMPLE_LINE)
        end = end if end > 0 else LONGEST_SAMPLE_LINE
        yield text[:end]
        text = text[end:].lstrip()
    if text:
        yield text


class PieceCutter:
    """From a line of source and one of target to lines of pieces.

    The boundary is a token of its own in the target, whatever pieces there are. A source takes at
    most `max_source` positions with the end symbol that fairseq adds.
    """

    def __init__(self, model: Path, max_source: Optional[int]):
        self._model = SentencePiece(model)
        self._max_source = max_source

    def __call__(self, pair: Tuple[str, str]) -> Tuple[str, str, int]:
        """Pieces of the source, of the target, and how many pieces of the source were cut off."""
        source = self._model.cut(pair[0]).split(" ")
        kept = source if self._max_source is None else source[: self._max_source - 1]
        sentences = map(self._model.cut, separate_sentences(pair[1]))
        target = " {} ".format(BOUNDARY).join(sentence for sentence in sentences if sentence)
        return " ".join(kept), target, len(source) - len(kept)


def cut(
    folder: Path, split: str, model: Path, max_source: Optional[int], workers: int
) -> Dict[str, int]:
    """Write `PIECES` of a split; returns how long documents are and what was cut off."""
    raw = [folder / RAW / "{}.{}".format(split, side) for side in ("source", "target")]
    numbers = dict.fromkeys(
        "documents source target longest_source longest_target cut_documents cut_pieces "
        "summary_sentences".split(),
        0,
    )
    with contextlib.ExitStack() as stack:
        out = [stack.enter_context(written_whole(folder / PIECES / path.name)) for path in raw]
        cutter = PieceCutter(model, max_source)
        total = count_lines(raw[0])
        results = map_lines(cutter, read_pairs(*raw), workers, "pieces of " + split, total)
        for source, target, cut_off in results:
            lengths = source.count(" ") + 1, target.count(" ") + 1
            numbers["documents"] += 1
            for side, length in zip(("source", "target"), lengths):
                numbers[side] += length
                numbers["longest_" + side] = max(numbers["longest_" + side], length)
            numbers["cut_documents"] += cut_off > 0
            numbers["cut_pieces"] += cut_off
            numbers["summary_sentences"] += target.split(" ").count(BOUNDARY) + 1
            for file, text in zip(out, (source, target)):
                file.write(text + "\n")
    return numbers


def prepare(preparation: Preparation, found: Dict[str, Any], workers: int) -> str:
    """Learn pieces, cut, binarise, report; `RAW` must stand in the folder.

    Args:
        preparation: its settings are those of `summarization_settings`.
        found: what `write_documents` returned.
        workers: processes.

    Returns:
        The report, which also stands in the folder, whose name is `preparation.destination` now.
    """
    folder, settings = preparation.folder, preparation.settings
    splits = list(found["documents"])
    model = folder / SentencePiece.file_name
    preparation.step(
        "sample sentences of train", sample_sentences, folder, settings["sentencepiece_documents"]
    )
    learnt = preparation.step(
        "learn pieces", SentencePiece.learn, [folder / SAMPLE], model, settings["vocab_size"]
    )
    numbers = {
        split: preparation.step(
            "cut " + split, cut, folder, split, model, settings["max_source"], workers
        )
        for split in splits
    }
    preparation.step(
        "binarise",
        binarise,
        folder / PIECES,
        splits,
        ["source", "target"],
        folder,
        settings["joined_dictionary"],
        workers,
    )
    types = {side: len(read_types(folder, side)) for side in ("source", "target")}
    report = _report(settings, found, learnt, types, numbers)
    with written_whole(folder / REPORT) as file:
        file.write(report)
    preparation.finish(leave_out=["work"])
    return report


def _report(
    settings: Dict[str, Any],
    found: Dict[str, Any],
    learnt: int,
    types: Dict[str, int],
    numbers: Dict[str, Dict[str, int]],
) -> str:
    rows = [["split", "documents", "source pieces", "longest", "target pieces", "longest"]]
    rows[0].append("summary sentences")
    for split, n in numbers.items():
        rows.append(
            [split, "{:,}".format(n["documents"])]
            + ["{:.1f}".format(n["source"] / n["documents"]), "{:,}".format(n["longest_source"])]
            + ["{:.1f}".format(n["target"] / n["documents"]), "{:,}".format(n["longest_target"])]
            + ["{:.2f}".format(n["summary_sentences"] / n["documents"])]
        )
    lines = table(rows) + ["", "Pieces and sentences are means over documents."]
    lines += [
        "With its end symbol the longest {} takes {:,} positions: --max-{}-positions, 1024 by "
        "default, must not be less.".format(
            side, 1 + max(n["longest_" + side] for n in numbers.values()), side
        )
        for side in ("source", "target")
    ]
    lines.append("")
    if settings["max_source"] is None:
        lines.append("No source was cut off.")
    for split, n in numbers.items() if settings["max_source"] is not None else ():
        lines.append(
            "{}: {:,} of {:,} sources were cut off to take {:,} positions, {:,} pieces in all "
            "({:.1f} %)".format(
                split,
                n["cut_documents"],
                n["documents"],
                settings["max_source"],
                n["cut_pieces"],
                100 * n["cut_pieces"] / (n["cut_pieces"] + n["source"]),
            )
        )
    left_out = sum(found["left_out"].values())
    if left_out:
        lines += ["", "{:,} documents were left out; {} names them".format(left_out, LEFT_OUT)]
    else:
        lines += ["", "No document was left out."]
    lines += ["  {:>9,}  {}".format(n, why) for why, n in sorted(found["left_out"].items())]
    lines += [
        "",
        "{:,} SentencePiece pieces; dictionary types: {:,} source, {:,} target{}".format(
            learnt,
            types["source"],
            types["target"],
            " (one dictionary)" if settings["joined_dictionary"] else "",
        ),
        "Between the sentences of a summary stands {}".format(BOUNDARY),
    ]
    return "\n".join(lines) + "\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that every preparation for summarization has."""
    parser.add_argument(
        "--vocab-size",
        type=int,
        default=32000,
        metavar="N",
        help="SentencePiece pieces, learnt on documents and summaries (%(default)s)",
    )
    parser.add_argument(
        "--sentencepiece-documents",
        type=int,
        default=20000,
        metavar="N",
        help="learn pieces on so many training documents, evenly spaced (%(default)s)",
    )
    parser.add_argument(
        "--max-source",
        type=int,
        metavar="N",
        help="cut documents off to take N positions at most, the end symbol among them; what is "
        "cut off is counted (default: keep all)",
    )
    parser.add_argument(
        "--separate-dictionaries",
        action="store_true",
        help="one dictionary a side; the default is one for both",
    )
    add_workers_option(parser)


def summarization_settings(args: argparse.Namespace) -> Dict[str, Any]:
    """What these options add to the settings of a preparation."""
    check_workers(args.workers)
    for name in ("vocab_size", "sentencepiece_documents", "max_source"):
        value = getattr(args, name)
        least = 2 if name == "max_source" else 1  # a piece and the end symbol
        if value is not None and value < least:
            raise ConfigurationError(
                "--{} {}: must be at least {}".format(name.replace("_", "-"), value, least)
            )
    return {
        "source_lang": "source",
        "target_lang": "target",
        "tokenizer": "none",
        "lowercase": False,
        "subword": "sentencepiece",
        "boundary": BOUNDARY,
        "vocab_size": args.vocab_size,
        "sentencepiece_documents": args.sentencepiece_documents,
        "max_source": args.max_source,
        "joined_dictionary": not args.separate_dictionaries,
    }


def tell_left_out(found: Dict[str, Any], folder: Path) -> None:
    """Name the documents that were left out, the first ones on stderr."""
    count = sum(found["left_out"].values())
    if count:
        print("{:,} documents cannot be used:".format(count), file=sys.stderr)
        for line in found["named"]:
            print("  " + line, file=sys.stderr)
        if count > len(found["named"]):
            print("  ... all are in {}".format(folder / LEFT_OUT), file=sys.stderr)


def show(folder: Path) -> None:
    """Print the report of a prepared folder, and how to go on."""
    print((folder / REPORT).read_text(encoding="utf-8"))
    print("{} is ready for fairseq-train; this report is {}".format(folder, folder / REPORT))
    print("fairseq-generate takes --remove-bpe sentencepiece --scoring rouge")
