"""Models that write text for others to learn from: checkpoints, an ensemble, an exported model."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple, Optional

import torch

from fairseq_plugins import trained_models
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate import averages
from fairseq_plugins.evaluate.evaluate import checkpoint_of
from fairseq_plugins.evaluate.request import EvaluationRequest, choose
from fairseq_plugins.files import alone_in, check_no_link, digest
from fairseq_plugins.json_files import read_json
from fairseq_plugins.prepared_folder import Prepared, differing
from fairseq_plugins.search.choose_engine import find_models
from fairseq_plugins.search.onnx_backend.folder import CONFIG, LANGUAGES
from fairseq_plugins.search.text import Output, sentences_of
from fairseq_plugins.summarizer import Summarizer
from fairseq_plugins.text.processing import Processing
from fairseq_plugins.text.sentences import BOUNDARY, is_blank, join_sentences
from fairseq_plugins.text.subwords import SPECIAL
from fairseq_plugins.translator import Translator
from fairseq_plugins.workers import (
    belong_to_parent,
    default_workers,
    killed,
    spawn_context,
    terminate,
)

UNKNOWN = SPECIAL[3]
LINES_PER_TASK, TASKS = 128, 8  # maximum lines per task, and tasks per process at a time
EMPTY, CUT_OFF, UNKNOWN_WORD = "empty", "cut off", "unknown"  # problems of a text


class Search(NamedTuple):
    """How teachers search; None leaves a limit to the model, and n-grams to the kind of text."""

    beam: int = 5
    lenpen: float = 1.0
    max_tokens: int = 4000
    cpu: bool = False
    fp16: bool = False
    int8: bool = False
    min_length: int = 1
    max_length: int | None = None
    no_repeat_ngram: int | None = None


SEARCH = Search()  # the defaults


class Written(NamedTuple):
    """What a teacher wrote for a line.

    Attributes:
        text: for a translation its tokens, as in the prepared folder; for a summary its text,
            with `BOUNDARY` between sentences.
        problem: why no model should learn it: it is empty, was stopped at the length limit, or
            has the unknown symbol; else "".
    """

    text: str
    problem: str


class _Job(NamedTuple):
    """Everything a process needs to load a teacher and to convert its output."""

    kind: Any  # of `KINDS`
    paths: list[str]
    own: str | None  # the prepared folder; None: the one the model was trained on
    data: str
    target: str
    search: Search


class Teachers:
    """An ensemble of checkpoints, or one exported model, in several processes.

    As a context manager, it ends its processes. The first call of `write` loads the models.

    Args:
        places: runs, checkpoints, or one exported model or name of a pretrained model.
        data: the prepared folder whose text is read.
        last: average this many of the newest checkpoints of each run, as `evaluate` does.
        search: the options of search.
        processes: number of processes; None: one per GPU, or one per core without a GPU.
        option: the user's option that gives `places`.
        say: called with each line about averaging.

    Attributes:
        names: the files of the models.
        digests: their checksums.
        direction: the languages that the models read and write.
        search: the options that affect their texts.

    Raises:
        ConfigurationError: a model is missing, or does not fit the others or the data.
    """

    def __init__(
        self,
        places: Sequence[Path],
        data: Path,
        last: int | None = None,
        search: Search = SEARCH,
        processes: int | None = None,
        option: str = "TEACHER",
        say: Callable[[str], None] = print,
    ) -> None:
        prepared = Prepared(data)
        kind = KINDS.get(prepared.task)
        if kind is None:
            raise ConfigurationError(
                f"{data} was prepared for {prepared.task}: distill is for translation and "
                "summarization"
            )
        of_checkpoints = {"last": last, "fp16": search.fp16, "int8": search.int8}
        places, exported = find_models(places, 1, of_checkpoints, option)
        if exported:
            models = _of_export(places[0])
        else:
            files = [_checkpoint(place, data, last, option, say) for place in places]
            models = _of_checkpoints(files, prepared, option)
        self.direction = models.direction or prepared.languages
        prepared.processing.check_languages(*self.direction, data)
        _check_text(models.text, prepared.processing, f"{option} {models.paths[0]}", data)
        if search.no_repeat_ngram is None:
            search = search._replace(no_repeat_ngram=kind.no_repeat_ngram)
        self.names = [str(path) for path in models.paths]
        self.digests = [digest(path) for path in models.files]
        given = search._asdict()
        for name in ("cpu", "max_tokens"):  # these do not change the texts
            del given[name]
        usual = kind.not_recorded.items()
        self.search = {name: given[name] for name in given if (name, given[name]) not in usual}
        self._job = _Job(kind, self.names, models.own, str(data), self.direction[1], search)
        self._gpus = 0 if search.cpu or exported else torch.cuda.device_count()
        self._processes = processes or self._gpus or default_workers()
        self._pool: ProcessPoolExecutor | None = None
        self._loaded: _Teacher | None = None

    def __enter__(self) -> "Teachers":
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is not None and self._pool is not None:
            terminate(self._pool)
        self.release()

    def release(self) -> None:
        """Free the memory of the models; the next call of `write` reloads them."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool = self._loaded = None

    def write(self, lines: Sequence[str], count: int) -> list[list[Written]]:
        """Up to `count` texts for each line of raw source text, the best first.

        Raises:
            ConfigurationError: a model cannot be loaded, or a process was killed.
        """
        if self._processes == 1:
            self._loaded = self._loaded or self._job.kind(self._job)
            return self._loaded.write(lines, count)
        if self._pool is None:
            # forks of a process that used a GPU, or several threads, cannot use them
            context: Any = spawn_context()
            numbers = (self._job, context.Value("i"), self._processes, self._gpus)
            self._pool = ProcessPoolExecutor(self._processes, context, _begin, numbers)
        # small shares of similar length, longest first: all processes end at about the same time
        order = sorted(range(len(lines)), key=lambda number: -len(lines[number]))
        size = min(LINES_PER_TASK, -(-len(lines) // (TASKS * self._processes)))
        shares = [order[start : start + size] for start in range(0, len(order), size or 1)]
        found: list[list[Written]] = [[] for _ in lines]
        try:
            tasks = [
                self._pool.submit(_write, [lines[n] for n in share], count) for share in shares
            ]
            for share, task in zip(shares, tasks):
                for number, written in zip(share, task.result()):
                    found[number] = written
        except BrokenProcessPool:
            raise ConfigurationError(killed(self._processes, "teacher", "--processes")) from None
        return found


class _Models(NamedTuple):
    """What is known of the models of a teacher before they are loaded."""

    paths: list[Path]
    files: list[Path]  # whose checksums are recorded
    own: str | None  # see `_Job`
    text: Processing  # of what they write
    direction: tuple[str, str] | None  # None if it is unknown


def _of_export(folder: Path) -> _Models:
    description = folder / CONFIG  # it has the checksums of the other files
    config = read_json(description) or {}
    direction: Any = tuple(config.get(name) for name in LANGUAGES) if config else None
    return _Models([folder], [description], None, Prepared(folder).processing, direction)


def _of_checkpoints(paths: list[Path], prepared: Prepared, option: str) -> _Models:
    states = (averages.load(path) for path in paths)  # one in memory
    trainings = [trained_models.training_of(state) for state in states]
    pairs = [trained_models.direction(training.task) for training in trainings]
    known = {pair for pair in pairs if pair is not None}
    if len(known) > 1:
        raise ConfigurationError(f"{option}: models of two directions cannot be combined")
    direction, data = next(iter(known), None), prepared.folder
    words = map(trained_models.words_of, trainings)
    if not any(differing(each, prepared.words) for each in words):
        return _Models(paths, paths, str(data), prepared.processing, direction)
    folder = trained_models.find_data(paths[0], trainings[0])
    if folder is None:
        named = trained_models.trained_on(trainings[0].task)
        raise ConfigurationError(
            f"{option} {paths[0]} has other dictionaries than {data}, and {named}, which it was "
            "trained on, is not there: restore that, or let an export of it teach"
        )
    return _Models(paths, paths, None, Prepared(folder).processing, direction)


def _checkpoint(
    place: Path, data: Path, last: int | None, option: str, say: Callable[[str], None]
) -> Path:
    """The checkpoint in a place, or the average of its newest ones."""
    if last is None:
        return trained_models.find_checkpoint(place, option)
    if not place.is_dir():
        raise ConfigurationError(f"--last {last} is for runs: {option} {place} is not a folder")
    request = EvaluationRequest(data, place, last=last)
    check_no_link(place / "evaluation")
    with alone_in(place / "evaluation", "evaluation"):
        return checkpoint_of(request, choose(request), say)


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


_job: _Job | None = None  # the job of this process
_teacher: Optional["_Teacher"] = None


def _begin(job: _Job, number: Any, processes: int, gpus: int) -> None:
    """Set up a process: its job, and its GPU or its share of the cores."""
    global _job
    _job = job
    belong_to_parent()
    with number.get_lock():
        mine, number.value = number.value, number.value + 1
    if gpus:
        torch.cuda.set_device(mine % gpus)
    else:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // processes))


def _write(lines: Sequence[str], count: int) -> list[list[Written]]:
    global _teacher
    assert _job is not None
    _teacher = _teacher or _job.kind(_job)  # here, as an error in `_begin` would be lost
    return _teacher.write(lines, count)


class _Teacher(ABC):
    """A loaded teacher.

    Attributes:
        no_repeat_ngram: the default of the search.
        not_recorded: options that a distilled folder does not record if they have these values.
    """

    no_repeat_ngram = 0
    not_recorded: dict[str, Any] = {}
    model: Any

    @abstractmethod
    def candidates(self, lines: Sequence[str], count: int) -> Iterable[list[Output]]:
        """Up to `count` outputs for each line."""

    @abstractmethod
    def text(self, pieces: str) -> str:
        """The `Written.text` of an output."""

    def write(self, lines: Sequence[str], count: int) -> list[list[Written]]:
        """See `Teachers.write`."""
        found = self.candidates(lines, count)
        return [[self._written(output) for output in outputs] for outputs in found]

    def _written(self, output: Output) -> Written:
        text, problem = self.text(output.pieces), ""
        if is_blank(text):
            problem = EMPTY
        elif not output.complete:
            problem = CUT_OFF
        elif UNKNOWN in output.pieces.split(" "):
            problem = UNKNOWN_WORD
        return Written(text, problem)


class _Translating(_Teacher):
    # earlier releases limited only summaries
    not_recorded = {"min_length": 1, "max_length": None, "no_repeat_ngram": 0}

    def __init__(self, job: _Job) -> None:
        search, ours = job.search._asdict(), Prepared(job.data).processing
        least, longest = search.pop("min_length"), search.pop("max_length")
        self.model = Translator(job.paths, job.own, min_len=least, **search)
        if longest is not None:
            self.model.max_length = lambda source_length: longest
        theirs = self.model.processor.settings
        same = (theirs.tokenizer, theirs.lowercase) == (ours.tokenizer, ours.lowercase)
        # Moses' rules are not always reversible: through text only if tokens differ
        self._tokenise = None if same else ours.tokenise(job.target)

    def candidates(self, lines: Sequence[str], count: int) -> Iterable[list[Output]]:
        return self.model.candidates(lines, count)

    def text(self, pieces: str) -> str:
        if self._tokenise is None:
            return " ".join(self.model.processor.subwords.join(pieces).split())
        return self._tokenise(self.model.processor.decode(pieces))


class _Summarizing(_Teacher):
    no_repeat_ngram = 3

    def __init__(self, job: _Job) -> None:
        self.model = Summarizer(job.paths, job.own, **job.search._asdict())

    def candidates(self, lines: Sequence[str], count: int) -> Iterable[list[Output]]:
        return (outputs for _, _, outputs in self.model.candidates(lines, count))

    def text(self, pieces: str) -> str:
        sentences = map(self.model.processor.decode, sentences_of(pieces))
        # the boundary is never text, as in preparation
        return join_sentences(s.replace(BOUNDARY, "< q >") for s in sentences)


KINDS: dict[str, Any] = {"translation": _Translating, "summarization": _Summarizing}
