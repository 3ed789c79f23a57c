"""What replaces fairseq's compiled extensions, which no wheel of it has, equals a slow rule."""

import itertools
import subprocess
import sys
from collections import Counter

import numpy as np
import torch
from fairseq.scoring import bleu

from fairseq_plugins.compat import uncompiled
from tests.conftest import USER_DIR


def numbers(seed, count, lowest, highest):
    return np.random.default_rng(seed).integers(lowest, highest + 1, count)


# --- batches --------------------------------------------------------------------------------------


def largest_batches(indices, lengths, max_tokens, max_sentences, multiple):
    """Batch by batch: the longest run that fits, and that is short or a multiple."""
    batches, start = [], 0
    while start < len(indices):
        best = 0
        for count in range(1, len(indices) - start + 1):
            longest = max(lengths[start : start + count])
            if count > max_sentences > 0 or count * longest > max_tokens > 0:
                break
            if count < multiple or count % multiple == 0:
                best = count
        batches.append(indices[start : start + best])
        start += best
    return batches


BATCHES = [
    (*lengths, max_tokens, max_sentences, multiple)
    for lengths in [(0, 1), (1, 5), (2, 30), (40, 90)]
    for max_tokens in [-1, 90, 400]
    for max_sentences in [-1, 1, 7, 8, 20]
    for multiple in [1, 2, 8, 10]
]


def test_batches_equal_the_rule():
    for seed, (shortest, longest, *limits) in enumerate(BATCHES):
        for count in (0, 1, 7, 8, 9, 61):
            lengths = numbers(seed, count, shortest, longest)
            lengths = np.sort(lengths) if seed % 2 else lengths
            indices = np.random.default_rng(seed).permutation(count)
            expected = list(map(list, largest_batches(indices, lengths, *limits)))
            found = uncompiled.batch_by_size_vec(indices, lengths, *limits)
            assert list(map(list, found)) == expected, (lengths, limits)
            called = uncompiled.batch_by_size_fn(
                indices, dict(zip(indices.tolist(), lengths.tolist())).get, *limits
            )
            assert list(map(list, called)) == expected


def test_batches_are_made_in_time_that_grows_with_the_sentences(monkeypatch):
    """Each sentence is read at most twice, in any order."""
    reads = []

    class Lengths(list):
        def __getitem__(self, position):
            reads.append(position)
            return list.__getitem__(self, position)

    class Vector:
        def __init__(self, lengths):
            self.tolist = lambda: Lengths(lengths)

    for order in (1, -1):
        lengths = sorted(numbers(0, 2000, 1, 60).tolist())[::order]
        reads.clear()
        uncompiled.batch_by_size_vec(np.arange(2000), Vector(lengths), 600, -1, 8)
        assert max(Counter(reads).values()) <= 4 and len(reads) < 3 * 2000


# --- blocks of tokens -----------------------------------------------------------------------------

SIZES = [[1], [3], [0, 0, 4, 2], [9, 1, 1, 9], [1, 4, 1, 1, 7, 1], [2, 0, 0, 3]]
SIZES += [numbers(seed, 1 + seed, seed % 3, 9).tolist() for seed in range(40)]


def test_blocks_hold_every_token_once():
    for sizes, block in itertools.product(SIZES, (1, 4, 30)):
        sizes = [max(size, 1) for size in sizes]  # fairseq's sentences end with a token
        tokens = [(s, offset) for s, size in enumerate(sizes) for offset in range(size)]
        for mode in ("none", "complete"):
            blocks = uncompiled._get_slice_indices_fast(np.array(sizes), mode, block, 0)
            index = uncompiled._get_block_to_dataset_index_fast(np.array(sizes), blocks)
            found = []
            for (start, end), (first, offset, last) in zip(blocks.tolist(), index.tolist()):
                held = [(s, o) for s in range(first, last + 1) for o in range(sizes[s])]
                found += held[offset : offset + end - start]
                assert mode == "complete" or end - start <= block
            assert found == tokens


def test_blocks_of_documents_and_of_sentences_by_hand():
    sizes = np.array([3, 2, 1, 4, 1, 1, 2, 4])  # separators of one token end two documents
    blocks = uncompiled._get_slice_indices_fast(sizes, "complete_doc", 5, 1)
    assert blocks.tolist() == [[0, 5], [6, 10], [12, 14], [14, 18]]
    index = uncompiled._get_block_to_dataset_index_fast(sizes, blocks)
    assert index.tolist() == [[0, 0, 1], [3, 0, 3], [6, 0, 6], [7, 0, 7]]
    blocks = uncompiled._get_slice_indices_fast(sizes[:3], "eos", 0, 1)
    assert blocks.tolist() == [[0, 3], [3, 5], [5, 6]]


# --- BLEU -----------------------------------------------------------------------------------------


class InPython(bleu.Scorer):
    __init__ = uncompiled._begin
    reset = uncompiled._reset
    add = uncompiled._add


def counts(scorer):
    return {name: getattr(scorer.stat, name) for name, _ in bleu.BleuStat._fields_}


def test_bleu_of_a_sentence_by_hand():
    scorer = InPython(bleu.BleuConfig())
    # 5 6 occurs once in the reference and twice in the translation; 3 is unknown
    scorer.add(torch.IntTensor([1, 5, 6, 3, 7, 2]), torch.IntTensor([5, 6, 5, 6, 3, 2, 2]))
    found = counts(scorer)
    assert (found["reflen"], found["predlen"]) == (4, 5)
    assert [found[f"match{n}"] for n in (1, 2, 3, 4)] == [2, 1, 0, 0]
    assert [found[f"count{n}"] for n in (1, 2, 3, 4)] == [5, 4, 3, 2]


# --- an installation without them -----------------------------------------------------------------

WITHOUT = """
import sys

class Hide:
    def find_spec(name, path, target=None):
        if name.rpartition(".")[2] in {"data_utils_fast", "token_block_utils_fast", "libbleu",
                                       "libnat", "libnat_cuda", "libbase"}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Hide)
from fairseq_cli.generate import cli_main; cli_main()
"""


def test_fairseq_generates_and_scores_without_them(tiny_checkpoint, toy_data, run_generate):
    words = [toy_data.bin, "--path", tiny_checkpoint, "--beam", 2, "--max-len-b", 9]
    given = [*words, "--user-dir", USER_DIR]
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT, *map(str, given)],
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    (score,) = [line for line in found.stdout.splitlines() if "BLEU4 = " in line]
    assert score in run_generate(*words).output
