"""Lengths of prepared texts: which files count, and what is told of texts that are too long."""

import shutil
from argparse import Namespace

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
    _, alone = lengths.measure(toy_data.bin, Namespace(), "train", (5, 99))

    def count(source, target, *limits):
        languages = Namespace(source_lang=source, target_lang=target)
        return lengths.measure(data, languages, "train", limits)[1]

    assert count("src", "tgt", 5, 99) == alone > 3
    assert count("xx", "tgt", 8, 99) == 1
    assert count("tgt", "xx", 6, 99) == 2  # the reverse reads tgt
    assert count("tgt", "xx", 99, 7) == 2
    for language in ("xx", "tgt"):  # a folder with both orders: fairseq reads the one that is asked
        write_binary(data / f"train.tgt-xx.{language}", [9])
    assert count("tgt", "xx", 6, 99) == 1
    assert count("xx", "tgt", 8, 99) == 1
    words = ["--source-lang", "src", "--target-lang", "tgt", "--max-source-positions", 5]
    told = plan(data, "--save-dir", tmp_path / "run", "--", *words).summary
    assert any(line.startswith(f"skipped: {alone} pairs of train over") for line in told)


def test_sides_of_different_numbers_are_refused(toy_data, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(toy_data.bin, data)
    write_binary(data / "train.src-tgt.tgt", [3, 9, 7])
    with pytest.raises(ConfigurationError, match="tgt.src has 203 texts and .*.tgt has 3 te"):
        plan(data, "--save-dir", tmp_path / "run")
