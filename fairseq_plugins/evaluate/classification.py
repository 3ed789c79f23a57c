"""Accuracy and macro F1 of labels."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.data import data_utils

from fairseq_plugins.classifier import Classifier, Prediction
from fairseq_plugins.data.readers import RAW
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate.bootstrap import SAMPLES, SEED, interval, paired
from fairseq_plugins.evaluate.test_sets import Predicted, check_files
from fairseq_plugins.files import read_lines, write_lines
from fairseq_plugins.prepared_folder import dictionaries
from fairseq_plugins.search.onnx_backend.folder import Dictionary, is_export

ENDS = ("idx", "bin")
METRICS = ("accuracy", "macro F1")
AT_ONCE = 500  # texts in memory


class Labels(Predicted):
    """The texts and labels of a split, with the functions that `evaluate` needs.

    Args:
        data: a folder that prepare-classification wrote.
        split: test, valid or train.

    Raises:
        ConfigurationError: the folder lacks the split.
    """

    def __init__(self, data: Path, split: str):
        self.data, self.split = data, split
        binary = [data / f"{side}/{split}.{end}" for side in ("input0", "label") for end in ENDS]
        self._targets, self._sources = (data / RAW / f"{split}.{x}" for x in ("target", "source"))
        self.files = [*dictionaries(data), *binary, self._targets]
        check_files(f"--split {split}", self.files, data, (data / "input0").glob("*.idx"))
        self.references = list(read_lines(self._targets))
        self.total = len(self.references)

    def lines(self, checkpoint: Path, cpu: bool) -> Iterator[list[str]]:
        """``label <TAB> probability`` for each text, by a checkpoint or the folder of an export."""
        if is_export(checkpoint):
            classifier = Classifier(checkpoint, threads=torch.get_num_threads())
        else:
            classifier = Classifier(checkpoint, self.data, cpu)
        folder = self.data / "input0"
        words = Dictionary(folder / "dict.txt").words
        tokens = data_utils.load_indexed_dataset(str(folder / self.split))
        texts = ([words[number] for number in text[:-1].tolist()] for text in tokens)
        for some in iter(lambda: list(itertools.islice(texts, AT_ONCE)), []):
            found = classifier.classify_pieces(some)
            yield [f"{label}\t{probability:.6f}" for label, probability in found]

    def read(self, log: Path) -> list[Prediction]:
        """Read the file that `predict` wrote.

        Raises:
            ConfigurationError: predictions are missing.
        """
        lines = [line.split("\t") for line in read_lines(log)]
        if len(lines) != self.total:
            raise ConfigurationError(
                f"{log} has {len(lines)} of {self.total} labels: a score needs all"
            )
        return [Prediction(label, float(probability)) for label, probability in lines]

    def write(self, found: list[Prediction], folder: Path) -> None:
        """Write the labels to hypotheses.txt, one per line."""
        write_lines(folder / "hypotheses.txt", (prediction.label for prediction in found))

    def columns(self, found: list[Prediction]) -> dict[str, Sequence[str]]:
        labels = [f"{label} ({probability:.3f})" for label, probability in found]
        texts = list(read_lines(self._sources))
        return {"text": texts, "reference": self.references, "label": labels}

    def score(self, found: list[Prediction]) -> dict[str, dict[str, Any]]:
        """Accuracy and macro F1 in percent, with 95 % bootstrap intervals and signatures."""
        cells = count_cells(self.references, [prediction.label for prediction in found])
        samples = resample(cells, SAMPLES)
        scores = {}
        for name, measure in zip(METRICS, (accuracy, macro_f1)):
            scores[name] = {
                "score": float(measure(cells)),
                "interval": interval(measure(samples)).tolist(),
                "signature": f"classes:{cells.classes}|bs:{SAMPLES}|seed:{SEED}",
            }
        return scores

    def compare(
        self, ours: list[Prediction], baseline: list[Prediction], samples: int
    ) -> dict[str, Any]:
        """Compare two systems by each score (see `bootstrap.paired`)."""
        sides = [[prediction.label for prediction in side] for side in (ours, baseline)]
        cells = count_cells(self.references, *sides)
        drawn = resample(cells, samples)
        signature = f"classes:{cells.classes}|bs:{samples}|seed:{SEED}"
        return {
            name: paired(
                (float(measure(cells, 1)), float(measure(cells, 2))),
                (measure(drawn, 1), measure(drawn, 2)),
                signature,
            )
            for name, measure in zip(METRICS, (accuracy, macro_f1))
        }


class Cells(NamedTuple):
    """The label combinations that occur, and their counts: K cells, one or more samples.

    Attributes:
        labels: int64, K x sides: the indices of the reference's label and of each system's.
        counts: int64, ... x K: how many texts have this combination.
        classes: the number of labels.
    """

    labels: np.ndarray
    counts: np.ndarray
    classes: int


def count_cells(*sides: Sequence[str]) -> Cells:
    """Count the texts with each combination of labels.

    Args:
        sides: the references, then the labels of one or two systems.
    """
    names = sorted({label for side in sides for label in side})
    index = {name: number for number, name in enumerate(names)}
    numbers = np.array([[index[label] for label in side] for side in sides], dtype=np.int64)
    labels, counts = np.unique(numbers.T, axis=0, return_counts=True)
    return Cells(labels, counts, len(names))


def resample(cells: Cells, samples: int) -> Cells:
    """Draw bootstrap samples, each of as many texts, with replacement: counts are samples x K."""
    total = int(cells.counts.sum())
    drawn = np.random.RandomState(SEED).multinomial(total, cells.counts / total, size=samples)
    return cells._replace(counts=drawn)


def accuracy(cells: Cells, system: int = 1) -> np.ndarray:
    """Accuracy of a system in percent, for each sample: ... x K -> ..."""
    right = cells.labels[:, 0] == cells.labels[:, system]
    return 100 * cells.counts[..., right].sum(axis=-1) / cells.counts.sum(axis=-1)


def macro_f1(cells: Cells, system: int = 1) -> np.ndarray:
    """Macro F1 of a system in percent, for each sample: ... x K -> ...

    F1 of a class is ``2 TP / (2 TP + FP + FN)``. The mean is over the classes that occur in the
    references or in the predictions.
    """
    right = np.zeros([*cells.counts.shape[:-1], cells.classes], dtype=np.int64)
    either = np.zeros_like(right)  # 2 TP + FP + FN
    for cell, (reference, label) in enumerate(cells.labels[:, [0, system]]):
        count = cells.counts[..., cell]
        either[..., reference] += count
        either[..., label] += count
        if reference == label:
            right[..., label] += count
    return 100 * (2 * right / np.maximum(either, 1)).sum(axis=-1) / (either > 0).sum(axis=-1)
