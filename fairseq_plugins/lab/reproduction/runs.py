"""The sweep of a table of a paper, with its conclusions."""

from typing import Any

import torch

from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.files import count_lines
from fairseq_plugins.lab.benchmarks import machine
from fairseq_plugins.lab.recommendation import test_set
from fairseq_plugins.lab.reproduction.agreement import agreement
from fairseq_plugins.train.sweep import Sweep
from fairseq_plugins.train.sweep_table import Table

SPLITS = ("train", "valid", "test")
# rows of the papers are these options
FIXED = (
    "--encoder-blocks --time-window --feature-window --time-pooling --feature-pooling "
    "--encoder-token-mixer --encoder-ffn --decoder-ffn"
).split()


class Reproduction(Sweep):
    """A sweep whose results have the name of the table; rows are compared as the paper does.

    Args:
        name: the name of the table.
        reduced: whether it is reduced.
        table, given: of `Sweep`.
    """

    def __init__(self, name: str, reduced: bool, request: Any, table: Table, *given: Any):
        self.of_table = {"table": name, "reduced": reduced}
        super().__init__(request, table._replace(fixed=[*table.fixed, *FIXED]), *given)

    def machine(self) -> dict[str, Any]:
        device = torch.device("cpu" if self.cpu else "cuda")
        return machine.describe(device, self.threads)

    def describe_data(self) -> dict[str, Any]:
        """Also the number of classes, or of the impressions of news."""
        data, folder = super().describe_data(), self.folder
        labels = folder / "label" / "dict.txt"
        if labels.is_file():
            names = labels.read_text(encoding="utf-8").splitlines()
            data["classes"] = sum(not name.startswith("madeupword") for name in names)
        if Prepared(folder).task == test_set.TASK:
            files = {split: folder / "impressions" / f"{split}.id" for split in SPLITS}
            data["pairs"] = {split: count_lines(path) for split, path in files.items()}
        return data

    def compare(self) -> None:
        """The rows are compared over seeds, by `conclude`."""

    def conclude(self, results: dict[str, Any]) -> list[str]:
        return agreement(results)

    def results(self) -> dict[str, Any]:
        return {**super().results(), **self.of_table}
