"""The search whose decisions stay on the device: the results of fairseq's loop, and no waits."""

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from torch.utils._python_dispatch import _disable_current_modes

from fairseq_plugins.search.torch_backend import decoding
from fairseq_plugins.search.torch_backend import generator as search_in_steps
from fairseq_plugins.search.torch_backend.generator import BeamGenerator
from tests.batches import half
from tests.search.torch_backend.conftest import assert_close
from tests.tape import HostWaits, Tape

pytestmark = pytest.mark.usefixtures("small_sizes")
LENGTHS = (5, 1, 9, 3, 7)
OPTIONS = [
    {},
    {"beam_size": 1},
    {"beam_size": 2, "len_penalty": 2.0},
    {"normalize_scores": False, "temperature": 0.7, "max_len": 5},
    {"min_len": 10, "unk_penalty": 2.0},
    {"max_len_a": 1, "max_len_b": 2},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 3, "min_len": 8},
    # of 48 words, so that some have no successor
    {"tokens_to_suppress": ("KI", "NI"), "beam_size": 47},
]
PREFIXES = [
    [[7], [8], [9], [10], [1]],
    [[7, 8, 9], [9, 1, 1], [1, 1, 1], [5, 2, 1], [6, 5, 1]],
    [[7, 8, 2], [9, 2, 1], [7, 8, 2], [9, 2, 1], [5, 1, 1]],
    [[7, 8] * 7] * 5,  # longer than an output may be
]


@pytest.fixture
def without_waits(monkeypatch):
    """The steps of the search refuse to wait; making room, which is rare, may."""
    batch, steps = search_in_steps._Batch, decoding.BeamDecoding
    step_of, reserve_of = batch.step, steps.reserve

    def step(self, number):
        with Tape().capturing():
            return step_of(self, number)

    def reserve(self, number):
        with _disable_current_modes():
            return reserve_of(self, number)

    monkeypatch.setattr(batch, "step", step)
    monkeypatch.setattr(steps, "reserve", reserve)


def assert_equal(found, expected):
    """To the bit, as a CPU computes the same products of the same batches."""
    assert len(found) == len(expected)
    for some, others in zip(found, expected):
        assert len(some) == len(others) > 0
        for a, b in zip(some, others):
            assert a.keys() == b.keys()
            for name in a:
                assert a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]), name


@pytest.mark.parametrize("name, options", half(["ftc", "fairseq", "copy", "two"], OPTIONS), ids=str)
def test_it_finds_what_fairseqs_loop_finds(
    build_generator, models, make_sample, without_waits, name, options
):
    generator = build_generator(models[name], True, **options)
    assert type(generator) is BeamGenerator
    sample = make_sample(LENGTHS)
    found = generator.generate(models[name], sample)
    assert_equal(found, SequenceGenerator._generate(generator, sample))
    with pytest.raises(HostWaits), Tape().capturing():
        SequenceGenerator._generate(generator, sample)


def test_hypotheses_that_are_not_numbers_end(build, build_generator, make_sample):
    """As of some sentences in half precision."""
    model, lost = build("--encoder-blocks", "1,1"), []

    def lose(module, args, logits):
        lost.append(logits[..., 5:6] > 0.5)
        lost[-1][:, 0] = False  # the best one
        return logits.masked_fill(lost[-1], torch.nan)

    model.decoder.output_projection.register_forward_hook(lose)
    generator, sample = build_generator([model], True), make_sample(LENGTHS)
    found = generator.generate([model], sample)
    share = torch.cat([x.flatten() for x in lost]).double().mean()
    assert 0 < share < 1
    assert_equal(found, SequenceGenerator._generate(generator, sample))


@pytest.mark.parametrize("prefix", PREFIXES, ids=str)
def test_prefixes(build_generator, models, make_sample, without_waits, prefix):
    sample, prefix = make_sample(LENGTHS), torch.tensor(prefix)
    generator = build_generator(models["ftc"], True)
    found = generator.generate(models["ftc"], sample, prefix_tokens=prefix, bos_token=4)
    expected = SequenceGenerator._generate(generator, sample, prefix.clone(), None, 4)
    assert_equal(found, expected)


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_sentences_that_leave_the_batch_late(
    build_generator, models, make_sample, monkeypatch, options
):
    """As on a GPU: the host knows of ends two steps later."""

    class Late:
        def __init__(self):
            self.known = []

        def __call__(self, done):
            self.known.append(done)
            late.append(len(done))
            return self.known[-3] if len(self.known) > 2 else None

    late = []
    sample = make_sample((5, 1, 9, 3, 2, 2))
    generator = build_generator(models["two"], True, max_len_b=30, **options)
    expected = SequenceGenerator._generate(generator, sample)
    monkeypatch.setattr(search_in_steps, "_Late", Late)
    found = generator.generate(models["two"], sample)
    assert len(set(late)) > 1, "no sentence left the batch: nothing is tested"
    assert_close(found, expected)


def test_constraints_are_an_error_of_fairseqs(build_generator, models, make_sample):
    generator, constraints = build_generator(models["ftc"], True), torch.zeros(3, 1).long()
    with pytest.raises(NotImplementedError, match="constraints"):
        generator.generate(models["ftc"], make_sample((6, 6, 6)), constraints=constraints)
