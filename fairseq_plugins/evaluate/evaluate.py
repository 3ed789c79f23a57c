"""Evaluate a model on a test set: choose or average checkpoints, generate, score, compare.

Results are stored in RUN/evaluation, one folder per choice of checkpoints and options. They are
reused until checkpoints or data change.
"""

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from fairseq_plugins.compat.intact_checkpoints import find_damage
from fairseq_plugins.data.prepared_folder import Prepared, digest_of_words, digests_of_words
from fairseq_plugins.errors import ConfigurationError, counted
from fairseq_plugins.evaluate import averages
from fairseq_plugins.evaluate.classification import Labels
from fairseq_plugins.evaluate.model import choose, options_of_export, parse_generation
from fairseq_plugins.evaluate.request import EvaluationRequest, check
from fairseq_plugins.evaluate.summarization import Summaries
from fairseq_plugins.evaluate.test_sets import Output, TestSet
from fairseq_plugins.evaluate.translation import Translations
from fairseq_plugins.files import (
    alone_in,
    check_no_link,
    digest,
    read_json,
    read_lines,
    write_json,
    write_lines,
)
from fairseq_plugins.pretrained import CONFIG, is_export
from fairseq_plugins.scoring import bootstrap
from fairseq_plugins.search.checkpoints import Training, check_same_text, training_of
from fairseq_plugins.search.onnx_backend.folder import DICTIONARY, LABELS, LANGUAGES
from fairseq_plugins.system.progress import progress_bar

FOLDER = "evaluation"  # of a run
OUTPUTS = "outputs.jsonl"  # one JSON object per text
INPUTS, OUTPUT = "inputs.json", "output"  # what an output depends on, with its own digest
# the test sets of tasks; all others translate. The laboratory adds its own
TEST_SETS: dict[str, Any] = {
    "summarization": Summaries,
    "classification": Labels,
    "sentence_prediction": Labels,
}


