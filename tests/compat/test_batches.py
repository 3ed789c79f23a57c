"""Every sentence is in a batch."""

import re

import numpy as np
import pytest
from fairseq.data import FairseqDataset, data_utils
from fairseq.data.iterators import EpochBatchIterator, GroupedIterator

from fairseq_plugins import compat
from fairseq_plugins.errors import ConfigurationError
from tests.conftest import run_cli

compat.apply()


@pytest.mark.parametrize("limits", [(None, None), (40, None), (None, 5), (None, 16), (60, 12)])
@pytest.mark.parametrize("multiple", [1, 8])
@pytest.mark.parametrize("vector", [False, True])
def test_every_sentence_is_in_one_batch_within_the_limits(limits, multiple, vector):
    max_tokens, max_sentences = limits
    generator = np.random.RandomState(0)
    for size in range(1, 34):
        lengths = generator.randint(1, 13, size=size)
        indices = np.argsort(lengths, kind="mergesort").astype(np.int64)
        batches = data_utils.batch_by_size(
            indices,
            num_tokens_fn=lambda index: lengths[index],  # noqa: B023
            num_tokens_vec=lengths[indices].astype(np.int64) if vector else None,
            max_tokens=max_tokens,
            max_sentences=max_sentences,
            required_batch_size_multiple=multiple,
        )
        assert np.concatenate(batches).tolist() == indices.tolist()
        for batch in batches:
            assert 0 < len(batch) <= (max_sentences or size)
            assert len(batch) * max(lengths[batch]) <= (max_tokens or 13 * size)
        assert all(len(b) < multiple or len(b) % multiple == 0 for b in batches[:-1])


@pytest.mark.parametrize("vector", [False, True])
def test_a_sentence_longer_than_a_batch_is_told(vector):
    lengths = np.array([3, 9])
    with pytest.raises(ConfigurationError, match="--max-tokens 8: a sentence is longer: give"):
        data_utils.batch_by_size(
            np.arange(2), lengths.__getitem__, lengths if vector else None, max_tokens=8
        )


def test_no_sentence_is_an_error_where_fairseq_would_crash_and_no_batch_elsewhere():
    assert data_utils.batch_by_size([], len, max_tokens=10) == []
    options = {"max_tokens": 10, "required_batch_size_multiple": 8}
    with pytest.raises(ConfigurationError, match="no sentences for a batch.*--max-source-p"):
        data_utils.batch_by_size([], len, **options)


def test_a_perplexity_is_of_all_blocks_or_says_of_how_many(toy_data, run_train, tmp_path):
    for path in toy_data.bin.glob("*.src-tgt.src.*"):
        (tmp_path / path.name.replace(".src-tgt.src", "")).write_bytes(path.read_bytes())
    (tmp_path / "dict.txt").write_bytes((toy_data.bin / "dict.src.txt").read_bytes())
    run_train(
        tmp_path, "--task", "language_modeling", "--arch", "transformer_lm", "--decoder-layers", 1,
        "--decoder-embed-dim", 16, "--decoder-ffn-embed-dim", 32, "--decoder-attention-heads", 2,
        "--tokens-per-sample", 8, "--max-tokens", 200, "--max-update", 1, "--optimizer", "adam",
        "--lr", 0.001, "--save-dir", tmp_path,
    )  # fmt: skip

    def evaluate(*options):
        words = [tmp_path, "--path", tmp_path / "checkpoint_last.pt", *options]
        return run_cli("eval_lm", *words).output

    with pytest.raises(ConfigurationError, match="blocks are longer than the 8 tokens"):
        evaluate("--tokens-per-sample", 40)
    part = evaluate("--sample-break-mode", "eos", "--tokens-per-sample", 40)
    told = re.search(r"only part of the text: (\d+) of 13 blocks .*: give (.*)$", part, re.M)
    assert 0 < int(told[1]) < 13
    whole = evaluate(*told[2].replace("with ", "").split())
    assert "Perplexity: " in whole and "part of the text" not in whole


