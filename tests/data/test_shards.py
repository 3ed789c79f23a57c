"""--shards: the training set in parts, which fairseq reads one in each epoch."""

import os
import shutil
from argparse import Namespace

import pytest
from fairseq.data import data_utils
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_plugins.cli import join_dictionaries, prepare_bidirectional
from fairseq_plugins.data import lengths
from fairseq_plugins.data.length_ratios import length_ratios
from fairseq_plugins.data.prepared_folder import Prepared, check_intact, shards
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.tasks.translation_sampled import (
    SampledTranslationConfig,
    SampledTranslationTask,
)
from fairseq_plugins.train.settings import fingerprint_of
from tests import tiny_runs
from tests.train.conftest import plan

PAIR = "--source-lang de --target-lang en --subword bpe".split()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same text without shards, and in three."""
    folder = tmp_path_factory.mktemp("shards")
    with tiny_runs.within(folder):
        tiny_runs.write_pairs(
            folder / "raw", ("de", "en"), tiny_runs.sentence, {**tiny_runs.SIZES, "train": 40}
        )
        words = [*tiny_runs.PREPARE[1:], 60, *PAIR, "--joined-dictionary"]
        tiny_runs.call("prepare-translation", "whole", *words)
        tiny_runs.call("prepare-translation", "parts", *words, "--shards", 3)
    return folder / "whole", folder / "parts"


def sentences(dataset):
    return [tuple(sentence.tolist()) for sentence in dataset]


def test_fairseq_reads_a_shard_in_each_epoch(folders):
    whole, parts = folders
    assert [path.name for path in shards(parts)] == ["0", "1", "2"] and shards(whole) == [whole]
    config = TranslationConfig(data=os.pathsep.join(map(str, shards(parts))))
    config.source_lang, config.target_lang = "de", "en"
    config.dataset_impl, config.train_subset = "mmap", "train"  # of groups that are not here
    task = TranslationTask.setup_task(config)
    for side, dictionary in (("de", task.src_dict), ("en", task.tgt_dict)):
        prefix = str(whole / f"train.de-en.{side}")
        expected = sentences(data_utils.load_indexed_dataset(prefix, dictionary))
        assert len(expected) > 30
        for epoch in (1, 2, 3, 4):
            task.load_dataset("train", epoch)
            pairs = task.datasets["train"]
            found = sentences(pairs.src if side == "de" else pairs.tgt)
            assert found == expected[(epoch - 1) % 3 :: 3]
    for split in ("valid", "test"):
        task.load_dataset(split, 2)
        assert len(task.datasets[split]) == tiny_runs.SIZES[split]


def test_the_first_shard_is_a_prepared_folder(folders):
    whole, parts = folders
    first = shards(parts)[0]
    assert Prepared(first).settings == {**Prepared(whole).settings, "shards": 3}
    assert Prepared(first).words == Prepared(parts).words == Prepared(whole).words
    assert (first / "text/raw/valid.de").read_bytes() == (whole / "text/raw/valid.de").read_bytes()
    assert length_ratios(parts) == length_ratios(whole)
    check_intact(parts, first / "train.de-en.de.bin")
    languages = Namespace(source_lang="de", target_lang="en")
    measured = [lengths.measure(each, languages, "train", None) for each in folders]
    assert measured[0] == measured[1] and measured[0][0] > 1


def test_subwords_are_sampled_in_each_shard(folders):
    config = SampledTranslationConfig(data=os.pathsep.join(map(str, shards(folders[1]))))
    config.source_lang, config.target_lang, config.bpe_dropout = "de", "en", 0.1
    config.dataset_impl, config.train_subset, config.max_tokens = "mmap", "train", 100
    task = SampledTranslationTask.setup_task(config)
    for epoch in (1, 2):
        task.load_dataset("train", epoch)
        assert len(task.datasets["train"]) > 10


def test_a_training_notices_a_change_of_any_shard(folders, tmp_path):
    before = fingerprint_of(folders[1], "train")
    shutil.copytree(folders[1], tmp_path / "parts", symlinks=True)
    assert fingerprint_of(tmp_path / "parts", "train") == before
    with open(tmp_path / "parts/2/train.de-en.de.idx", "ab") as index:
        index.write(b"more")
    assert fingerprint_of(tmp_path / "parts", "train") != before


@pytest.mark.parametrize("command", [prepare_bidirectional, join_dictionaries])
def test_commands_that_need_the_whole_training_set_reject_shards(folders, command, tmp_path):
    with pytest.raises(ConfigurationError, match="a training set in shards"):
        command.main([str(folders[1]), str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_a_training_gets_all_shards(folders, tmp_path):
    todo = plan(folders[1], "--save-dir", tmp_path / "run", "--cpu", recipe="transformer")
    assert os.pathsep.join(map(str, shards(folders[1]))) in todo.command
