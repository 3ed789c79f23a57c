"""ROUGE equals rouge-score called directly, equations worked by hand, and the literature."""

import multiprocessing
import os
import random
import signal

import numpy as np
import pytest
from rouge_score import rouge_scorer

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.scoring import rouge as module
from fairseq_plugins.scoring.rouge import (
    METRICS,
    VALUES,
    RougeConfig,
    RougeScorer,
    prepare,
    rouge,
    score_documents,
)
from fairseq_plugins.text.languages import words


def estimate(reference, summary, metric, value="fmeasure", **how):
    scores = rouge([reference], [summary], **how).scores[0, METRICS.index(metric)]
    return 100 * scores[VALUES.index(value)]


def random_texts(count, seed):
    words = "rain rains raining fell falls in the city of a night stopped 1,000 U.S. don't".split()
    generator = random.Random(seed)
    return [
        " <q> ".join(
            " ".join(generator.choice(words) for _ in range(generator.randint(1, 9)))
            for _ in range(generator.randint(1, 4))
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    "reference, summary, shared, words",
    [
        ("Привет, большой мир!", "привет мир", 2, (3, 2)),
        ("你好世界。", "世界 你", 3, (4, 3)),
        ("हिन्दी में समाचार", "हिन्दी समाचार", 2, (3, 2)),  # marks belong to their word
        ("Größe\u0308 Übung", "große u\u0308bung", 1, (2, 2)),  # composed or not
        ("The rain, 1,000 times", "rain 1", 2, (5, 2)),
        ("sun ❤\ufe0f", "rain ☀\ufe0f", 0, (1, 1)),  # a mark of a symbol is no word
        ("ශ්\u200dරී co\u00adoperate", "ශ්\u200dරී cooperate", 2, (2, 2)),  # words with invisible signs
        ("می\u200cخواهم", "میخواهم", 1, (1, 1)),
        ("ฝน\u200bตก", "ฝน ตก", 2, (2, 2)),
    ],
)
def test_words_of_any_script(reference, summary, shared, words):
    found = estimate(reference, summary, "rouge1", "recall", unicode=True)
    assert found == pytest.approx(100 * shared / words[0])
    found = estimate(reference, summary, "rouge1", "precision", unicode=True)
    assert found == pytest.approx(100 * shared / words[1])


def test_references_without_a_word_are_told():
    found = rouge(["Привет", "a word", ""], ["Привет", "a word", ""])
    assert found.f1("rouge1") == pytest.approx(100 / 3) and "tok" not in found.signature
    (told,) = [text for text in found.warnings if "--rouge-unicode" in text]
    assert told.startswith("1 document had a reference without a letter")
    found = rouge(["Привет", "a word"], ["Привет", "a word"], unicode=True)
    assert found.f1("rouge1") == 100 and "|tok:unicode-2|" in found.signature
    assert not any("--rouge-unicode" in text for text in found.warnings)
    found = rouge(["!"], ["!"], unicode=True)
    assert any("without a letter or a digit, which scores 0" in text for text in found.warnings)
    assert not any("--rouge-unicode" in text for text in found.warnings)
    thai = "ฝนตก"
    found = rouge([thai, thai, "a word"], [thai, thai, "a word"], unicode=True)
    assert any(text.startswith("Thai, Lao, Khmer") for text in found.warnings)
    with pytest.raises(ConfigurationError, match="Porter's stemmer is only for English"):
        RougeScorer(RougeConfig(rouge_stemmer=True, rouge_unicode=True))


@pytest.mark.parametrize("stemmer", [False, True])
def test_equals_rouge_score_called_directly(stemmer):
    references, summaries = random_texts(40, seed=1), random_texts(40, seed=2)
    direct = rouge_scorer.RougeScorer(list(METRICS), use_stemmer=stemmer)
    scores = [
        direct.score(ref.replace(" <q> ", "\n"), summary.replace(" <q> ", "\n"))
        for ref, summary in zip(references, summaries)
    ]
    result = rouge(references, summaries, stemmer=stemmer)
    assert len(result.scores) == 40 and not result.warnings
    low, high = result.intervals()
    for n, metric in enumerate(METRICS):
        expected = [100 * sum(getattr(s[metric], v) for s in scores) / len(scores) for v in VALUES]
        assert list(100 * result.scores.mean(axis=0)[n]) == pytest.approx(expected)
        assert (low[n] < expected).all() and (expected < high[n]).all()
        assert result.f1(metric) == pytest.approx(expected[0])


def test_unknown_words_never_match():
    assert estimate("<<unk>> fell", "<unk> stopped", "rouge1") == 0
    assert estimate("<<unk>> fell", "unk stopped", "rouge1") == 0
    assert estimate("<<unk>> fell", "<unk> fell", "rouge1") == pytest.approx(50)


def test_boundaries_of_every_form():
    for text in ("a b. <q> c d.", "a b.<q>c d.", "a b.\nc d.", " a  b. \n\n c d. <q>"):
        assert prepare(text) == "a b.\nc d."
    assert prepare("It fell. It rose. <q> E") == "It fell. It rose.\nE"


def test_boundary_is_no_word():
    assert estimate("a <q> b", "a b", "rouge1", "recall") == pytest.approx(100)
    assert estimate("q", "a <q> b", "rouge1") == 0


def test_processes_change_nothing(monkeypatch):
    references = [prepare(text) for text in random_texts(50, seed=3)]
    summaries = [prepare(text) for text in random_texts(50, seed=4)]
    alone = score_documents(references, summaries)
    pools = []
    get_context = multiprocessing.get_context
    monkeypatch.setattr(module, "ENOUGH_FOR_PROCESSES", 1)
    monkeypatch.setattr(module, "DOCUMENTS_A_TASK", 7)
    monkeypatch.setattr(
        multiprocessing, "get_context", lambda kind: pools.append(kind) or get_context(kind)
    )
    assert np.array_equal(score_documents(references, summaries, workers=2), alone)
    assert pools == ["fork"]


def die(*task):
    assert multiprocessing.parent_process() is not None  # never the process of the tests
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_is_one_line(monkeypatch):
    monkeypatch.setattr(module, "ENOUGH_FOR_PROCESSES", 1)
    monkeypatch.setattr(module, "_score", die)
    with pytest.raises(ConfigurationError, match="one of 2 processes was killed .ROUGE., perhaps"):
        score_documents(["a"] * 100, ["a"] * 100, workers=2)


def test_scorer_sees_documents_added_after_a_score():
    scorer = RougeScorer(RougeConfig())
    scorer.add_string("a b", "a b")
    assert scorer.score() == pytest.approx(100)
    scorer.add_string("a b", "c d")
    assert scorer.score() == pytest.approx(50)
    scorer = RougeScorer(RougeConfig(rouge_stemmer=True))
    scorer.add_string("it rains", "it rained")
    assert scorer.score() == pytest.approx(100) and "stem:porter" in scorer.result_string()


def test_each_chinese_character_is_a_word_also_rare_and_half_width_ones():
    assert words("\u4eca\u65e5 \U00020000\U00020001 \uff71\uff72") == [
        *("\u4eca", "\u65e5", "\U00020000", "\U00020001", "\u30a2", "\u30a4")
    ]
