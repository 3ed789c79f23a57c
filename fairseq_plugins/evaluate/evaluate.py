"""Evaluate a model on a test set: choose or average checkpoints, generate, score, compare.

Results are stored in RUN/evaluation, one folder per choice of checkpoints and options. They are
reused until checkpoints or data change.
"""

import argparse
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fairseq_plugins.compat.intact_checkpoints import find_damage
from fairseq_plugins.data.prepared_folder import Prepared, digest_of_words, digests_of_words
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate import averages
from fairseq_plugins.evaluate.classification import Labels
from fairseq_plugins.evaluate.model import choose, options_of_export, parse_generation
from fairseq_plugins.evaluate.request import EvaluationRequest, check
from fairseq_plugins.evaluate.summarization import Summaries
from fairseq_plugins.evaluate.test_sets import OUTPUTS, TestSet
from fairseq_plugins.evaluate.translation import Translations
from fairseq_plugins.files import alone_in, check_no_link, digest, read_json, write_json
from fairseq_plugins.scoring import bootstrap
from fairseq_plugins.search.checkpoints import Training, check_same_text, training_of
from fairseq_plugins.search.onnx_backend.folder import (
    CONFIG,
    DICTIONARY,
    LABELS,
    LANGUAGES,
    is_export,
)
from fairseq_plugins.system.progress import progress_bar

INPUTS, OUTPUT = "inputs.json", "output"  # what an output depends on, with its own digests
# the test sets of tasks; all others translate. The laboratory adds its own
TEST_SETS: dict[str, Any] = {
    "summarization": Summaries,
    "classification": Labels,
    "sentence_prediction": Labels,
}


class System(NamedTuple):
    """A model, its output on the test set, and its scores."""

    name: str
    folder: Path
    test: TestSet
    output: Any
    scores: dict[str, dict[str, Any]]

    def lines(self) -> list[str]:
        """The scores as lines of text for the terminal."""
        found = [f"{self.name} ({self.folder.name})"]
        for name, result in self.scores.items():
            score = f"{result['score']:.2f}"
            if "interval" in result:
                score += " [{:.2f}, {:.2f}]".format(*result["interval"])
            found.append(f"  {name} = {score}  {result['signature']}")
        return found + [f"  {note}" for note in self.test.notes]


class Opened(NamedTuple):
    """What a request names: the checkpoints of each model, the test set, and how to search."""

    chosen: list[list[Path]]
    test: TestSet
    given: Any  # options of fairseq-generate; None for models that do not generate


def open_request(request: EvaluationRequest) -> Opened:
    """Find all that a request names, before slow work starts.

    Raises:
        ConfigurationError: an argument is invalid, or a file is missing.
    """
    check(request)
    chosen = [choose(member) for member in request.members]
    return Opened(chosen, *_test_set(request, chosen))


