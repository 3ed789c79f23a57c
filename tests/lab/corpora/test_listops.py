"""ListOps: values are those of an independent reading, lengths and shares those that were asked."""

import random
import statistics

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.commands import make_listops
from fairseq_plugins.lab.corpora import listops

SMALL = ["--train", "300", "--held-out", "40", "--min-length", "5", "--max-length", "60"]


def make(folder, *words):
    assert make_listops.main([str(folder), *words]) == 0
    return {split: (folder / f"{split}.tsv").read_text() for split in ("train", "valid", "test")}


def evaluate(words):
    """The value of an expression, read from its end by recursion, its depth, and its arguments."""
    word = words.pop(0)
    if word.isdigit():
        return int(word), 1, []
    values, depths, counts = [], [], []
    while words[0] != "]":
        value, depth, inner = evaluate(words)
        values.append(value)
        depths.append(depth)
        counts += inner
    words.pop(0)
    functions = {
        "[MIN": min,
        "[MAX": max,
        "[MED": lambda numbers: int(statistics.median(numbers)),
        "[SM": lambda numbers: sum(numbers) % 10,
    }
    return functions[word](values), 1 + max(depths), [len(values), *counts]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make(tmp_path_factory.mktemp("listops"), *SMALL)


def test_labels_are_the_values_and_brackets_are_kept(corpus):
    seen = set()
    for split, size in (("train", 300), ("valid", 40), ("test", 40)):
        lines = corpus[split].splitlines()
        assert len(lines) == size
        for line in lines:
            label, text = line.split("\t")
            words = text.split()
            assert 5 < len(words) < 60
            assert text not in seen
            seen.add(text)
            assert text.count("[") == text.count("]") > 0
            value, depth, counts = evaluate(words)
            assert (int(label), words) == (value, [])
            assert depth <= 10 and 2 <= min(counts) and max(counts) <= 10


def test_the_same_arguments_give_the_same_bytes(corpus, tmp_path):
    assert make(tmp_path / "again", *SMALL) == corpus
    other = make(tmp_path / "other", *SMALL, "--seed", "2")
    assert not set(other["valid"].splitlines()) & set(corpus["valid"].splitlines())
    smaller = make(tmp_path / "smaller", *SMALL, "--train", "20")
    assert smaller["valid"] == corpus["valid"] and smaller["test"] == corpus["test"]
    assert corpus["train"].startswith(smaller["train"])


def test_the_distribution_is_the_published_one():
    """Without a limit on lengths: a quarter of nodes are operations, with 2 to 10 arguments."""
    uniform = random.Random("shares").random
    shape = listops.Shape(max_depth=4, min_length=0, max_length=10**6)
    operations = digits = inner = 0
    counts, names = [], dict.fromkeys(listops.NAMES, 0)
    for _ in range(6000):
        words, _ = listops.draw(uniform, shape)
        for word in words:
            names[word] = names.get(word, 0) + 1
        inner += not words[0].isdigit()
        operations += sum(word.startswith("[") for word in words)
        digits += sum(word.isdigit() for word in words)
        counts += evaluate(words)[2]
    assert inner / 6000 == pytest.approx(0.25, abs=0.03)
    assert statistics.mean(counts) == pytest.approx(6, abs=0.1)
    assert all(abs(names[name] / operations - 0.25) < 0.03 for name in listops.NAMES)
    assert all(abs(names[str(digit)] / digits - 0.1) < 0.02 for digit in range(10))


def test_another_corpus_is_not_replaced(tmp_path):
    before = make(tmp_path, *SMALL)
    with pytest.raises(ConfigurationError, match=r"train\.tsv exists: give another folder"):
        make_listops.main([str(tmp_path), *SMALL, "--seed", "2"])
    assert (tmp_path / "train.tsv").read_text() == before["train"]


@pytest.mark.parametrize("max_depth", [2, 3, 5])
def test_the_depth_reaches_its_limit(max_depth):
    """Digits count: an operation on digits alone has depth 2."""
    uniform = random.Random("depth").random
    shape = listops.Shape(max_depth=max_depth, min_length=0, max_length=10**6)
    drawn = [listops.draw(uniform, shape)[0] for _ in range(500)]
    assert max(evaluate(words)[1] for words in drawn) == max_depth
