"""Evaluate a model on a test set: choose or average checkpoints, generate, score, compare.

Results are stored in RUN/evaluation, in a folder for each choice of checkpoints and options. They
are reused until checkpoints or data change.
"""

import argparse
import contextlib
import hashlib
import os
import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import torch
from fairseq import options

from fairseq_plugins.compat.intact_checkpoints import find_damage
from fairseq_plugins.compat.training_options import LABELS
from fairseq_plugins.errors import ConfigurationError, check_path
from fairseq_plugins.evaluation import averaging
from fairseq_plugins.evaluation.classification import Labels
from fairseq_plugins.evaluation.summarization import Summaries
from fairseq_plugins.evaluation.translation import Translations
from fairseq_plugins.json_files import read_json, write_json
from fairseq_plugins.progress import progress_bar
from fairseq_plugins.text.processing import Processing
from fairseq_plugins.trained_models import check_same_text, task_options
from fairseq_plugins.training import recipes, settings
from fairseq_plugins.training.jobs import JobFailed, Jobs, alone_in, failure_in
from fairseq_plugins.training.launch import PLUGIN

OWN_OPTIONS = (
    "--user-dir", "--path", "--gen-subset", "--results-path", "--remove-bpe", "--post-process",
    "--bpe", "--tokenizer", "--source-lang", "-s", "--target-lang", "-t",
)  # fmt: skip
MISLEADING = ("--score-reference", "--prefix-size", "--num-shards", "--shard-id")
REFUSED = {  # options of fairseq-generate, each with the reason
    **dict.fromkeys(OWN_OPTIONS, "this command sets it: leave it out"),
    **dict.fromkeys(
        MISLEADING, "the score would not be that of the model's translations of the whole split"
    ),
    "--quiet": "the output would not have the translations",
}
DEFAULTS = ["--beam", "5", "--max-tokens", "4096"]
SPEED = ("--max-tokens", "--batch-size", "--num-workers")  # which do not change the output


class Request(NamedTuple):
    """The model and test set to evaluate, and the options."""

    data: Path
    run: Path
    split: str = "test"
    last: Optional[int] = None
    best: Optional[int] = None
    checkpoint: Optional[str] = None
    by: Optional[str] = None  # None: "epoch" if there are epoch checkpoints, otherwise "update"
    settings: Sequence[Path] = ()
    words: Sequence[str] = ()  # more options for fairseq-generate
    cpu: bool = False
    unicode: bool = False  # ROUGE of words of any script
    threads: Optional[int] = None  # of fairseq-generate on a CPU; None leaves the choice to torch
    ensemble: Sequence[Path] = ()  # more runs, whose predictions are averaged with those of `run`

    @property
    def members(self) -> List["Request"]:
        """A request for each model alone: one, or those of the ensemble."""
        return [self._replace(run=run, ensemble=()) for run in (self.run, *self.ensemble)]

    @property
    def label(self) -> str:
        """The choice of checkpoints, for names of files."""
        if self.last is not None:
            return f"last{self.last}" + (f"-{self.by}" if self.by else "")
        if self.best is not None:
            return f"best{self.best}"
        return Path(self.checkpoint or "checkpoint_best.pt").stem

    @property
    def generation(self) -> List[str]:
        """Options of fairseq-generate; if an option occurs twice, fairseq uses the last value.

        `--option=value` is two words.
        """
        return _apart([*DEFAULTS, *recipes.settings(self.settings), *self.words])

    @property
    def beam(self) -> str:
        words = self.generation
        return [after for word, after in zip(words, words[1:]) if word == "--beam"][-1]

    @property
    def search(self) -> str:
        """How to generate, for names of files: beam, settings and options, or a hash of many."""
        named = [path.stem for path in self.settings]
        words = iter(_apart(self.words))
        for word in words:
            if word in ("--beam", *SPEED):
                next(words, None)
            else:
                named.append(re.sub("^--", "", word))
        label = "-".join(named)
        if len(label) > 60 or not re.fullmatch(r"[\w.-]*", label):
            label = "options" + hashlib.sha256("\n".join(named).encode()).hexdigest()[:8]
        return f"beam{self.beam}" + (f"-{label}" if label else "")


def _apart(words: Sequence[str]) -> List[str]:
    """The words, with `--option=value` as two."""
    return [
        word for one in words for word in (one.split("=", 1) if one.startswith("--") else [one])
    ]


