"""The task: classes from the data, long texts told or cut and counted, batches by length."""

import shutil
from argparse import Namespace

import numpy as np
import pytest
from fairseq import tasks

from fairseq_plugins.errors import ConfigurationError
from tests.labelled import SIZES, prepare


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("labelled"))[0]


def setup(data, **options):
    options = {"regression_target": False, "classification_head_name": "head", "seed": 1, **options}
    return tasks.setup_task(Namespace(task="classification", data=str(data), **options))


def test_classes_are_those_of_the_data(data):
    assert setup(data).cfg.num_classes == 2
    assert setup(data, num_classes=2).label_dictionary.symbols[4:] == ["bad", "good"]
    with pytest.raises(
        ConfigurationError, match="--num-classes 3, but .* has 2 .bad, good.: remove"
    ):
        setup(data, num_classes=3)


def test_symbols_that_fairseq_adds_to_a_dictionary_are_no_classes(data, tmp_path):
    padded = tmp_path / "padded"
    shutil.copytree(str(data), str(padded))
    with (padded / "label" / "dict.txt").open("a") as file:
        file.write("madeupword0000 0\nmadeupword0001 0\n")
    assert setup(padded).cfg.num_classes == setup(padded, num_classes=2).cfg.num_classes == 2


def test_further_parts_of_the_training_data_are_read_and_checked(data, tmp_path):
    """fairseq's trainer reads train, train1, train2, ... as one split."""
    parts = tmp_path / "parts"
    shutil.copytree(str(data), str(parts))
    for kind in ("input0", "label"):
        for ending in ("bin", "idx"):
            shutil.copy(parts / kind / f"valid.{ending}", parts / kind / f"train1.{ending}")
    dataset = setup(parts).load_dataset("train", combine=True)
    assert len(dataset) == SIZES["train"] + SIZES["valid"]
    assert sorted(dataset.ordered_indices()) == list(range(len(dataset)))
    assert len(setup(parts).load_dataset("train")) == SIZES["train"]
    (parts / "input0" / "train1.idx").unlink()
    with pytest.raises(ConfigurationError, match="texts, but .* labels: prepare the data again"):
        setup(parts).load_dataset("train", combine=True)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_text_longer_than_a_batch_is_an_error(data, split):
    task = setup(data)
    dataset = task.load_dataset(split)
    longest = max(dataset.sizes[0])
    options = {"max_positions": longest - 1, "ignore_invalid_inputs": True}  # as the trainer does
    with pytest.raises(
        ConfigurationError, match=f"of {longest} tokens is longer than .*--shorten-method"
    ):
        task.get_batch_iterator(dataset=dataset, max_tokens=longest - 1, **options)
    batches = task.get_batch_iterator(dataset=dataset, max_tokens=longest).frozen_batches
    assert sum(map(len, batches)) == len(dataset)


def test_labels_and_texts_stay_together_in_batches_by_length(data):
    task = setup(data)
    dataset = task.load_dataset("train")
    order = dataset.ordered_indices()
    lengths = [len(dataset[i]["net_input.src_tokens"]) for i in order]
    assert lengths == sorted(lengths) and sorted(order) == list(range(SIZES["train"]))
    assert list(order) != sorted(order, key=lambda i: (len(dataset[i]["net_input.src_tokens"]), i))
    names = task.label_dictionary.symbols[task.label_dictionary.nspecial :]
    raw = (data / "text" / "raw" / "train.target").read_text().split()
    assert [names[int(dataset[i]["target"])] for i in range(len(dataset))] == raw
    batch = dataset.collater([dataset[i] for i in order[:5]])
    assert batch["target"].view(-1).tolist() == [names.index(raw[i]) for i in order[:5]]


def test_long_texts_are_told_or_cut_and_counted(data, caplog):
    with pytest.raises(ConfigurationError, match="longer than --max-positions 6, the longest") as e:
        setup(data, max_positions=6).load_dataset("train")
    assert "--shorten-method truncate" in str(e.value) and "\n" not in str(e.value)
    caplog.set_level("INFO")
    whole = setup(data).load_dataset("train")
    cut = setup(data, max_positions=6, shorten_method="truncate").load_dataset("train")
    lengths = np.array([len(whole[i]["net_input.src_tokens"]) for i in range(len(whole))])
    assert (lengths > 6).any()
    for i, length in enumerate(lengths):
        tokens = whole[i]["net_input.src_tokens"][:6].tolist()
        assert cut[i]["net_input.src_tokens"].tolist() == tokens and len(tokens) == min(6, length)
    told = f"train: {(lengths > 6).sum()} of 60 texts are longer than 6 positions and cut there"
    assert f"{told}: {(lengths[lengths > 6] - 6).sum()} of {lengths.sum()} tokens" in caplog.text
    only = setup(data, max_positions=6, shorten_method="truncate", shorten_data_split_list="valid")
    with pytest.raises(ConfigurationError, match="of 'train' are longer"):
        only.load_dataset("train")
