"""Filling batches: every text once, within the limits."""

import random

import pytest

from fairseq_plugins.search import batches
from fairseq_plugins.search.batches import fill_batches


@pytest.mark.parametrize("most", [1, 3, 1000])
@pytest.mark.parametrize("max_tokens", [1, 20, 300])
def test_every_text_stands_in_one_batch_that_keeps_the_limits(max_tokens, most):
    draw = random.Random(1)
    lengths = [draw.randint(1, 50) for _ in range(200)]
    found = fill_batches(lengths, max_tokens, most)
    assert sorted(index for batch in found for index in batch) == list(range(200))
    flat = [lengths[index] for batch in found for index in batch]
    assert flat == sorted(lengths, reverse=True)
    for batch in found:
        padded = len(batch) * max(lengths[index] for index in batch)
        assert len(batch) <= most and (padded <= max_tokens or len(batch) == 1)
    if most == 1000:  # a batch ends only where the next text has no room
        for batch in found[:-1]:
            assert lengths[batch[0]] * (len(batch) + 1) > max_tokens


def test_texts_of_two_kinds_share_no_batch():
    assert fill_batches([5, 12, 7, 11], 1000, kinds=[0, 1, 0, 1]) == [[1, 3], [2, 0]]
    assert fill_batches([5, 12, 7, 11], 1000) == [[1, 3, 2, 0]]


def test_a_batch_takes_no_more_bytes_than_one_may(monkeypatch):
    """Of its largest text for all, as a batch is padded; a larger text gets its own batch."""
    monkeypatch.setattr(batches, "MOST_BYTES", 100)
    sizes = [30, 50, 20, 101, 20]
    assert fill_batches([3, 5, 2, 9, 1], 1000, sizes=sizes) == [[3], [1, 0], [2, 4]]
    assert fill_batches([3, 2, 1], 1000, sizes=[20, 40, 20]) == [[0, 1], [2]]
    read = []

    class Sizes(list):
        def __getitem__(self, index):
            read.append(index)
            return list.__getitem__(self, index)

    fill_batches([1] * 1000, 1000, sizes=Sizes([0] * 1000))
    assert len(read) < 3000  # not all of a batch for each of its texts


def test_no_texts():
    assert fill_batches([], 100) == []
