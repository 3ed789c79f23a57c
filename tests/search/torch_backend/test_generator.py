"""The search whose decisions stay on the device: the results of fairseq's loop, and no waits."""

import contextlib
import copy

import pytest
import torch
from fairseq import search, utils
from fairseq.sequence_generator import SequenceGenerator
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_plugins.search.torch_backend import decoding, grouped_top_k
from fairseq_plugins.search.torch_backend import generator as search_in_steps
from fairseq_plugins.search.torch_backend.generator import BeamGenerator
from tests.tape import Tape

LENGTHS = (5, 1, 9, 3)
OPTIONS = [
    {},
    {"beam_size": 1},
    {"beam_size": 2, "len_penalty": 2.0},
    {"normalize_scores": False, "temperature": 0.7, "max_len": 5},
    {"min_len": 10, "unk_penalty": 2.0},
    {"max_len_a": 1, "max_len_b": 2},
    {"no_repeat_ngram_size": 2},
    {
        "tokens_to_suppress": ("KI", "NI"),
        "beam_size": 47,
    },  # of 48 words, so that some have no successor
]
PREFIXES = [
    [[7], [8], [9], [10]],
    [[7, 8], [9, 1], [1, 1], [5, 2]],
    [[7, 8, 2], [9, 2, 1]] * 2,
    [[7, 8] * 7] * 4,  # longer than an output may be
]


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch):
    """So that a toy's vocabulary has groups, and its short outputs outgrow the first memory."""
    monkeypatch.setattr(grouped_top_k, "GROUP", 3)
    monkeypatch.setattr(decoding, "FIRST_STEPS", 2)


@pytest.fixture(scope="module")
def models(build, build_joined):
    """By name: this package's, fairseq's, one that copies, and several."""
    ftc = build(*"--encoder-blocks 1,1 --decoder-layers 2".split())
    learned = build(
        *"--encoder-blocks 1,2 --decoder-layers 1 --decoder-learned-pos".split(), seed=2
    )
    fairseqs = build("--decoder-layers", "1", arch="transformer")
    copying = build_joined("--copy-attention", "--copy-next", "--decoder-layers", "1")
    for model in (ftc, learned, fairseqs, copying):
        model.decoder.output_projection.register_forward_hook(_end_sooner)
    return {"ftc": [ftc], "fairseq": [fairseqs], "copy": [copying], "two": [ftc, learned]}


def _end_sooner(module, args, logits):
    """So that untrained models have preferences, and end before they must."""
    logits = 6 * logits
    logits[..., 2] = logits[..., 5:25].sum(dim=-1)
    return logits


class Waits(RuntimeError):
    """On a GPU the host would wait."""


class NoWaits(TorchDispatchMode):
    """Refuses operations whose result the host reads, or whose shape depends on data."""

    paused = False
    REFUSED = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal"}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.split("::")[1]
        indices = args[1] if name in ("index", "index_put", "index_put_") else []
        if NoWaits.paused:
            return func(*args, **(kwargs or {}))
        if name in self.REFUSED or any(i is not None and i.dtype is torch.bool for i in indices):
            raise Waits(name)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def without_waits(monkeypatch):
    """The steps of the search refuse to wait; making room, which is rare, may."""
    batch, steps = search_in_steps._Batch, decoding.BeamDecoding
    step_of, reserve_of = batch.step, steps.reserve

    def refusing(read):
        def refuse(tensor, *args, **kwargs):
            if not NoWaits.paused:
                raise Waits("the host reads a tensor")
            return read(tensor, *args, **kwargs)

        return refuse

    def step(self, number):
        with monkeypatch.context() as patch, NoWaits():
            for name in ("cpu", "item", "numpy", "tolist", "__bool__", "__int__", "__float__"):
                patch.setattr(torch.Tensor, name, refusing(getattr(torch.Tensor, name)))
            return step_of(self, number)

    def reserve(self, number):
        with monkeypatch.context() as patch:
            patch.setattr(NoWaits, "paused", True)
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


