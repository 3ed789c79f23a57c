"""Lengths of prepared texts: which files count, and what is told of texts that are too long."""

import shutil

import pytest
import torch
from fairseq.data import indexed_dataset

from fairseq_plugins.data import lengths
from fairseq_plugins.errors import ConfigurationError
from tests.train.conftest import plan


def write_binary(prefix, sizes):
    builder = indexed_dataset.make_builder(f"{prefix}.bin", impl="mmap", vocab_size=100)
    for size in sizes:
        builder.add_item(torch.full((size,), 5, dtype=torch.int32))
    builder.finalize(f"{prefix}.idx")


def test_another_language_pair_of_the_folder_does_not_count(toy_data, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(toy_data.bin, data)
    write_binary(data / "train.xx-tgt.xx", [9, 8, 2])
    write_binary(data / "train.xx-tgt.tgt", [3, 9, 7])
    alone = lengths.measure(toy_data.bin, (None, None), "train", lengths.Limits(5, 99), None)

    def count(*given):
        return lengths.measure(data, *given).too_long

    assert count(("src", "tgt"), "train", lengths.Limits(5, 99), None) == alone.too_long > 3
    assert count(("xx", "tgt"), "train", lengths.Limits(8, 99), None) == 1
    assert count(("tgt", "xx"), "train", lengths.Limits(6, 99), None) == 2  # the reverse reads tgt
    assert count(("tgt", "xx"), "train", lengths.Limits(99, 7), None) == 2
    for language in ("xx", "tgt"):  # a folder with both orders: fairseq reads the one that is asked
        write_binary(data / f"train.tgt-xx.{language}", [9])
    assert count(("tgt", "xx"), "train", lengths.Limits(6, 99), None) == 1
    assert count(("xx", "tgt"), "train", lengths.Limits(8, 99), None) == 1
    words = ["--source-lang", "src", "--target-lang", "tgt", "--max-source-positions", 5]
    told = plan(data, "--save-dir", tmp_path / "run", "--", *words).summary
    assert any(line.startswith(f"skipped: {alone.too_long} pairs of train over") for line in told)


def test_sides_of_different_numbers_are_refused(toy_data, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(toy_data.bin, data)
    write_binary(data / "train.src-tgt.tgt", [3, 9, 7])
    with pytest.raises(ConfigurationError, match="tgt.src has 203 texts and .*.tgt has 3 te"):
        plan(data, "--save-dir", tmp_path / "run")