class System(NamedTuple):
    """A model, its output on the test set, and its scores."""

    name: str
    folder: Path
    test: Any  # Translations, Summaries or Labels
    text: Any
    scores: Dict[str, Dict[str, Any]]

    def lines(self) -> List[str]:
        """The scores as lines of text for the terminal."""
        found = [f"{self.name} ({self.folder.name})"]
        for name, result in self.scores.items():
            score = f"{result['score']:.2f}"
            if "interval" in result:
                score += " [{:.2f}, {:.2f}]".format(*result["interval"])
            found.append(f"  {name} = {score}  {result['signature']}")
        return found


def check(request: Request) -> None:
    """Raise a ConfigurationError for errors that can be detected before slow work starts."""
    if not request.data.is_dir():
        raise ConfigurationError(f"DATA {request.data}: no such folder")
    for member in request.members:
        if not member.run.is_dir():
            raise ConfigurationError(
                f"{member.run}: no such folder; RUN is the --save-dir of a training"
            )
        check_path("RUN", member.run)
    behind = _apart(request.words)
    for option in request.generation:
        where = "after --" if option in behind else "in --settings"
        if option in REFUSED:
            raise ConfigurationError(f"{option} is not allowed {where}: {REFUSED[option]}")
    if request.by is not None and request.last is None:
        raise ConfigurationError(f"--by {request.by} says what --last counts: add --last K")
    _check_beam(request.generation)
    for member in request.members:
        choose(member)


def _check_beam(words: Sequence[str]) -> None:
    for word, value in zip(words, words[1:]):
        if word == "--beam" and not (value.isdigit() and int(value) >= 1):
            raise ConfigurationError(f"--beam {value}: must be at least 1")


def check_generation(task: str, words: Sequence[str]) -> None:
    """Check options for fairseq-generate before there is a model to evaluate.

    Args:
        task: the name of the model's task.
        words: the options, as in `Request.words`.

    Raises:
        ConfigurationError: there are some for a classifier, or fairseq does not know one.
    """
    if not words:
        return
    if task in LABELS:
        raise ConfigurationError(
            f"--generate {' '.join(words)}: a classifier does not generate: leave it out"
        )
    for word in _apart(words):
        if word in REFUSED:
            raise ConfigurationError(f"--generate {word}: {REFUSED[word]}")
    try:
        _parse_generation(["--task", task, *words])
    except ConfigurationError as error:
        raise ConfigurationError(f"--generate: {error}") from None
    _check_beam(_apart(words))


def _parse_generation(words: Sequence[str]) -> None:
    """Raise a ConfigurationError if fairseq-generate does not take these options."""

    def make_parser() -> argparse.ArgumentParser:
        parser = options.get_generation_parser()
        parser.add_argument("--arch", "-a", default="wav2vec2")  # as the command adds it
        return parser

    settings.parse_as("fairseq-generate", make_parser, ["DATA", "--path", "RUN", *words])


def choose(request: Request) -> List[Path]:
    """The checkpoints to average, or the single checkpoint to use.

    Raises:
        ConfigurationError: a checkpoint is missing, or there are too few.
    """
    run = request.run
    if request.last is None and request.best is None:
        path = run / (request.checkpoint or "checkpoint_best.pt")
        if not path.is_file():
            have = sorted(path.name for path in run.glob("*.pt"))
            raise ConfigurationError(
                f"{path} is not there: {run} has {', '.join(have) or 'no checkpoint; train first'}"
            )
        return [path]
    return averaging.choose([run], request.last, request.best, request.by)


