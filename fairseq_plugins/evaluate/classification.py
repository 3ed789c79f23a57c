"""Accuracy and macro F1 of labels."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import data_utils

from fairseq_plugins.api import Classifier
from fairseq_plugins.data.prepared_folder import dictionaries
from fairseq_plugins.data.readers import RAW
from fairseq_plugins.evaluate.test_sets import Output, Progress, TestSet, check_files
from fairseq_plugins.files import read_lines
from fairseq_plugins.pretrained import is_export
from fairseq_plugins.scoring.bootstrap import SAMPLES, SEED, Metric, means
from fairseq_plugins.search.onnx_backend.folder import Dictionary

ENDS = ("idx", "bin")
AT_ONCE = 500  # texts in memory


class Labels(TestSet):
    """The texts and labels of a split; a hypothesis is a label, with its probability.

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

    def predict(self, models: Sequence[Path], given: Any, cpu: bool, progress: Progress) -> Output:
        """See `TestSet.predict`; texts are the binarised ones, which may have no raw text."""
        if is_export(models[0]):
            classifier = Classifier(models[0], threads=torch.get_num_threads())
        else:
            classifier = Classifier(models[0], self.data, cpu)
        folder = self.data / "input0"
        words = Dictionary(folder / "dict.txt").words
        tokens = data_utils.load_indexed_dataset(str(folder / self.split))
        texts = ([words[number] for number in text[:-1].tolist()] for text in tokens)
        output: Output = {"hypothesis": [], "probability": []}
        for some in iter(lambda: list(itertools.islice(texts, AT_ONCE)), []):
            for label, probability in classifier.classify_pieces(some):
                output["hypothesis"].append(label)
                output["probability"].append(probability)
            progress(len(some))
        return output

    def texts(self) -> Output:
        """See `TestSet.texts`."""
        return {"source": read_lines(self._sources), "reference": self.references}

    def metrics(self, *outputs: Output) -> list[Metric]:
        """Accuracy and macro F1 in percent."""
        names = sorted(set(self.references).union(*(each["hypothesis"] for each in outputs)))
        numbers = {name: number for number, name in enumerate(names)}
        classes = np.eye(len(names))
        expected = classes[[numbers[label] for label in self.references]]

        def right(output: Output) -> np.ndarray:
            pairs = zip(output["hypothesis"], self.references)
            return np.array([label == other for label, other in pairs], dtype=float)[:, None]

        def of_classes(output: Output) -> np.ndarray:
            found = classes[[numbers[label] for label in output["hypothesis"]]]
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
