"""Test sets: the texts of a split, what a model writes for them, and the scores of that."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.data.prepared_folder import Prepared, dictionaries
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate.model import open_with
from fairseq_plugins.files import read_lines, write_lines
from fairseq_plugins.scoring import bootstrap
from fairseq_plugins.scoring.bootstrap import Metric

OUTPUTS = "outputs.jsonl"  # one JSON object per text
Progress = Callable[[int], Any]  # called with the number of texts of each finished batch


class TestSet:
    """What all test sets have. An output is what `predict` returns: one item per text, in order.

    Attributes:
        total: the number of texts.
        files: the files that the output and its scores depend on.
        references: what the output is scored against.
        notes: remarks about the scores.
        generates: whether models write texts, with the options of fairseq-generate.
        has_rouge: whether its scores are ROUGE, of words of any script on request.
    """

    total: int
    files: Sequence[Path]
    references: Any
    notes: Sequence[str] = ()
    generates = False
    has_rouge = False
    unit = " sentences"

    def predict(self, models: Sequence[Path], given: Any, cpu: bool, progress: Progress) -> Any:
        """The output of checkpoints, or of the folder of an export.

        Args:
            models: several are an ensemble.
            given: options of fairseq-generate, as `model.parse_generation` returns them; None
                for models that do not generate.
            cpu: do not use a GPU.
            progress: see `Progress`.
        """
        raise NotImplementedError

    def columns(self, output: Any) -> dict[str, Iterable[Any]]:
        """The sources, references and hypotheses of all texts, and all that `output_of` needs."""
        raise NotImplementedError

    def rows(self, output: Any) -> list[dict[str, Any]]:
        """The values of each text, by the names of `columns`."""
        columns = self.columns(output)
        return [dict(zip(columns, row)) for row in zip(*columns.values())]

    def output_of(self, rows: Sequence[dict[str, Any]]) -> Any:
        """The output that `rows` describes."""
        raise NotImplementedError

    def write(self, rows: Sequence[dict[str, Any]], folder: Path) -> None:
        """Write the rows, one JSON object per line."""
        write_lines(folder / OUTPUTS, (json.dumps(row, ensure_ascii=False) for row in rows))

    def read(self, folder: Path) -> list[dict[str, Any]]:
        """The rows that `write` wrote."""
        return [json.loads(line) for line in read_lines(folder / OUTPUTS)]

    def metrics(self, *outputs: Any) -> list[Metric]:
        """The scores of these outputs."""
        raise NotImplementedError

    def score(self, output: Any) -> dict[str, dict[str, Any]]:
        """See `bootstrap.scores`."""
        return bootstrap.scores(self.metrics(output), output)

    def compare(self, ours: Any, baseline: Any) -> dict[str, dict[str, Any]]:
        """See `bootstrap.compare`."""
        return bootstrap.compare(self.metrics(ours, baseline), ours, baseline)

    def check_total(self, output: Sequence[Any]) -> None:
        """Raise a ConfigurationError unless there is one item per text."""
        if len(output) != self.total:
            raise ConfigurationError(
                f"the output has {len(output)} of {self.total} texts: a score needs all"
            )

    def examples(self, output: Any, count: int) -> Iterator[str]:
        """Yield up to `count` texts, evenly spaced, each with the values of its row."""
        rows, count = self.rows(output), min(count, self.total)
        for number in (self.total * place // count for place in range(count)):
            yield "".join(f"  {name:12}{value}\n" for name, value in rows[number].items())


class Written(TestSet):
    """A test set of texts that models write.

    Attributes:
        kind: the class of such models, Translator or Summarizer.
        data: the prepared folder.
        cut_off: how many outputs of the last `predict` reached the length limit.
    """

    generates = True
    cut_off = 0
    kind: Any
    data: Path

    def predict(self, models: Sequence[Path], given: Any, cpu: bool, progress: Progress) -> Any:
        """See `TestSet.predict`."""
        model = self.kind(open_with(given, models, self.data, cpu), progress=progress)
        if given.limited:
            model.max_length = lambda length: int(given.max_len_a * length + given.max_len_b)
        return self.written(model)

    def written(self, model: Any) -> Any:
        """The output of a Translator or Summarizer."""
        raise NotImplementedError


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
    """The dictionaries, the binary data and the text of a split with two sides.

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
    binary = [data / f"{side}.{end}" for side in sides for end in ("bin", "idx")]
    files = [*dictionaries(data), *binary, *text]
    check_files(option or f"--split {split}", files, data, data.glob("*.*-*.*.idx"))
    return files