@pytest.mark.parametrize("done", [0, 5, 12, 19])
def test_all_batches_but_the_last_are_read_after_resuming(done):
    """`--skip-remainder-batch`, stopped after so many of 20 batches."""
    numbers = [[number] for number in range(20)]

    def iterator():
        dataset = Numbers()
        return EpochBatchIterator(
            dataset, dataset.collater, numbers, skip_remainder_batch=True, buffer_size=0
        )

    first = iterator()
    epoch = first.next_epoch_itr(shuffle=False)
    read = [next(epoch) for _ in range(done)]
    state = first.state_dict()
    resumed = iterator()
    resumed.load_state_dict(state)
    if resumed.next_epoch_idx == 1:
        read += list(resumed.next_epoch_itr(shuffle=False))
    assert read == numbers[:-1]


@pytest.mark.parametrize("done", [0, 1, 2, 5, 6])
@pytest.mark.parametrize(
    "before, after", [((1, 4), (2, 2)), ((2, 2), (1, 4)), ((4, 1), (1, 3)), ((1, 3), (2, 1))]
)
def test_an_epoch_goes_on_with_other_processes(before, after, done):
    """`done` updates of 26 batches, then the rest, by other (processes, --update-freq).

    A batch that not all of the processes would have read is read again.
    """

    def groups(rank, processes, size, states=()):
        dataset = Numbers()
        iterator = EpochBatchIterator(
            dataset, dataset.collater, [[number] for number in range(26)], buffer_size=0,
            num_shards=processes, shard_id=rank, seed=1,
        )  # fmt: skip
        for state in states:
            iterator.load_state_dict(state)
        return iterator, GroupedIterator(iterator.next_epoch_itr(), size)

    def numbers(samples):
        return [number for sample in samples for number in sample]

    read, states = [], []
    for rank in range(before[0]):
        iterator, epoch = groups(rank, *before)
        read += [number for _ in range(done) for number in numbers(next(epoch))]
        states.append(iterator.state_dict())
    for rank in range(after[0]):
        iterator, epoch = groups(rank, *after, states[:1])
        assert iterator.epoch == 1
        for samples in epoch:
            read += numbers(samples)
        assert iterator.end_of_epoch()
    again = done * before[0] * before[1] % after[0]
    assert sorted(set(read)) == list(range(26)) and len(read) == 26 + again


def test_what_is_not_to_be_shuffled_stays_in_order():
    dataset, numbers = Numbers(), [[number] for number in range(20)]
    iterator = EpochBatchIterator(
        *(dataset, dataset.collater, numbers),
        **{"buffer_size": 0, "seed": 1, "disable_shuffling": True, "reuse_dataloader": True},
    )
    first, second = (list(iterator.next_epoch_itr(shuffle=True)) for _ in range(2))
    assert first == second == numbers


def test_other_data_may_begin_an_epoch_and_not_go_on_in_one():
    dataset = Numbers()
    iterator = EpochBatchIterator(dataset, dataset.collater, [[0], [1]], buffer_size=0)
    state = {"epoch": 2, "iterations_in_epoch": 0, "sentences": 7}
    iterator.load_state_dict(state)
    with pytest.raises(ConfigurationError, match="of 7 sentences, but the training data have 20"):
        iterator.load_state_dict({**state, "iterations_in_epoch": 1})


class Numbers(FairseqDataset):
    def __getitem__(self, index):
        return index

    def __len__(self):
        return 20

    def collater(self, samples):
        return samples


def test_interactive_skips_a_line_that_is_too_long(tiny_checkpoint, toy_data, run_interactive):
    lines = ["ba be", " ".join(["ba"] * 2000), "bi"]
    output = run_interactive(
        toy_data.bin, "--path", tiny_checkpoint, "--skip-invalid-size-inputs-valid-test",
        stdin="\n".join(lines) + "\n",
    ).output  # fmt: skip
    assert re.findall(r"^H-(\d+)", output, re.MULTILINE) == ["0", "2"]
