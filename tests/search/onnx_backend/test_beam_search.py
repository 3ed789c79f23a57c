"""The search of exported models finds what fairseq's finds, whatever the batch."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.search import Options
from fairseq_plugins.search.engine import Input
from fairseq_plugins.search.onnx_backend.beam_search import _Batch, search
from fairseq_plugins.search.onnx_backend.folder import END, PADDING
from fairseq_plugins.search.text import Output
from fairseq_plugins.search.torch_backend.copied import find_attention

LIMIT = 12
# fairseq's names of options that have another one here
NAMES = {"beam": "beam_size", "lenpen": "len_penalty", "no_repeat_ngram": "no_repeat_ngram_size"}


def diverse(groups, strength):
    return {"beam": 6, "diverse_beam_groups": groups, "diverse_beam_strength": strength}


@pytest.fixture
def sources(exported):
    draw = random.Random(5)
    return [
        [draw.randrange(4, len(exported.source.words)) for _ in range(length)] + [END]
        for length in (3, 9, 1, 14, 6, 2)
    ]


def by_fairseq(pair, task, tokens, prefix=None, **options):
    from fairseq.search import DiverseBeamSearch
    from fairseq.sequence_generator import SequenceGenerator

    options = {NAMES.get(name, name): value for name, value in options.items()}
    groups, strength = (options.pop(f"diverse_beam_{n}", 0) for n in ("groups", "strength"))
    if groups:
        options["search_strategy"] = DiverseBeamSearch(task.target_dictionary, groups, strength)
    options = dict({"beam_size": 5, "max_len_b": LIMIT}, **options)
    generator = SequenceGenerator([pair[0]], task.target_dictionary, **options)
    sample = {
        "net_input": {
            "src_tokens": torch.tensor([tokens]),
            "src_lengths": torch.tensor([len(tokens)]),
        }
    }
    with torch.no_grad():
        words = {} if prefix is None else {"prefix_tokens": torch.tensor([prefix])}
        return generator.generate([pair[0]], sample, **words)[0]


def assert_equal(found, expected):
    assert [h.pieces for h in found] == [h["tokens"].tolist() for h in expected]
    for ours, theirs in zip(found, expected):
        assert ours.score == pytest.approx(float(theirs["score"]), abs=1e-4)
        assert ours.token_scores == pytest.approx(theirs["positional_scores"].tolist(), abs=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam": 1},
        {"beam": 3, "lenpen": 0.3},
        {"lenpen": 2.0, "min_len": 6},
        {"no_repeat_ngram": 1},
        {"no_repeat_ngram": 2},
        diverse(3, 0.7),
        {**diverse(2, 2.0), "min_len": 0},
        {**diverse(6, 0.1), "no_repeat_ngram": 2, "lenpen": 0.5},
    ],
)
def test_all_hypotheses_equal_fairseq(pair, task, sources, options):
    """Of each sentence alone; where they have limits of their own, and leave the batch."""
    ours, limits = Options(**{"nbest": options.get("beam", 5), **options}), (12, 7, 9, 8, 6, 12)
    found = search(pair[1], [Input(*each) for each in zip(sources, limits)], ours)
    for tokens, limit, hypotheses in zip(sources, limits, found):
        expected = by_fairseq(pair, task, tokens, max_len_b=limit, **options)
        assert_equal(hypotheses, expected)


def test_attention_equals_fairseq(pair, task, sources):
    wanted = [Input(tokens, LIMIT) for tokens in sources]
    found = search(pair[1], wanted, Options(nbest=5), aligned=True)
    assert [[h._replace(attention=None) for h in each] for each in found] == search(
        pair[1], wanted, Options(nbest=5)
    )
    for tokens, hypotheses in zip(sources, found):
        theirs = by_fairseq(pair, task, tokens)
        source = {"src_tokens": torch.tensor([tokens]), "src_lengths": torch.tensor([len(tokens)])}
        for h, ours in zip(theirs, hypotheses):
            attention = pytest.approx(h["attention"].t().numpy(), abs=1e-5)
            assert ours.attention == attention
            assert find_attention([pair[0]], source, [h["tokens"]]) == [attention]


def test_tokens_are_drawn_from_the_most_probable_ones(exported, sources):
    """--sampling-topp 0 to 1: the fewest tokens that have this probability."""
    wanted = [Input(tokens, 1) for tokens in sources]
    options = Options(beam=20, nbest=20, sampling=True, min_len=0)

    def drawn(**more):
        return search(exported, wanted, replace(options, **more))

    assert drawn(sampling_topp=1.0) == drawn()
    first = search(exported, wanted, Options(beam=20, nbest=20, min_len=0))
    for topp in (1e-6, 0.1):
        for some, best in zip(drawn(sampling_topp=topp), first):
            known = {h.pieces[0]: float(np.exp(h.token_scores[0])) for h in best}
            tokens = sorted(known, key=known.__getitem__, reverse=True)
            masses = np.array([known[token] for token in tokens])
            before = masses.cumsum() - masses
            allowed = {token for token, mass in zip(tokens, before) if mass < topp}
            assert {h.pieces[0] for h in some} <= allowed
            assert topp > 1e-3 or len({h.pieces[0] for h in some}) == 1


def test_a_sentence_has_no_more_hypotheses_than_its_beam(exported, sources):
    """One that ended before keeps its place, although as many as the beam end at the limit."""
    batch = _Batch(exported, [Input(sources[0], LIMIT)], Options(beam=3, nbest=3))
    ended = Output([END], True, (), -99.0, [-99.0])
    batch.finished[0].append(ended)
    (found,) = batch.run()
    assert len(found) == 3 and found[-1] is ended


@pytest.mark.parametrize("size", [0, 1])
def test_prefixes_of_different_lengths(pair, task, sources, size):
    prefixes = [[7, 9], [5], [], [11, 4, 8], [6, 6, 6], []]
    wanted = [Input(tokens, LIMIT, prefix) for tokens, prefix in zip(sources, prefixes)]
    found = search(pair[1], wanted, Options(nbest=5, no_repeat_ngram=size))
    for tokens, prefix, hypotheses in zip(sources, prefixes, found):
        options = {"no_repeat_ngram_size": size}
        assert_equal(hypotheses, by_fairseq(pair, task, tokens, prefix or None, **options))


def test_caches_grow(pair, task, sources):
    """Caches grow beyond their initial capacity."""
    found = search(pair[1], [Input(sources[0], 50)], Options(min_len=45))
    # the best alone, as the scores of others are equal but for rounding
    assert_equal(found[0], by_fairseq(pair, task, sources[0], max_len_b=50, min_len=45)[:1])
    assert len(found[0][0].pieces) > 45


def test_sampling_repeats_with_a_seed_and_alone(exported, sources):
    """Also where sentences finish and leave the batch. What has ended does not go on."""
    limits = (2, 40, 5, 60, 3, 50)
    wanted = [Input(*each, (), number) for number, each in enumerate(zip(sources, limits))]
    options = Options(sampling=True, nbest=5, seed=3, temperature=3.0)
    first = search(exported, wanted, options)
    assert [[h.pieces for h in found] for found in search(exported, wanted, options)] == [
        [h.pieces for h in found] for found in first
    ]
    early = 0
    for source, found in zip(wanted, first):
        (alone,) = search(exported, [source], options)
        assert [h.pieces for h in alone] == [h.pieces for h in found]
        assert all(h.pieces.index(END) == len(h.pieces) - 1 for h in found)
        early += sum(len(h.pieces) <= source.limit for h in found)
    assert early > 5, "all reach their limits: nothing is tested"
    other = search(exported, wanted, replace(options, seed=4))
    assert [h.pieces for h in other[0]] != [h.pieces for h in first[0]]


def test_sampling_draws_by_probability(pair, task, exported, sources):
    """First tokens of many draws against torch's probabilities, and among the best alone."""
    tokens = torch.tensor([sources[0]])
    with torch.no_grad():
        logits = pair[0](tokens, torch.tensor([tokens.size(1)]), torch.tensor([[2]]))[0][0, 0]
    logits[PADDING] = -np.inf
    expected = (logits / 1.5).softmax(0).numpy()
    options = Options(beam=20, nbest=20, sampling=True, temperature=1.5, min_len=0)
    wanted = [Input(sources[0], 1, (), number) for number in range(60)]
    drawn = [h.pieces[0] for found in search(exported, wanted, options) for h in found]
    counts = np.bincount(drawn, minlength=len(expected)) / len(drawn)
    assert len(drawn) == 1200
    assert np.abs(counts - expected).max() < 5 * np.sqrt(0.25 / 1200)
    best = set(np.argsort(-expected)[:3].tolist())
    some = search(exported, wanted, replace(options, sampling_topk=3))
    assert {h.pieces[0] for found in some for h in found} == best