def evaluate(request: Request, jobs: Jobs, say: Callable[[str], None]) -> System:
    """Generate with a model and score its output; reuse the output of an earlier run if valid.

    Args:
        request: the model, the test set and the options.
        jobs: runs fairseq-generate.
        say: called with each line of progress.

    Raises:
        ConfigurationError: an argument is invalid, a file is missing, or another evaluation runs in
            the same folder.
        JobFailed: fairseq-generate failed.
    """
    check(request)
    run, members = request.run, request.members
    chosen = [choose(member) for member in members]
    paths = chosen[0]
    tasks = [task_options(averaging.load(each[-1])) for each in chosen]
    task = tasks[0]
    test: Any
    languages: List[str] = []
    generation = request.generation
    if request.ensemble:
        for member, other in zip(members, tasks):
            if other["_name"] in LABELS:
                raise ConfigurationError(
                    f"--ensemble: {member.run} is a classifier, and only models that generate are "
                    "combined"
                )
    if task["_name"] in LABELS:
        if request.words or request.settings:
            raise ConfigurationError(
                f"{run} is a classifier: --beam, --max-tokens, --settings and what stands behind "
                "-- are for generation: leave them out"
            )
        test, generation = Labels(request.data, request.split), []
    else:
        prepared = Processing.load(request.data)
        names = [str(each[-1]) for each in chosen]
        trained_for = check_same_text(names, tasks, request.data)
        languages = list(trained_for or (prepared.source_lang, prepared.target_lang))
        prepared.check_languages(languages[0], languages[1], request.data)
        if task["_name"] == "summarization":
            test = Summaries(request.data, request.split, request.unicode)
        else:
            test = Translations(request.data, request.split, languages[1])
        _parse_generation([*test.words, *generation])
    if request.unicode and not isinstance(test, Summaries):
        raise ConfigurationError("--unicode is for summaries, which ROUGE scores: leave it out")
    name = f"{request.split}-{request.label}" + (f"-{request.search}" if languages else "")
    if request.ensemble:
        places = "\n".join(str(other.resolve()) for other in request.ensemble)
        name += f"-ensemble{len(members)}-{hashlib.sha256(os.fsencode(places)).hexdigest()[:8]}"
    folder = run / "evaluation" / name
    inputs = {
        "checkpoints": _identity([path for each in chosen for path in each]),
        "data": _identity(test.files),
        "options": generation,
    }
    with alone_in(run / "evaluation", "evaluation") as lock:
        folder.mkdir(exist_ok=True)
        log = folder / ("generate.log" if languages else "labels.log")
        done = folder / "inputs.json"
        text = None
        if read_json(done) == inputs and log.is_file():
            try:
                text = test.read(log)
                say(f"kept: {folder}")
            except ConfigurationError as error:
                say(f"{log} is damaged and made again: {error}")
        if text is None:
            if done.exists():
                done.unlink()
            if languages:
                words = ["--source-lang", languages[0], "--target-lang", languages[1], *test.words]
                with contextlib.ExitStack() as stack:  # nobody replaces an average meanwhile
                    for member in members[1:]:
                        stack.enter_context(alone_in(member.run / "evaluation", "evaluation"))
                    checkpoints = [
                        _checkpoint(member, each, say) for member, each in zip(members, chosen)
                    ]
                    _generate(checkpoints, words, test.total, log, request, jobs, lock)
            else:
                test.predict(_checkpoint(request, paths, say), log, request.cpu, request.threads)
            text = test.read(log)  # raises an error if output is missing
            write_json(done, inputs)
        test.write(text, folder)
        scores = test.score(text)
        write_json(
            folder / "scores.json",
            {
                "run": str(run),
                "checkpoints": [path.name for path in paths],
                "ensemble": {
                    str(other): [path.name for path in each]
                    for other, each in zip(request.ensemble, chosen[1:])
                },
                "split": request.split,
                "sentences": test.total,
                "options": generation,
                "scores": scores,
            },
        )
    name = " + ".join(str(member.run) for member in members)
    return System(name, folder, test, text, scores)


def _generate(
    checkpoints: Sequence[Path],
    words: Sequence[str],
    total: int,
    log: Path,
    request: Request,
    jobs: Jobs,
    lock: Any,
) -> None:
    """Run fairseq-generate, with its output in `log`."""
    command = [sys.executable, "-m", "fairseq_cli.generate", str(request.data)]
    path = os.pathsep.join(str(checkpoint) for checkpoint in checkpoints)
    command += ["--user-dir", str(PLUGIN), "--path", path, *words]
    command += ["--gen-subset", request.split, "--no-progress-bar", *request.generation]
    if request.cpu or not torch.cuda.is_available():
        command += ["--cpu"]
    part = log.with_name(log.name + ".part")
    if part.exists():
        part.unlink()
    with progress_bar(description=request.split, total=total, unit=" sentences") as bar:
        status = jobs.run(command, part, lambda line: _count(line, bar), lock, request.threads)
    if status != 0:
        raise JobFailed(f"fairseq-generate failed: {failure_in(part, status)}; its log is {part}")
    os.replace(part, log)


def _count(line: str, bar: Any) -> None:
    bar.update(line.startswith("D-"))


def _identity(paths: Sequence[Path]) -> List[List[Any]]:
    """Name, size and time of modification of each file, to detect changes."""
    return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in paths]


def _checkpoint(request: Request, paths: List[Path], say: Callable[[str], None]) -> Path:
    """The file to generate with: a single checkpoint, or the average of several."""
    if request.last is None and request.best is None:
        return paths[0]
    return _averaged(paths, request.run / "evaluation" / f"{request.label}.pt", say)


def _averaged(paths: List[Path], output: Path, say: Callable[[str], None]) -> Path:
    """Write the average of checkpoints to `output`, unless it is there, intact and up to date."""
    inputs = output.with_suffix(".json")
    there = output.is_file() and not find_damage(str(output))
    if not there or read_json(inputs) != _identity(paths):
        if inputs.exists():
            inputs.unlink()
        averaging.save(averaging.average(paths, say), output)
        write_json(inputs, _identity(paths))
    return output
