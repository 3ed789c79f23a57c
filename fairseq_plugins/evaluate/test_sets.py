"""Test sets: the texts of a split, what a model writes for them, and the scores of that."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.data.prepared_folder import Prepared, dictionaries
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate.model import open_with
from fairseq_plugins.scoring import bootstrap
from fairseq_plugins.scoring.bootstrap import Metric

Progress = Callable[[int], Any]  # called with the number of texts of each finished batch
Output = dict[str, Any]  # columns by name, each with one JSON value per text, in order


class TestSet:
    """What all test sets have.

    Attributes:
        total: the number of texts.
        files: the files that the output and its scores depend on.
        references: what the output is scored against.
        notes: remarks about the scores.
        cut_off: how many texts of the last `predict` reached the length limit.
        generates: whether models write texts, with the options of fairseq-generate.
        has_rouge: whether its scores are ROUGE, of words of any script on request.
    """

    total: int
    files: Sequence[Path]
    references: Any
    notes: Sequence[str] = ()
    cut_off = 0
    generates = False
    has_rouge = False
    unit = " sentences"

    def predict(self, models: Sequence[Path], given: Any, cpu: bool, progress: Progress) -> Output:
        """The output of checkpoints, or of the folder of an export.

        Args:
            models: several are an ensemble.
            given: options of fairseq-generate, as `model.parse_generation` returns them; None
                for models that do not generate.
            cpu: do not use a GPU.
            progress: see `Progress`.
        """
        raise NotImplementedError

    def texts(self) -> Output:
        """What stands before the columns of an output: sources and references."""
        raise NotImplementedError

    def write_more(self, output: Output, folder: Path) -> None:
        """Write an output also in other formats."""

    def metrics(self, *outputs: Output) -> list[Metric]:
        """The scores of these outputs."""
        raise NotImplementedError

    def score(self, output: Output) -> dict[str, dict[str, Any]]:
        """See `bootstrap.scores`."""
        return bootstrap.scores(self.metrics(output), output)

    def compare(self, ours: Output, baseline: Output) -> dict[str, dict[str, Any]]:
        """See `bootstrap.compare`."""
        return bootstrap.compare(self.metrics(ours, baseline), ours, baseline)


class Written(TestSet):
    """A test set of texts that models write.

    Attributes:
        kind: the class of such models, Translator or Summarizer.
        data: the prepared folder.
    """

    generates = True
    kind: Any
    data: Path

    def predict(self, models: Sequence[Path], given: Any, cpu: bool, progress: Progress) -> Output:
        """See `TestSet.predict`."""
        model = self.kind(open_with(given, models, self.data, cpu), progress=progress)
        if given.limited:
            model.max_length = lambda length: int(given.max_len_a * length + given.max_len_b)
        return self.written(model)

    def written(self, model: Any) -> Output:
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
