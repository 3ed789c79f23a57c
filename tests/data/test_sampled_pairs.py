"""Epochs of fresh subwords: same words, right sizes, the same again from the same seed."""

import re

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, LanguagePairDataset, data_utils

from fairseq_plugins.data.sampled_pairs import SampledPairs
from fairseq_plugins.data.subword_sampling import BPEDropout
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.tasks.translation_sampled import (
    SampledTranslationConfig,
    SampledTranslationTask,
)
from fairseq_plugins.text.subwords import BytePairEncoding
from tests.conftest import binarise, write_toy_text
from tests.conftest import load as load_checkpoint

OPTIONS = ["--bpe-dropout", 0.2]


def join_pairs(lines):
    """Longer words, which can be cut."""
    return [" ".join("".join(pair) for pair in zip(w[::2], w[1::2])) for w in map(str.split, lines)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A prepared folder of subwords."""
    kind = BytePairEncoding
    folder = tmp_path_factory.mktemp("bpe")
    write_toy_text(folder / "raw", {"train": 150, "valid": 20})
    for path in sorted((folder / "raw").iterdir()):
        lines = join_pairs(path.read_text(encoding="utf-8").splitlines())
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    kind.learn(
        [folder / "raw" / "train.src", folder / "raw" / "train.tgt"], folder / kind.file_name, 90
    )
    model = kind(folder / kind.file_name)
    for path in sorted((folder / "raw").iterdir()):
        lines = [model.cut(line) for line in path.read_text(encoding="utf-8").splitlines()]
        (folder / path.name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return binarise(folder, folder, "--joined-dictionary", languages=("src", "tgt"))


def load(folder, seed=1, **limits):
    dictionary = Dictionary.load(str(folder / "dict.src.txt"))
    sides = [
        data_utils.load_indexed_dataset(str(folder / f"train.src-tgt.{side}"), dictionary)
        for side in ("src", "tgt")
    ]
    pairs = LanguagePairDataset(
        sides[0], sides[0].sizes, dictionary, sides[1], sides[1].sizes, dictionary
    )
    model = folder / BPEDropout.file_name
    samplers = [BPEDropout(model, dictionary, OPTIONS[1]) for _ in range(2)]
    return sides, SampledPairs(pairs, *samplers, seed, **limits), dictionary


def texts(pairs, folder, dictionary):
    join = BytePairEncoding(folder / BytePairEncoding.file_name).join
    return [
        [join(dictionary.string(pairs[i][side])) for i in range(len(pairs))]
        for side in ("source", "target")
    ]


def tokens(pairs):
    return [pairs[i][side].tolist() for i in range(len(pairs)) for side in ("source", "target")]


def test_words_stay_and_pieces_change(folder):
    sides, pairs, dictionary = load(folder)
    pairs.set_epoch(1)
    first = tokens(pairs)
    for language, found in zip(("src", "tgt"), texts(pairs, folder, dictionary)):
        assert found == (folder / "raw" / f"train.{language}").read_text("utf-8").splitlines()
    usual = [side[i].tolist() for i in range(len(pairs)) for side in sides]
    assert sum(a != b for a, b in zip(first, usual)) > len(usual) / 3
    assert sum(map(len, first)) > sum(map(len, usual))
    assert all(dictionary.unk() not in sentence for sentence in first)
    pairs.set_epoch(2)
    second = tokens(pairs)
    assert sum(a != b for a, b in zip(first, second)) > len(usual) / 3


def test_sizes_are_those_of_the_epoch(folder):
    _, pairs, _ = load(folder)
    for epoch in (1, 2):
        pairs.set_epoch(epoch)
        lengths = np.array(list(map(len, tokens(pairs)))).reshape(-1, 2)
        assert (pairs.sizes == lengths).all()
        assert [pairs.num_tokens(i) for i in range(9)] == lengths[:9].max(axis=1).tolist()
        batches = pairs.batch_by_size(pairs.ordered_indices(), max_tokens=60)
        assert sorted(i for batch in batches for i in batch) == list(range(len(pairs)))
        for batch in batches:
            assert len(batch) * lengths[batch].max() <= 60
        kept, _ = pairs.filter_indices_by_size(pairs.ordered_indices(), (12, 9))
        assert set(kept) == set(np.nonzero((lengths <= (12, 9)).all(axis=1))[0])
    assert not pairs.can_reuse_epoch_itr_across_epochs


def test_a_sample_over_the_limit_gives_way_to_the_usual_pieces(folder):
    sides, pairs, _ = load(folder)
    pairs.set_epoch(1)
    free = [pairs[i] for i in range(len(pairs))]
    limits = [max(map(len, side)) for side in zip(*((p["source"], p["target"]) for p in free))]
    limits = (limits[0] - 1, limits[1] - 2)
    _, pairs, _ = load(folder, limits=limits)
    pairs.set_epoch(1)
    given_up = 0
    for i, before in enumerate(free):
        for name, side, limit in zip(("source", "target"), sides, limits):
            over = len(before[name]) > limit
            given_up += over
            assert torch.equal(pairs[i][name], side[i].long() if over else before[name])
    assert given_up >= 2


def test_an_epoch_follows_from_its_seed_and_number(folder):
    _, pairs, _ = load(folder)
    pairs.set_epoch(1)
    first = tokens(pairs)
    pairs.set_epoch(2)
    second = tokens(pairs)
    pairs.set_epoch(1)
    assert tokens(pairs) == first
    again = load(folder)[1]
    again.set_epoch(2)
    assert tokens(again) == second
    other = load(folder, seed=2)[1]
    other.set_epoch(2)
    assert tokens(other) != second


def test_both_sides_have_their_own_draws(folder):
    sides, pairs, dictionary = load(folder)
    alike = LanguagePairDataset(
        sides[0], sides[0].sizes, dictionary, sides[0], sides[0].sizes, dictionary
    )
    same = SampledPairs(alike, *(side.sampler for side in pairs.sides), seed=1)
    same.set_epoch(1)
    different = sum(same[i]["source"].tolist() != same[i]["target"].tolist() for i in range(150))
    assert different > 50


def test_the_task_draws_with_its_options(folder):
    limits = {"max_tokens": 12, "max_source_positions": 9, "max_target_positions": 99}
    cfg = SampledTranslationConfig(
        data=str(folder), source_lang="src", target_lang="tgt", bpe_dropout=OPTIONS[1], seed=7,
        train_subset="train", dataset_impl=None, **limits,
    )  # fmt: skip
    _, expected, dictionary = load(folder, seed=7, limits=(9, 12))
    task = SampledTranslationTask(cfg, dictionary, dictionary)
    task.load_dataset("train")
    for pairs in (task.dataset("train"), expected):
        pairs.set_epoch(1)
    assert tokens(task.dataset("train")) == tokens(expected)


def test_other_subwords_are_refused(folder, tmp_path):
    dictionary = Dictionary.load(str(folder / "dict.src.txt"))
    data = data_utils.load_indexed_dataset(str(folder / "train.src-tgt.src"), dictionary)
    text = tmp_path / "text"
    text.write_text("zzz yyy xxx\n" * 3, encoding="utf-8")
    BytePairEncoding.learn([text], tmp_path / "model", 8)
    sampler = BPEDropout(tmp_path / "model", dictionary, OPTIONS[1])
    pairs = LanguagePairDataset(data, data.sizes, dictionary, data, data.sizes, dictionary)
    with pytest.raises(ConfigurationError, match="--bpe-dropout cannot be used: .* source words"):
        SampledPairs(pairs, sampler, sampler, 1)


@pytest.fixture
def words(folder, train_args):
    return [
        folder, *train_args, "--task", "translation_sampled", *OPTIONS,
        "--dropout", 0.1, "--batch-size", 20,
    ]  # fmt: skip


def test_resumes_exactly_within_an_epoch_and_generates(
    words, folder, tmp_path, run_train, run_generate
):
    """Eight batches an epoch: stopped in the second."""
    runs = (("whole", 12), ("parts", 11), ("parts", 12))
    outputs = [
        run_train(*words, "--save-dir", tmp_path / name, "--max-update", updates).output
        for name, updates in runs
    ]
    assert "drew subwords of epoch 2" in outputs[0]
    assert "drew subwords of epoch 1" not in outputs[2]
    whole, parts = (load_checkpoint(tmp_path / name)["model"] for name in ("whole", "parts"))
    for name, value in whole.items():
        if not name.endswith("_float_tensor"):
            assert torch.equal(value, parts[name]), name
    checkpoint = tmp_path / "whole" / "checkpoint_last.pt"
    for task in ([], ["--task", "translation_sampled"]):
        output = run_generate(
            *(folder, "--path", checkpoint, "--gen-subset", "valid", *task, "--beam", 1),
            *("--max-len-b", 3),
        ).output
        assert len(re.findall(r"^H-", output, re.M)) == 20
        assert "drew subwords" not in output


def test_validation_is_not_sampled_and_has_bleu(words, folder, tmp_path, run_train):
    common = ["--max-update", 1, "--lr", 1e-9, "--eval-bleu"]
    common += ["--eval-bleu-args", '{"beam": 1, "max_len_b": 9}']
    losses = []
    for name, task in (("sampled", words), ("plain", [*words, "--task", "translation"])):
        if name == "plain":
            at = task.index(OPTIONS[0])
            task = task[:at] + task[at + 2 :]
        output = run_train(*task, *common, "--save-dir", tmp_path / name).output
        assert ("drew subwords" in output) == (name == "sampled")
        losses.append(re.findall(r"valid \| .*?\bloss[= ]([\d.]+)", output))
        assert "bleu" in output
    assert losses[0] == losses[1] and losses[0]


def test_only_sampled_data_vary_by_epoch(toy_data):
    """compat.resuming keeps the batches of the first epoch for all other data."""
    dictionary = Dictionary.load(str(toy_data.bin / "dict.src.txt"))
    for strength in (0.0, 0.1):
        cfg = SampledTranslationConfig(data=str(toy_data.bin), bpe_dropout=strength)
        task = SampledTranslationTask(cfg, dictionary, dictionary)
        assert task.varies_by_epoch == bool(strength)