def evaluate(
    request: EvaluationRequest,
    say: Callable[[str], None],
    opened: Opened | None = None,
) -> System:
    """Score the output of a model; reuse the output of an earlier run if nothing has changed.

    Args:
        request: the model, the test set and the options.
        say: called with each line of progress.
        opened: what `open_request` found, if it was called before.

    Raises:
        ConfigurationError: an argument is invalid, a file is missing, or another evaluation runs in
            the same folder.
    """
    chosen, test, given = opened or open_request(request)
    run, members = request.run, request.members
    generation = request.generation if test.generates else []
    folder = run / "evaluation" / request.folder_name(test.generates)
    for path in (*(member.run / "evaluation" for member in members), folder):
        check_no_link(path)
    with alone_in(run / "evaluation", "evaluation"):
        folder.mkdir(exist_ok=True)
        inputs = {
            "checkpoints": _identity([path for each in chosen for path in each]),
            "data": _identity(test.files),
            "options": generation,
        }
        rows = _kept(test, folder, inputs, say)
        if rows is None:
            for path in folder.iterdir():
                path.unlink()
            with contextlib.ExitStack() as stack:  # lock the averages while they are used
                for member in members[1:]:
                    stack.enter_context(alone_in(member.run / "evaluation", "evaluation"))
                models = [checkpoint_of(member, each, say) for member, each in zip(members, chosen)]
                output = _predict(test, models, given, request)
            cut_off = getattr(test, "cut_off", 0)
            if cut_off:
                say(
                    f"{cut_off:,} of {test.total:,} outputs reached the length limit and may be "
                    "cut off"
                )
            test.check_total(output[0] if isinstance(output, tuple) else output)
            rows = test.rows(output)
            _keep(test, rows, folder, inputs)
        output = test.output_of(rows)
        metrics = test.metrics(output)
        scores = bootstrap.scores(metrics, output)
        of_texts = {
            metric.name: [round(metric.of_text(sums), 4) for sums in metric.statistics(output)]
            for metric in metrics
            if metric.of_text is not None
        }
        scored = [
            {**row, "scores": dict(zip(of_texts, numbers))}
            for row, *numbers in zip(rows, *of_texts.values())
        ]
        if scored != rows:  # the first time, or with other options of the scores
            _keep(test, scored, folder, inputs)
        write_json(
            folder / "scores.json",
            {
                "run": str(run),
                "data": str(request.data),
                "checkpoints": [path.name for path in chosen[0]],
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
    return System(name, folder, test, output, scores)


def _predict(test: TestSet, models: list[Path], given: Any, request: EvaluationRequest) -> Any:
    """The output for a test set, with a bar."""
    before = torch.get_num_threads()
    with progress_bar(description=request.split, total=test.total, unit=test.unit) as bar:
        if request.threads is not None:
            torch.set_num_threads(request.threads)
        try:
            output = test.predict(models, given, request.cpu, bar.update)
        finally:
            if request.threads is not None:
                torch.set_num_threads(before)
        bar.update(test.total - bar.n)  # texts without words
    return output


def _test_set(
    request: EvaluationRequest, chosen: Sequence[list[Path]]
) -> tuple[TestSet, argparse.Namespace | None]:
    """The test set for the task of the models, and how they search.

    Args:
        request: the model, the test set and the options.
        chosen: the checkpoints of each model of an ensemble, or of the only one.

    Raises:
        ConfigurationError: the models do not fit the data, each other or the options.
    """
    trainings = [_training(each[-1]) for each in chosen]
    tasks = [training.task["_name"] for training in trainings]
    if request.ensemble:
        _check_ensemble(request.members, tasks)
    task = tasks[0]
    kind = test_set_of(task)
    if request.unicode and not kind.has_rouge:
        raise ConfigurationError("--unicode is for summaries, scored by ROUGE: remove it")
    prepared, names = Prepared(request.data), [str(each[-1]) for each in chosen]
    if not kind.generates:
        if request.given_words or request.settings or request.ensemble:
            raise ConfigurationError(
                f"{request.run} is a classifier: --beam, --max-tokens, --settings, --ensemble and "
                "options after -- are for generation: remove them"
            )
        check_same_text(names, trainings, prepared)
        return kind(request.data, request.split), None
    if prepared.task not in ("translation", "summarization"):
        raise ConfigurationError(
            f"evaluate does not test --task {task} on {request.data}, which was prepared for "
            f"{prepared.task}: give data of the model's task; reproduce tests the laboratory's "
            "models"
        )
    source, target = check_same_text(names, trainings, prepared) or prepared.languages
    prepared.processing.check_languages(source, target, request.data)
    test = kind(prepared, request.split, target)
    test.unicode = request.unicode
    of_task = ["--task", task] if kind.has_rouge else []
    given = parse_generation([*of_task, *request.generation])
    if is_export(request.run):
        options_of_export(given)  # refuses what it does not take
    return test, given


def _check_ensemble(members: Sequence[EvaluationRequest], tasks: Sequence[str]) -> None:
    for member, task in zip(members, tasks):
        if is_export(member.run):
            raise ConfigurationError(
                f"--ensemble: {member.run} is an exported model, which cannot join one"
            )
        if not test_set_of(task).generates:
            raise ConfigurationError(
                f"--ensemble: {member.run} is a classifier, but only models that generate are "
                "combined"
            )


def _training(checkpoint: Path) -> Training:
    """The facts about the training of a checkpoint, or of an export, from `CONFIG`."""
    if checkpoint.name != CONFIG:
        return training_of(averages.load(checkpoint), str(checkpoint))
    folder, config = checkpoint.parent, read_json(checkpoint)
    if not isinstance(config, dict) or "format" not in config:
        raise ConfigurationError(
            f"{checkpoint} is not that of an exported model: RUN is the --save-dir of a training, "
            "or a folder that `export` wrote"
        )
    words = digests_of_words(folder)
    if LABELS in config:
        text = (folder / DICTIONARY).read_text(encoding="utf-8")
        # fairseq's own task adds a word to the dictionary of the data
        words["input0/dict.txt"] = digest_of_words(text.removesuffix("<mask> 1\n"))
        return Training({"_name": "classification", "data": str(folder)}, words)
    task = "summarization" if config.get("summarizes") else "translation"
    languages = {name: config.get(name) for name in LANGUAGES}
    return Training({"_name": task, **languages, "data": str(folder)}, words)


def test_set_of(task: str) -> Any:
    """The class of test sets for models of a task, which is fairseq's name of it."""
    return TEST_SETS.get(task, Translations)


def _keep(test: TestSet, rows: list[dict[str, Any]], folder: Path, inputs: Any) -> None:
    """Write an output, and then what it depends on."""
    test.write(rows, folder)
    write_json(folder / INPUTS, {**inputs, OUTPUT: _digests(folder)})


def _kept(test: TestSet, folder: Path, inputs: Any, say: Callable[[str], None]) -> Any:
    """The rows of an earlier run with these inputs; None if missing or damaged."""
    stored = read_json(folder / INPUTS) or {}
    written = stored.pop(OUTPUT, None)
    if stored != inputs:
        return None
    if written != _digests(folder):
        say(f"the output in {folder} has changed since it was written, so it is made again")
        return None
    say(f"kept: {folder}")
    return test.read(folder)


def _digests(folder: Path) -> dict[str, str]:
    """The digests of the files of an output."""
    return {OUTPUTS: digest(folder / OUTPUTS)} if (folder / OUTPUTS).is_file() else {}


def _identity(paths: Sequence[Path]) -> list[list[Any]]:
    """Name, size and time of modification of each file, to detect changes."""
    return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in paths]


def checkpoint_of(
    request: EvaluationRequest, paths: list[Path], say: Callable[[str], None]
) -> Path:
    """The file to generate with: a single checkpoint, or an average that this function writes; or
    the folder of an export.

    Args:
        request: the model, which is not an ensemble.
        paths: its checkpoints, from `choose`.
        say: called with each line of progress.
    """
    if is_export(request.run):
        return request.run
    if request.last is None and request.best is None:
        return paths[0]
    return _averaged(paths, request.run / "evaluation" / f"{request.label}.pt", say)


def _averaged(paths: list[Path], output: Path, say: Callable[[str], None]) -> Path:
    """Write the average of checkpoints to `output`, unless an intact, current one exists."""
    inputs = output.with_suffix(".json")
    there = output.is_file() and not find_damage(str(output))
    if not there or read_json(inputs) != _identity(paths):
        inputs.unlink(missing_ok=True)
        averages.save(averages.average(paths, say), output)
        write_json(inputs, _identity(paths))
    return output
