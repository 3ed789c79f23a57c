"""The impressions of a split, and what `evaluate` does with them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import data_utils

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate.bootstrap import SAMPLES, SEED, interval
from fairseq_plugins.evaluate.evaluate import TEST_SETS
from fairseq_plugins.evaluate.test_sets import Predicted, check_files
from fairseq_plugins.files import read_lines, write_lines
from fairseq_plugins.lab.recommendation.scores import METRICS, of_impression, ranks_of
from fairseq_plugins.prepared_folder import dictionaries

TASK = "news_recommendation"
AT_ONCE = 64  # impressions in a batch


class Recommendations(Predicted):
    """The impressions of a split, with the functions that `evaluate` needs.

    Args:
        data: a folder of prepare-mind.
        split: test or valid.

    Raises:
        ConfigurationError: the folder lacks the split.
    """

    unit = " impressions"

    def __init__(self, data: Path, split: str):
        self.data, self.split = data, split
        folder = data / "impressions"
        prefix = folder / split
        binary = [prefix.with_name(f"{split}.{end}") for end in ("idx", "bin", "id")]
        self.files = [*dictionaries(data), *sorted((data / "input0").glob("*.bin")), *binary]
        check_files(f"--split {split}", self.files, data, folder.glob("*.id"))
        rows: Any = data_utils.load_indexed_dataset(str(prefix))
        self.references = [row[1 + int(row[0]) :].numpy() % 2 == 1 for row in rows]
        self.names = list(read_lines(binary[2]))
        self.total = len(self.references)

    def lines(self, checkpoint: Path, cpu: bool) -> Iterator[list[str]]:
        """The ranks of all news of each impression, in the format of the MIND challenge."""
        device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)], {"data": str(self.data)}
        )
        model.to(device).eval()
        dataset = task.load_dataset(self.split)
        for start in range(0, self.total, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, self.total))
            batch = dataset.collater([dataset[number] for number in numbers])
            inputs = utils.move_to_cuda(batch) if device.type == "cuda" else batch
            with torch.no_grad():
                scores = model(**inputs["net_input"]).float().cpu().numpy()
            ranks = (ranks_of(row[: len(self.references[n])]) for n, row in zip(numbers, scores))
            yield [self._line(number, each) for number, each in zip(numbers, ranks)]

    def _line(self, number: int, ranks: np.ndarray) -> str:
        return f"{self.names[number]} [{','.join(map(str, ranks))}]"

    def read(self, log: Path) -> list[np.ndarray]:
        """Read the ranks that `predict` wrote.

        Raises:
            ConfigurationError: some are missing.
        """
        found = [
            np.array(line.partition(" ")[2].strip("[]").split(","), dtype=int)
            for line in read_lines(log)
        ]
        if list(map(len, found)) != list(map(len, self.references)):
            raise ConfigurationError(f"{log} lacks ranks: all are needed for a score")
        return found

    def write(self, found: list[np.ndarray], folder: Path) -> None:
        """Write prediction.txt, in the format of the MIND challenge."""
        write_lines(folder / "prediction.txt", map(self._line, range(self.total), found))

    def score(self, found: list[np.ndarray]) -> dict[str, dict[str, Any]]:
        """The means of `METRICS` over impressions, in percent, with 95 % bootstrap intervals."""
        values = 100 * np.array(
            [of_impression(clicked, 1 / ranks) for clicked, ranks in zip(self.references, found)]
        )
        random = np.random.RandomState(SEED)
        means = [
            values[random.randint(self.total, size=self.total)].mean(axis=0) for _ in range(SAMPLES)
        ]
        low, high = interval(np.array(means))
        return {
            name: {
                "score": float(values[:, n].mean()),
                "interval": [float(low[n]), float(high[n])],
                "signature": f"impressions:{self.total}|bs:{SAMPLES}|seed:{SEED}",
            }
            for n, name in enumerate(METRICS)
        }


TEST_SETS[TASK] = Recommendations  # `evaluate` opens it for models of this task
