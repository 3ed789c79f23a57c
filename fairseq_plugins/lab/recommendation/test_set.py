"""The impressions of a split, and what `evaluate` does with them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import data_utils

from fairseq_plugins.data.prepared_folder import dictionaries
from fairseq_plugins.evaluate.evaluate import TEST_SETS
from fairseq_plugins.evaluate.test_sets import Output, Progress, TestSet, check_files
from fairseq_plugins.files import read_lines, write_lines
from fairseq_plugins.lab.recommendation.scores import METRICS, of_impression, ranks_of
from fairseq_plugins.scoring.bootstrap import SAMPLES, SEED, Metric, means

TASK = "news_recommendation"
AT_ONCE = 64  # impressions in a batch


class Recommendations(TestSet):
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
        self.references = [(row[1 + int(row[0]) :] % 2 == 1).tolist() for row in rows]
        self.names = list(read_lines(binary[2]))
        self.total = len(self.references)

    def predict(self, models: Sequence[Path], given: Any, cpu: bool, progress: Progress) -> Output:
        """See `TestSet.predict`: the ranks of all news of each impression."""
        device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(models[0])], {"data": str(self.data)}
        )
        model.to(device).eval()
        dataset, ranks = task.load_dataset(self.split), []
        for start in range(0, self.total, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, self.total))
            batch = dataset.collater([dataset[number] for number in numbers])
            inputs = utils.move_to_cuda(batch) if device.type == "cuda" else batch
            with torch.no_grad():
                scores = model(**inputs["net_input"]).float().cpu().numpy()
            ranked = zip(numbers, scores)
            ranks += [ranks_of(row[: len(self.references[n])]).tolist() for n, row in ranked]
            progress(len(numbers))
        return {"ranks": ranks}

    def texts(self) -> Output:
        """See `TestSet.texts`."""
        return {"impression": self.names}

    def write_more(self, output: Output, folder: Path) -> None:
        """Write prediction.txt, in the format of the MIND challenge."""
        named = zip(self.names, output["ranks"])
        lines = (f"{name} [{','.join(map(str, ranks))}]" for name, ranks in named)
        write_lines(folder / "prediction.txt", lines)

    def metrics(self, *outputs: Output) -> list[Metric]:
        """The means of `METRICS` over impressions, in percent."""

        def values(output: Output) -> np.ndarray:
            pairs = zip(self.references, map(np.array, output["ranks"]))
            return np.array([of_impression(clicked, 1 / ranks) for clicked, ranks in pairs])

        signature = f"impressions:{self.total}|bs:{SAMPLES}|seed:{SEED}"
        return means(METRICS, values, outputs, signature)


TEST_SETS[TASK] = Recommendations  # `evaluate` opens it for models of this task
