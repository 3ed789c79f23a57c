"""Accuracy and macro F1 of labels."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import data_utils

from fairseq_plugins.api import Classifier, Prediction
from fairseq_plugins.data.prepared_folder import dictionaries
from fairseq_plugins.data.readers import RAW
from fairseq_plugins.evaluate.test_sets import Progress, TestSet, check_files
from fairseq_plugins.files import read_lines
from fairseq_plugins.scoring.bootstrap import SAMPLES, SEED, Metric, means
from fairseq_plugins.search.onnx_backend.folder import Dictionary, is_export

ENDS = ("idx", "bin")
AT_ONCE = 500  # texts in memory


class Labels(TestSet):
    """The texts and labels of a split. An output is a list of predictions.

    Args:
        data: a folder of prepare-classification, or one that fairseq's sentence_prediction reads.
        split: test, valid or train.

    Raises:
        ConfigurationError: the folder lacks the split.
    """

    unit = " texts"

    def __init__(self, data: Path, split: str):
        self.data, self.split = data, split
        binary = [data / f"{side}/{split}.{end}" for side in ("input0", "label") for end in ENDS]
        self._targets, self._sources = (data / RAW / f"{split}.{x}" for x in ("target", "source"))
        self.files = [*dictionaries(data), *binary, self._targets]
        check_files(f"--split {split}", self.files, data, (data / "input0").glob("*.idx"))
        self.references = list(read_lines(self._targets))
        self.total = len(self.references)

    def predict(
        self, models: Sequence[Path], given: Any, cpu: bool, progress: Progress
    ) -> list[Prediction]:
        """See `TestSet.predict`; texts are the binarised ones, which may have no raw text."""
        if is_export(models[0]):
            classifier = Classifier(models[0], threads=torch.get_num_threads())
        else:
            classifier = Classifier(models[0], self.data, cpu)
        folder = self.data / "input0"
        words = Dictionary(folder / "dict.txt").words
        tokens = data_utils.load_indexed_dataset(str(folder / self.split))
        texts = ([words[number] for number in text[:-1].tolist()] for text in tokens)
        found: list[Prediction] = []
        for some in iter(lambda: list(itertools.islice(texts, AT_ONCE)), []):
            found += classifier.classify_pieces(some)
            progress(len(some))
        return found

    def columns(self, output: list[Prediction]) -> dict[str, Iterable[Any]]:
        """See `TestSet.columns`; a hypothesis is a label."""
        texts = {"source": read_lines(self._sources), "reference": self.references}
        probabilities = [float(probability) for _, probability in output]
        return {**texts, "hypothesis": [each[0] for each in output], "probability": probabilities}

    def output_of(self, rows: Sequence[dict[str, Any]]) -> list[Prediction]:
        """See `TestSet.output_of`."""
        return [Prediction(row["hypothesis"], row["probability"]) for row in rows]

    def metrics(self, *outputs: list[Prediction]) -> list[Metric]:
        """Accuracy and macro F1 in percent."""
        names = sorted({*self.references, *(label for output in outputs for label, _ in output)})
        numbers = {name: number for number, name in enumerate(names)}
        classes = np.eye(len(names))
        expected = classes[[numbers[label] for label in self.references]]

        def right(output: list[Prediction]) -> np.ndarray:
            found = [label == other for (label, _), other in zip(output, self.references)]
            return np.array(found, dtype=float)[:, None]

        def of_classes(output: list[Prediction]) -> np.ndarray:
            found = classes[[numbers[label] for label, _ in output]]
            return np.concatenate([2 * found * expected, found + expected], axis=1)

        signature = f"classes:{len(names)}|bs:{SAMPLES}|seed:{SEED}"
        accuracy = means(["accuracy"], right, outputs, signature)
        return [*accuracy, Metric("macro F1", of_classes, macro_f1, signature)]


def macro_f1(sums: np.ndarray) -> float:
    """Macro F1 in percent, of 2 TP and of 2 TP + FP + FN of each class.

    The mean of ``2 TP / (2 TP + FP + FN)`` is over the classes that occur in the references or in
    the predictions.
    """
    right, either = np.split(sums, 2)
    return float(100 * (right / np.maximum(either, 1)).sum() / (either > 0).sum())