def test_temperature_is_in_the_scores_of_forced_tokens(pair, exported, sources):
    """Those of a prefix, and the end at the length limit."""
    options = Options(beam=4, nbest=4, sampling=True, temperature=0.5)
    (found,) = search(exported, [Input(sources[0], 3, [7])], options)
    source = torch.tensor([sources[0]])
    for hypothesis in found:
        before = torch.tensor([[END, *hypothesis.pieces[:-1]]])
        with torch.no_grad():
            logits = pair[0](source, torch.tensor([source.size(1)]), before)[0][0]
        scores = (logits / 0.5).log_softmax(1)[range(len(hypothesis.pieces)), hypothesis.pieces]
        assert hypothesis.token_scores == pytest.approx(scores.tolist(), abs=1e-4)
    assert {h.pieces[0] for h in found} == {7} and max(len(h.pieces) for h in found) == 4


@pytest.mark.parametrize(
    "options, told",
    [
        ({"beam": 0}, "--beam 0: must be from 1 to 1024"),
        ({"beam": 2, "nbest": 3}, "--nbest 3 is above --beam 2"),
        ({"seed": 10**20}, "--seed 10+: must be from 0 to 9223372036854775807"),
        ({"lenpen": float("nan")}, "--lenpen nan: must be from -10 to 10"),
        ({"temperature": 0.0}, "--temperature 0.0: must be at least 0.001"),
        ({"temperature": 0.7}, "--temperature 0.7 needs --sampling"),
        ({"sampling": 1}, "--sampling 1: must be True or False"),
        ({"shortlist": None}, "options: shortlist is not an option of the search"),
        ({"len_pen": 2}, "len_pen is not an option of the search: did you mean lenpen"),
        ({"sampling_topk": 5}, "--sampling-topk 5 needs --sampling"),
        ({"sampling_topp": 0.5}, "--sampling-topp 0.5 needs --sampling"),
        ({"sampling": True, "sampling_topk": 2, "sampling_topp": 0.5}, "cannot be combined"),
        ({"sampling": True, "diverse_beam_groups": 5}, "cannot be combined: remove one"),
        ({"diverse_beam_groups": 2}, "--diverse-beam-groups 2 must divide --beam, which is 5"),
        ({"diverse_beam_strength": 1.0}, "needs --diverse-beam-groups"),
    ],
)
def test_options_that_cannot_work(options, told):
    with pytest.raises(ConfigurationError, match=told):
        Options.of(options)
