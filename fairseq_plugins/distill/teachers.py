"""Models that write text for others to learn from: checkpoints, an ensemble, an exported model."""

import contextlib
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fairseq_plugins.api import Summarizer, Translator
from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.data.summarization import summary_of
from fairseq_plugins.distill.request import DistillationRequest
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate import averages
from fairseq_plugins.evaluate.evaluate import FOLDER, checkpoint_of
from fairseq_plugins.evaluate.request import EvaluationRequest
from fairseq_plugins.files import (
    alone_in,
    check_no_link,
    count_lines,
    digest,
    read_input,
    read_json,
    read_lines,
)
from fairseq_plugins.pretrained import CONFIG, find_checkpoint
from fairseq_plugins.search import checkpoints
from fairseq_plugins.search.choose_engine import find_models
from fairseq_plugins.search.onnx_backend.folder import LANGUAGES
from fairseq_plugins.search.text import Output, sentences_of
from fairseq_plugins.system.progress import progress_bar
from fairseq_plugins.system.resumable import Group, Result, resumable, write_groups
from fairseq_plugins.system.workers import default_workers
from fairseq_plugins.text.processing import Processing
from fairseq_plugins.text.sentences import is_blank
from fairseq_plugins.text.subwords import SPECIAL

EMPTY, CUT_OFF, UNKNOWN_WORD = "empty", "cut off", "unknown"  # problems of a text
LINES = 512  # that a process translates at a time
Texts = list[list[str]]  # what was written for a line: each text, and why none should learn it


class Teacher(NamedTuple):
    """Models of one direction, and how they search.

    Attributes:
        names: the checkpoints of an ensemble, or the folder of an export.
        digests: their checksums.
        direction: the languages that they read and write.
        data: the prepared folder that they are loaded with; None for an export.
        summarizes: whether they write summaries.
        search: options of `Translator` or `Summarizer`.
        longest: the longest translation; None for the model's limit.
    """

    names: list[str]
    digests: list[str]
    direction: tuple[str, str]
    data: Path | None
    summarizes: bool
    search: dict[str, Any]
    longest: int | None

    @classmethod
    def of(
        cls, request: DistillationRequest, places: Sequence[Path], option: str, **other: Any
    ) -> "Teacher":
        """Find the models.

        Args:
            request: the prepared folder whose text is read, and how to search it.
            places: runs, checkpoints, or one exported model or name of a bundled model.
            option: the user's option that gives `places`.
            other: options of the search that differ from the request's.

        Raises:
            ConfigurationError: a model is missing, or does not fit the others or the data.
        """
        data, search, prepared = request.data, {**request.search, **other}, Prepared(request.data)
        summarizes = prepared.task == "summarization"
        if prepared.task not in ("translation", "summarization"):
            raise ConfigurationError(
                f"{data} was prepared for {prepared.task}: distill is for translation and "
                "summarization"
            )
        of_checkpoints = {name: getattr(request, name) for name in ("last", "fp16", "int8")}
        places, exported = find_models(places, 1, of_checkpoints, option)
        own: Path | None = None
        if exported:
            names, files = places[:1], [places[0] / CONFIG]  # with checksums of the other files
            config = read_json(files[0]) or {}
            direction: Any = tuple(config.get(name) for name in LANGUAGES)
        else:
            names = files = [_checkpoint(place, request, option) for place in places]
            direction, own = _facts(names, prepared, option)
        direction = direction or prepared.languages
        prepared.processing.check_languages(direction[0], direction[1], data)
        theirs = Prepared(places[0] if own is None else own).processing
        _check_text(theirs, prepared.processing, f"{option} {names[0]}", data)
        if "no_repeat_ngram" not in request.given:
            search["no_repeat_ngram"] = 3 if summarizes else 0
        texts, digests = list(map(str, names)), [digest(path) for path in files]
        return cls(texts, digests, direction, own, summarizes, search, request.max_len)

    def load(self) -> Callable[[Group], Result]:
        """Load the models in this process; returns what writes texts for lines."""
        options, count = dict(self.search), self.search["nbest"]
        if self.summarizes:
            limits = {"min_length": options.pop("min_len"), "max_length": self.longest}
            return partial(_written, Summarizer(self.names, self.data, **limits, **options), count)
        translator = Translator(self.names, self.data, **options)
        if self.longest is not None:
            translator.max_length = lambda length: self.longest or 0
        return partial(_written, translator, count)

    def write(
        self, sources: Sequence[Path], folder: Path, processes: int | None
    ) -> Iterator[Texts]:
        """`Texts` for each line of files; a line that is too long counts as empty.

        Args:
            sources: the files.
            folder: keeps what is written, also of a run that was stopped, in a file whose name has
                a digest of all that decides it.
            processes: their number; None: one per GPU or core.

        Raises:
            ConfigurationError: a model cannot be loaded, or a process was killed.
        """
        how = [self.digests, self.search, self.longest, *map(digest, sources)]
        name = hashlib.sha256(json.dumps(how, sort_keys=True).encode()).hexdigest()[:16]
        path = folder / f"{name}.jsonl"
        if not path.exists():
            cpu = self.search["cpu"] or self.data is None
            processes = processes or (0 if cpu else torch.cuda.device_count()) or default_workers()
            lines = (line or "" for line in itertools.chain.from_iterable(map(read_input, sources)))
            total = sum(map(count_lines, sources))
            with (
                resumable(path, {}, LINES) as output,
                progress_bar(
                    description="written", total=total, initial=output.lines, unit=" lines"
                ) as bar,
            ):
                write_groups(self.load, lines, output, 0, processes, cpu, bar.update)
        return map(json.loads, read_lines(path))