@pytest.mark.parametrize("name", ["ftc", "fairseq", "copy", "two"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_finds_what_fairseqs_loop_finds(
    build_generator, models, make_sample, without_waits, name, options
):
    generator = build_generator(models[name], True, **options)
    assert type(generator) is BeamGenerator
    sample = make_sample(LENGTHS)
    found = generator.generate(models[name], sample)
    assert_equal(found, SequenceGenerator._generate(generator, sample))
    with pytest.raises(Waits), NoWaits():
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


@pytest.mark.parametrize("name", ["ftc", "fairseq", "copy", "two"])
@pytest.mark.parametrize("options", OPTIONS[:7], ids=str)
def test_captured_steps_find_the_same(
    build_generator, models, make_sample, monkeypatch, name, options
):
    """With a graph for the CPU, which refuses what cannot be captured."""
    replays = []

    class Counted(Tape):
        def replay(self):
            replays.append(self)
            super().replay()

    monkeypatch.setattr(search_in_steps, "graph_class", lambda device: Counted)
    steps, results = [], search_in_steps._Log.results
    monkeypatch.setattr(
        search_in_steps._Log,
        "results",
        lambda self, generator: steps.append(self.used) or results(self, generator),
    )
    sample = make_sample(LENGTHS)
    generator = build_generator(models[name], True, **options)
    expected = generator.generate(models[name], sample)
    assert not replays
    monkeypatch.setenv(search_in_steps.VARIABLE, "1")
    assert_close(generator.generate(models[name], sample), expected)
    assert steps[0] == steps[1]
    captured = "no_repeat_ngram_size" not in options
    longest = max(len(h["tokens"]) for some in expected for h in some)
    assert bool(replays) == (captured and longest > 2)
    if len(replays) > 5:
        assert len(set(replays)) < len(replays), "each step was captured anew"


def test_steps_with_a_prefix_are_not_captured(build_generator, models, make_sample, monkeypatch):
    sample = make_sample(LENGTHS)
    generator = build_generator(models["ftc"], True)
    words = {"prefix_tokens": torch.arange(7, 17).expand(4, -1)}
    expected = generator.generate(models["ftc"], sample, **words)
    monkeypatch.setattr(search_in_steps, "graph_class", lambda device: Tape)
    monkeypatch.setenv(search_in_steps.VARIABLE, "1")
    assert_close(generator.generate(models["ftc"], sample, **words), expected)


def test_a_capture_that_fails_is_told_once(
    build_generator, models, make_sample, monkeypatch, caplog
):
    class Failing(Tape):
        @contextlib.contextmanager
        def capturing(self):
            with super().capturing():
                yield
            raise RuntimeError("CUDA error: operation not permitted.\nmore")

    sample = make_sample(LENGTHS)
    generator = build_generator(models["two"], True, min_len=6)
    expected = generator.generate(models["two"], sample)
    monkeypatch.setattr(search_in_steps, "graph_class", lambda device: Failing)
    monkeypatch.setenv(search_in_steps.VARIABLE, "1")
    assert_equal(generator.generate(models["two"], sample), expected)
    told = [record.message for record in caplog.records if "captured" in record.message]
    assert told == ["search steps are not captured: CUDA error: operation not permitted"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["ftc", "copy", "two"])
@pytest.mark.parametrize("options", [{}, {"beam_size": 2, "min_len": 4}], ids=str)
def test_on_a_gpu(build_generator, models, make_sample, monkeypatch, caplog, name, options):
    """fairseq's loop, steps without waits and captured steps agree, batch after batch."""
    own = copy.deepcopy(models[name])
    for model in own:
        model.cuda()
    generator = build_generator(own, True, **options)
    for lengths in (LENGTHS, (3, 7, 7, 2, 9)):
        sample = utils.move_to_cuda(make_sample(lengths))
        expected = SequenceGenerator._generate(generator, sample)
        monkeypatch.delenv(search_in_steps.VARIABLE, raising=False)
        assert_close(generator.generate(own, sample), expected)
        monkeypatch.setenv(search_in_steps.VARIABLE, "1")
        assert_close(generator.generate(own, sample), expected)
    assert not [record for record in caplog.records if "not captured" in record.message]


def assert_close(found, expected):
    for some, others in zip(found, expected, strict=True):
        assert [h["tokens"].tolist() for h in some] == [h["tokens"].tolist() for h in others]
        for a, b in zip(some, others):
            torch.testing.assert_close(a["positional_scores"], b["positional_scores"])
            torch.testing.assert_close(a["score"], b["score"])


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


def test_other_searches_keep_fairseqs_loop(build_generator, models, make_sample, dictionary):
    sample = make_sample((6, 6, 6))
    for options in (
        {"search_strategy": search.Sampling(dictionary)},
        {"search_strategy": search.DiverseBeamSearch(dictionary, 5, 0.5)},
        {"match_source_len": True},
    ):
        assert type(build_generator(models["ftc"], True, **options)) is SequenceGenerator
    generator = build_generator(models["ftc"], True)
    with pytest.raises(NotImplementedError, match="constraints"):
        generator.generate(models["ftc"], sample, constraints=torch.zeros(3, 1).long())
