"""The batch of an update, shared by processes, and texts that fit into it."""

from argparse import Namespace

import pytest

from fairseq_plugins.data import lengths
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.train.batch_size import Batch, share
from tests.train.conftest import plan, value


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 6, 8, 12])
@pytest.mark.parametrize("update_freq", [1, 2, 3, 8])
@pytest.mark.parametrize("limit", [None, 1000])
def test_the_total_batch_stays(processes, update_freq, limit):
    whole = Batch(6144, 96, update_freq)
    batch = share(whole, processes, limit)
    for one, all_of_it in zip(batch[:2], whole[:2]):
        assert one * processes * batch.update_freq == all_of_it * update_freq
    assert batch.max_tokens <= min(whole.max_tokens, limit or whole.max_tokens)
    if update_freq % processes == 0 and limit is None:
        # what one process adds up is shared out before batches get smaller
        assert batch == (*whole[:2], update_freq // processes)


@pytest.mark.parametrize(
    "whole, processes, limit, message",
    [
        (Batch(4096, None, 1), 3, None, r"3 processes .*--max-tokens 4096 .*start 1 or 2 or 4 "),
        (Batch(4096, 33, 1), 2, None, "--max-tokens 4096 and --batch-size 33 .*start 1 "),
        (Batch(None, 32, 1), 1, 100, "--tokens-per-process 100 needs --max-tokens in"),
        (Batch(64, 3, 1), 1, 10, "1 process.* and --tokens-per-process 10 cannot share"),
    ],
)
def test_a_batch_that_cannot_be_shared(whole, processes, limit, message):
    with pytest.raises(ConfigurationError, match=message):
        share(whole, processes, limit)


def test_truncated_documents_may_be_longer_than_a_batch(documents):
    """With --truncate-source, the check ignores truncated tokens, like training."""
    words = ["--", "--max-tokens", 40, "--max-source-positions"]
    todo = plan(documents, *words, 40, recipe="fastformer_cnn_dm")
    assert value(todo.command, "--max-tokens") == "40" and todo.given.truncate_source
    with pytest.raises(ConfigurationError, match="give --max-tokens 41 or more after --"):
        plan(documents, *words, 41, recipe="fastformer_cnn_dm")
    with pytest.raises(ConfigurationError, match="longest sentence of train has 51 tokens"):
        plan(documents, *words, 2048, recipe="fastformer_cnn_dm")


def test_sentences_must_fit_into_the_share_of_a_process(toy_data):
    lines = (toy_data.raw / "train.src").read_text().splitlines()
    sizes = [len(line.split()) + 1 for line in lines]  # end of sentence

    def measure(source=99, target=99, cut=None, subset="train"):
        given = Namespace(truncate_source=cut is not None, max_source_positions=cut)
        return lengths.measure(toy_data.bin, given, subset, (source, target))

    def count(*limits):
        return measure(*limits)[1]

    assert measure() == (max(sizes), 0) and measure(subset="nothing") is None
    assert count(5, 99, None) == sum(size > 5 for size in sizes) > 0
    assert count(5, 99, 5) == count(99, 99, None) == 0
    assert count(5, 5, None) >= count(99, 5, None) > 0
    words = ["--", "--max-source-positions", 5]
    line = "skipped: {} pairs of {} over --max-source-positions 5"
    of_train = line.format(count(5, 1024, None), "train")
    told = [told for told in plan(toy_data.bin, *words).summary if "skipped: " in told]
    of_valid = count(5, 1024, None, "valid")
    assert of_valid > 0 and told[1].startswith(line.format(of_valid, "valid"))
    assert len(told) == 2 and told[0].startswith(of_train)
    with pytest.raises(ConfigurationError, match="every pair of train exceeds --max-source-"):
        plan(toy_data.bin, "--", "--max-source-positions", 1)
    told = plan(toy_data.bin, *words, "--disable-validation").summary
    assert sum("skipped: " in line for line in told) == 1
    advice = "longest sentence of train has 13 .*room for 13: give a larger --tokens-per-process"
    with pytest.raises(ConfigurationError, match=advice):
        plan(toy_data.bin, "--tokens-per-process", 8)
    with pytest.raises(ConfigurationError, match="give --max-tokens 13 or more after --"):
        plan(toy_data.bin, "--", "--max-tokens", 12)


def test_pairs_that_are_left_out_need_no_room_in_a_batch(toy_data):
    read = [(toy_data.raw / f"train.{side}").read_text().splitlines() for side in ("src", "tgt")]
    pairs = [(len(source.split()) + 1, len(target.split()) + 1) for source, target in zip(*read)]
    kept = max(max(pair) for pair in pairs if pair[0] <= 9)
    assert kept < max(map(max, pairs))
    words = ["--", "--max-source-positions", 9, "--max-tokens"]
    told = plan(toy_data.bin, *words, kept).summary
    assert any("pairs of train over " in line for line in told)
    with pytest.raises(ConfigurationError, match=f"of train has {kept} .*--max-tokens {kept} or"):
        plan(toy_data.bin, *words, kept - 1)


def test_sentences_of_valid_must_fit_into_its_own_batch(documents):
    words = ["--max-source-positions", 60, "--max-tokens", 51, "--max-tokens-valid"]
    plan(documents, "--", *words, 15, recipe="fastformer_cnn_dm")
    with pytest.raises(ConfigurationError, match="of valid has 15 .*--max-tokens-valid 15 or more"):
        plan(documents, "--", *words, 14, recipe="fastformer_cnn_dm")
    plan(documents, "--", *words, 14, "--disable-validation", recipe="fastformer_cnn_dm")
    # this leaves out what is longer than the model reads, not what is longer than a batch
    shorter = ["--max-target-positions", 12]
    with pytest.raises(ConfigurationError, match="--max-tokens-valid 15 or more"):
        plan(documents, "--", *words, 14, *shorter, recipe="fastformer_cnn_dm")