def _written(model: Translator | Summarizer, count: int, group: Group) -> Result:
    outputs: Any = model.candidates(group.lines, count)
    if isinstance(model, Summarizer):
        outputs = (found for _, _, found in outputs)
    lines = zip(group.lines, outputs)
    texts = ([_text(model, each, line) for each in found] for line, found in lines)
    return Result([json.dumps(each, ensure_ascii=False) for each in texts])


def _text(model: Translator | Summarizer, output: Output, line: str) -> list[str]:
    decode, pieces = model.processor.decode, output.pieces
    if isinstance(model, Summarizer):
        text = summary_of(map(decode, sentences_of(pieces)))
    else:
        text = model.processor.restored(pieces, line, output.repaired).text
    problem = "" if output.complete else CUT_OFF
    if SPECIAL[3] in pieces.split(" "):
        problem = problem or UNKNOWN_WORD
    return [text, EMPTY if is_blank(text) else problem]


def _facts(
    paths: list[Path], prepared: Prepared, option: str
) -> tuple[tuple[str, str] | None, Path]:
    """The direction of checkpoints, None if it is unknown, and the prepared folder for them."""
    trainings = [checkpoints.training_of(averages.load(path), f"{option} {path}") for path in paths]
    check = partial(checkpoints.check_same_text, list(map(str, paths)), trainings)
    with contextlib.suppress(ConfigurationError):
        return check(prepared), prepared.folder
    folder = checkpoints.find_data(paths[0], trainings[0])
    if folder is None:
        named = checkpoints.trained_on(trainings[0].task)
        raise ConfigurationError(
            f"{option} {paths[0]} has other dictionaries than {prepared.folder}, and {named}, "
            "which it was trained on, is not there: restore that, or let an export of it teach"
        )
    return check(Prepared(folder)), folder


def _checkpoint(place: Path, request: DistillationRequest, option: str) -> Path:
    """The checkpoint in a place, or the average of its newest ones."""
    last = request.last
    if last is None:
        return find_checkpoint(place, option)
    if not place.is_dir():
        raise ConfigurationError(f"--last {last} is for runs: {option} {place} is not a folder")
    check_no_link(place / FOLDER)
    with alone_in(place / FOLDER, "evaluation"):
        return checkpoint_of(
            place, EvaluationRequest(data=request.data, run=place, last=last), print
        )


def _check_text(theirs: Processing, ours: Processing, teacher: str, data: Path) -> None:
    """Raise a ConfigurationError if a teacher's text differs too much from that of the data."""
    if theirs.lowercase and not ours.lowercase:
        raise ConfigurationError(
            f"{teacher} writes lower case only, but {data} has upper case: prepare it with "
            "--lowercase, or take another teacher"
        )
    if theirs.tokenised_before != ours.tokenised_before:
        raise ConfigurationError(
            f"{teacher}: either its text or that of {data} was tokenised before preparation, but "
            "not both: prepare both alike"
        )