class Evaluation:
    """A model and a test set, and after `run` the output and its scores.

    The constructor finds and checks all that a request names, before slow work starts.

    Args:
        request: the model, the test set and the options.
        say: called with each line of progress.

    Attributes:
        name: of the model, or of all models of an ensemble.
        test: the test set.
        folder: has the results.
        output: the columns that the models wrote, see `TestSet`.
        scores: of the output, each with its signature.

    Raises:
        ConfigurationError: an argument is invalid, a file is missing, or the models do not fit the
            data, each other or the options.
    """

    output: Output
    scores: dict[str, dict[str, Any]]

    def __init__(self, request: EvaluationRequest, say: Callable[[str], None]):
        check(request)
        self.request, self.say = request, say
        self.chosen = {run: choose(run, request) for run in request.runs}
        self.test, self.given = self._open()
        self.generation = request.generation if self.test.generates else []
        self.name = " + ".join(map(str, request.runs))
        self.folder = request.run / FOLDER / request.folder_name(self.test.generates)

    def _open(self) -> tuple[TestSet, argparse.Namespace | None]:
        """The test set for the task of the models, and the options of fairseq-generate, if any."""
        request = self.request
        trainings = {run: _training(paths[-1]) for run, paths in self.chosen.items()}
        tasks = {run: training.task["_name"] for run, training in trainings.items()}
        for run in request.runs if request.ensemble else ():
            if is_export(run):
                raise ConfigurationError(
                    f"--ensemble: {run} is an exported model, which cannot join one"
                )
            if not test_set_of(tasks[run]).generates:
                raise ConfigurationError(
                    f"--ensemble: {run} is a classifier, but only models that generate are combined"
                )
        task = tasks[request.run]
        kind = test_set_of(task)
        if request.unicode and not kind.has_rouge:
            raise ConfigurationError("--unicode is for summaries, scored by ROUGE: remove it")
        if not kind.generates and (request.given_words or request.settings or request.ensemble):
            raise ConfigurationError(
                f"{request.run} is a classifier: --beam, --max-tokens, --settings, --ensemble and "
                "options after -- are for generation: remove them"
            )
        prepared = Prepared(request.data)
        if kind.generates and prepared.task not in ("translation", "summarization"):
            raise ConfigurationError(
                f"evaluate does not test --task {task} on {request.data}, which was prepared for "
                f"{prepared.task}: give data of the model's task; reproduce tests the laboratory's "
                "models"
            )
        names = [str(paths[-1]) for paths in self.chosen.values()]
        direction = check_same_text(names, list(trainings.values()), prepared)
        if not kind.generates:
            return kind(request.data, request.split), None
        source, target = direction or prepared.languages
        prepared.processing.check_languages(source, target, request.data)
        test = kind(prepared, request.split, target)
        test.unicode = request.unicode
        of_task = ["--task", task] if kind.has_rouge else []
        given = parse_generation([*of_task, *request.generation])
        if is_export(request.run):
            options_of_export(given)  # refuses what it does not take
        return test, given

    def run(self) -> None:
        """Score the output of the model; reuse that of an earlier run if nothing has changed.

        Raises:
            ConfigurationError: another evaluation runs in the same folder.
        """
        test, request = self.test, self.request
        for path in (*(run / FOLDER for run in self.chosen), self.folder):
            check_no_link(path)
        with alone_in(request.run / FOLDER, "evaluation"):
            self.folder.mkdir(exist_ok=True)
            self.inputs = {
                "checkpoints": _identity([path for each in self.chosen.values() for path in each]),
                "data": _identity(test.files),
                "options": self.generation,
            }
            columns = self._kept()
            if columns is None:
                for path in self.folder.iterdir():
                    path.unlink()
                columns = {**test.texts(), **self._predict()}
                columns = {name: list(column) for name, column in columns.items()}
                self._keep(columns)
            before = columns.pop("scores", None)
            self.output = columns
            metrics = test.metrics(columns)
            self.scores = bootstrap.scores(metrics, columns)
            numbers = {
                metric.name: [round(metric.of_text(sums), 4) for sums in metric.statistics(columns)]
                for metric in metrics
                if metric.of_text is not None
            }
            of_texts = [dict(zip(numbers, each)) for each in zip(*numbers.values())]
            if before != of_texts:  # the first time, or with other options of the scores
                self._keep({**columns, "scores": of_texts})
            names = {str(run): [path.name for path in paths] for run, paths in self.chosen.items()}
            write_json(
                self.folder / "scores.json",
                {
                    "run": str(request.run),
                    "data": str(request.data),
                    "checkpoints": names.pop(str(request.run)),
                    "ensemble": names,
                    "split": request.split,
                    "sentences": test.total,
                    "options": self.generation,
                    "scores": self.scores,
                },
            )

    def _predict(self) -> Output:
        """What the models write, with a bar."""
        test, request, before = self.test, self.request, torch.get_num_threads()
        with contextlib.ExitStack() as stack:  # lock the averages while they are used
            for run in request.ensemble:
                stack.enter_context(alone_in(run / FOLDER, "evaluation"))
            models = [checkpoint_of(run, request, self.say) for run in self.chosen]
            bar = stack.enter_context(
                progress_bar(description=request.split, total=test.total, unit=test.unit)
            )
            stack.callback(torch.set_num_threads, before)
            torch.set_num_threads(request.threads or before)
            output = test.predict(models, self.given, request.cpu, bar.update)
            bar.update(test.total - bar.n)  # texts without words
        if test.cut_off:
            self.say(
                f"{test.cut_off:,} of {counted(test.total, 'outputs')} reached the length limit "
                "and may be cut off"
            )
        count = min(map(len, output.values()))
        if count != test.total:
            raise ConfigurationError(
                f"the output has {count} of {counted(test.total, 'texts')}: a score needs all"
            )
        return output

    def _keep(self, columns: Output) -> None:
        """Write an output, one JSON object per text, and then what it depends on."""
        path, rows = self.folder / OUTPUTS, zip(*columns.values())
        write_lines(path, (json.dumps(dict(zip(columns, r)), ensure_ascii=False) for r in rows))
        self.test.write_more(columns, self.folder)
        write_json(self.folder / INPUTS, {**self.inputs, OUTPUT: digest(path)})

    def _kept(self) -> Output | None:
        """The columns of an earlier run with these inputs; None if missing or damaged."""
        path, stored = self.folder / OUTPUTS, read_json(self.folder / INPUTS) or {}
        written = stored.pop(OUTPUT, None)
        if stored != self.inputs:
            return None
        if not path.is_file() or written != digest(path):
            self.say(
                f"the output in {self.folder} has changed since it was written, so it is made again"
            )
            return None
        self.say(f"kept: {self.folder}")
        rows = [json.loads(line) for line in read_lines(path)]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def lines(self) -> list[str]:
        """The scores as lines of text for the terminal."""
        found = [f"{self.name} ({self.folder.name})"]
        for name, result in self.scores.items():
            score = f"{result['score']:.2f}"
            if "interval" in result:
                score += " [{:.2f}, {:.2f}]".format(*result["interval"])
            found.append(f"  {name} = {score}  {result['signature']}")
        return found + [f"  {note}" for note in self.test.notes]

    def examples(self, count: int) -> Iterator[str]:
        """Up to `count` texts, evenly spaced, each with its line of every column."""
        total = self.test.total
        for place in range(min(count, total)):
            number = total * place // min(count, total)
            yield "".join(f"  {name:12}{each[number]}\n" for name, each in self.output.items())


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


def _identity(paths: Sequence[Path]) -> list[list[Any]]:
    """Name, size and time of modification of each file, to detect changes."""
    return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in paths]


def checkpoint_of(run: Path, request: EvaluationRequest, say: Callable[[str], None]) -> Path:
    """The file to generate with: a single checkpoint, or an average that this function writes; or
    the folder of an export.

    Args:
        run: a training or an export.
        request: chooses the checkpoints.
        say: called with each line of progress.
    """
    if is_export(run):
        return run
    paths = choose(run, request)
    if request.last is None and request.best is None:
        return paths[0]
    output = run / FOLDER / f"{request.label}.pt"
    inputs = output.with_suffix(".json")
    there = output.is_file() and not find_damage(str(output))
    if not there or read_json(inputs) != _identity(paths):
        inputs.unlink(missing_ok=True)
        averages.save(averages.average(paths, say), output)
        write_json(inputs, _identity(paths))
    return output
