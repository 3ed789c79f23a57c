"""What test sets share: one class for models that write text, one for all others.

A test set decides how a model is tested. `evaluate` opens the one for the task of the model, and
calls `predict` for the output, `read` to check it, `write`, `score` and, for two models, `compare`.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import PART, written_whole
from fairseq_plugins.prepared_folder import Prepared, dictionaries
from fairseq_plugins.progress import progress_bar
from fairseq_plugins.train.jobs import JobFailed, Jobs, failure_in

GENERATED = "generated "  # prefix of a progress line of `hypotheses`; the number of texts follows


class TestSet:
    """What all test sets have.

    Attributes:
        total: the number of texts.
        has_rouge: whether its scores are ROUGE, of words of any script on request.
    """

    total: int
    has_rouge = False

    def columns(self, found: Any) -> dict[str, Sequence[str]]:
        """What belongs to each text, by its name, such as its reference and the output."""
        raise NotImplementedError

    def examples(self, found: Any, count: int) -> Iterator[str]:
        """Yield up to `count` texts, evenly spaced, each with its columns below each other."""
        columns, count = self.columns(found), min(count, self.total)
        width = max(map(len, columns)) + 1
        for number in (self.total * place // count for place in range(count)):
            lines = [f"  {name:{width}}{column[number]}" for name, column in columns.items()]
            yield "\n".join(lines) + "\n"


class Generated(TestSet):
    """A test set of texts that models write, with the options of fairseq-generate.

    Attributes:
        words: options of fairseq-generate that the test set needs.
        languages: the languages to read and to write.
    """

    generates = True
    log_name = "generate.log"
    split: str
    words: Sequence[str] = ()
    languages: tuple[str, str]

    def predict(
        self, checkpoints: Sequence[Path], log: Path, request: Any, jobs: Jobs, lock: Any = None
    ) -> None:
        """Run `evaluation.hypotheses` as a job, with its output in `log`."""
        command = [sys.executable, "-m", "fairseq_plugins.evaluate.hypotheses", str(request.data)]
        command += ["--path", os.pathsep.join(map(str, checkpoints)), *self.words]
        command += ["--source-lang", self.languages[0], "--target-lang", self.languages[1]]
        command += ["--gen-subset", request.split, "--no-progress-bar", *request.generation]
        if request.cpu or not torch.cuda.is_available():
            command += ["--cpu"]
        part = log.with_name(log.name + PART)
        part.unlink(missing_ok=True)
        with progress_bar(description=request.split, total=self.total, unit=" sentences") as bar:

            def count(line: str) -> None:
                if line.startswith(GENERATED):
                    bar.update(int(line[len(GENERATED) :]))

            status = jobs.run(command, part, count, lock, request.threads)
            bar.update(self.total - bar.n)  # texts without words
        if status != 0:
            raise JobFailed(f"generation failed: {failure_in(part, status)}; its log is {part}")
        os.replace(part, log)


class Predicted(TestSet):
    """A test set of what models predict in this process.

    Attributes:
        unit: what they are, for the progress bar.
    """

    generates = False
    log_name = "labels.log"
    unit = " texts"
    split: str
    text_files: Sequence[Path] = ()  # predictions are of binarised text

    def predict(
        self, checkpoints: Sequence[Path], log: Path, request: Any, jobs: Jobs, lock: Any = None
    ) -> None:
        """Write a line per text to `log`, on the GPU of `jobs`; stops when `jobs` stop."""
        if request.threads is not None:
            torch.set_num_threads(request.threads)
        bar = progress_bar(description=self.split, total=self.total, unit=self.unit)
        with jobs.here() as check, written_whole(log) as file, bar:
            for lines in self.lines(checkpoints[0], request.cpu):
                check()
                file.writelines(line + "\n" for line in lines)
                bar.update(len(lines))

    def lines(self, checkpoint: Path, cpu: bool) -> Iterator[list[str]]:
        """The output for the texts in their order, some at a time."""
        raise NotImplementedError


def read_output(log: Path, total: int) -> list[str]:
    """Hypotheses of `hypotheses` (in earlier releases fairseq-generate), in the test set's order.

    Each sentence has a line ``D-<number> <TAB> score <TAB> text``; fairseq-generate writes the
    longest sentences first. With --nbest a sentence has several lines, the best one first.

    Args:
        log: the output.
        total: the number of sentences.

    Raises:
        ConfigurationError: sentences are missing.
    """
    found: dict[int, str] = {}
    with open(log, encoding="utf-8", newline="\n") as lines:
        for line in lines:
            if line.startswith("D-"):
                number, _, text = line[2:].rstrip("\n").split("\t", 2)
                found.setdefault(int(number), text)
    if sorted(found) != list(range(total)):
        raise ConfigurationError(f"{log} has {len(found)} of {total} sentences: a score needs all")
    return [found[number] for number in range(total)]


def check_files(option: str, files: Iterable[Path], data: Path, indices: Iterable[Path]) -> None:
    """Refuse a split with missing files.

    Args:
        option: the option that names the split, such as "--split test".
        files: the files of the split.
        data: the prepared folder.
        indices: the files of all splits, each named after its split.

    Raises:
        ConfigurationError: a file is missing; the message lists the splits of the folder.
    """
    for path in files:
        if not path.is_file():
            have = sorted({index.name.split(".")[0] for index in indices})
            raise ConfigurationError(f"{option}: {path} is missing; {data} holds {', '.join(have)}")


def files_of_pair(
    prepared: Prepared, split: str, text: Sequence[Path], option: str | None = None
) -> list[Path]:
    """The dictionaries and the binary data of a split with two sides.

    Args:
        prepared: the prepared folder.
        split: test, valid or train.
        text: the files of its text.
        option: the option that errors name; None: --split with its value.

    Raises:
        ConfigurationError: the folder lacks one of all these files.
    """
    data, pair = prepared.folder, "-".join(prepared.languages)
    sides = [f"{split}.{pair}.{language}" for language in prepared.languages]
    files = [*dictionaries(data), *(data / f"{side}.{x}" for side in sides for x in ("bin", "idx"))]
    check_files(option or f"--split {split}", [*files, *text], data, data.glob("*.*-*.*.idx"))
    return files
