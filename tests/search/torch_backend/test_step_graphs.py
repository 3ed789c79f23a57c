"""Captured search steps find what fairseq's loop finds, and one graph serves many batches."""

import collections
import contextlib
import copy
import random
import threading

import pytest
import torch
from fairseq import utils
from fairseq.search import Sampling
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment

from fairseq_plugins.search.torch_backend import accelerate, decoding, step_graphs
from fairseq_plugins.search.torch_backend import generator as search_in_steps
from fairseq_plugins.search.torch_backend.generator import LIMITS
from fairseq_plugins.search.torch_backend.step_graphs import bucket
from tests.batches import half
from tests.search.torch_backend.conftest import assert_close
from tests.search.torch_backend.test_generator import LENGTHS, OPTIONS, PREFIXES
from tests.search.torch_backend.test_unknown import make_batch
from tests.tape import Launches, Tape


class Counted(Tape):
    """Counts captures and replays."""

    made: list["Counted"] = []
    replays = 0

    def __init__(self):
        super().__init__()
        self.made.append(self)

    def replay(self):
        Counted.replays += 1
        super().replay()


@pytest.fixture(autouse=True)
def graphs(small_sizes, monkeypatch):
    """Graphs for the CPU, which refuse what cannot be captured."""
    monkeypatch.setattr(search_in_steps, "graph_class", lambda device: Counted)
    Counted.made.clear()
    Counted.replays = 0


def run(generator, models, sample, captures, **words):
    generator.captures = captures
    torch.manual_seed(1)
    return generator.generate(models, sample, **words)


@pytest.mark.parametrize(
    "name, options",
    [
        *half(("fairseq", "copy", "two"), OPTIONS),
        *(("ftc", {"beam_size": beam}) for beam in (1, 2, 3, 4, 6, 7, 8)),
    ],
    ids=str,
)
def test_replays_find_what_fairseq_finds(build_generator, models, make_sample, name, options):
    sample, models = make_sample(LENGTHS), models[name]
    generator = build_generator(models, True, **options)
    found = run(generator, models, sample, True)
    assert_close(found, run(generator, models, sample, False))
    if name != "copy" or "temperature" not in options:  # fairseq's is that of generated words alone
        plain = build_generator(models, False, **options)
        # fairseq's attention computes in float32
        assert_close(found, plain.generate(models, sample), rtol=1e-5, atol=1e-5)
    longest = max(len(h["tokens"]) for some in found for h in some)
    assert Counted.replays >= longest - 1 > 0
    captured = len(Counted.made)
    assert_close(run(generator, models, sample, True), found)
    assert len(Counted.made) == captured < Counted.replays


@pytest.mark.parametrize(
    "prefix, options", half(PREFIXES, [{}, {"min_len": 7}, {"no_repeat_ngram_size": 2}]), ids=str
)
def test_prefixes(build_generator, models, make_sample, prefix, options):
    sample, models = make_sample(LENGTHS), models["two"]
    words = {"prefix_tokens": torch.tensor(prefix), "bos_token": 4}
    generator = build_generator(models, True, **options)
    expected = run(generator, models, sample, False, **words)
    assert_close(run(generator, models, sample, True, **words), expected)
    assert Counted.replays > 2


@pytest.mark.parametrize("prefix", [None, [[48], [3], [1], [7]]])
def test_unknown_subwords(build_generator, models, make_sample, prefix):
    sample, _ = make_batch(make_sample, models["copy"][0].decoder.dictionary)
    words = {} if prefix is None else {"prefix_tokens": torch.tensor(prefix)}
    generator = build_generator(models["copy"], True)
    expected = run(generator, models["copy"], sample, False, **words)
    assert_close(run(generator, models["copy"], sample, True, **words), expected)
    assert Counted.replays > 2


def test_one_capture_serves_batches_of_other_lengths(
    build_generator, models, make_sample, monkeypatch
):
    """Of up to 12 sentences and 24 tokens, with limits of their own, and in any order.

    Sentences leave a batch when a bucket of half its size is enough for the others.
    """
    draw, left, keep = random.Random(1), [], search_in_steps._Batch.keep

    def kept(batch, sentences, *more):
        if batch.graphs is not None:
            left.append((batch.sentences, len(sentences)))
        return keep(batch, sentences, *more)

    monkeypatch.setattr(search_in_steps._Batch, "keep", kept)
    generator = build_generator(models["two"], True, max_len_b=30)
    kinds = set()
    for number in range(20):
        lengths = [draw.randint(17, 23) for _ in range(draw.randint(9, 12))]
        sample = make_sample(lengths, seed=number)
        sample[LIMITS] = torch.tensor([draw.randint(1, 12) for _ in lengths])
        kinds.add((len(lengths), max(lengths)))
        expected = run(generator, models["two"], sample, False)
        assert_close(run(generator, models["two"], sample, True), expected)
    assert len(kinds) > 4
    # 12, 6, 3, 2 and 1 sentences; caches of 2, 4, 8 and 16 steps
    assert len(Counted.made) <= 20 < Counted.replays / 5
    assert len(left) > 20 and all(2 * new <= old and new == bucket(new) for old, new in left)
    memory = generator.graphs.memory.untyped_storage().data_ptr()
    own = [x for _, tensors in generator.graphs.graphs.values() for x in tensors]
    assert sum(x.untyped_storage().data_ptr() == memory for x in own) > len(own) / 2


def test_buckets_are_few_and_close():
    assert [bucket(n) for n in range(1, 10)] == [1, 2, 3, 4, 6, 6, 8, 8, 12]
    assert len({bucket(n) for n in range(1, 1025)}) == 20
    assert [bucket(n, 16) for n in (1, 16, 17, 30)] == [16, 16, 24, 32]
    assert all(n <= bucket(n) < 1.5 * n for n in range(1, 2000))


def test_captures_begin_anew_when_a_parameter_moves(build_generator, models, make_sample):
    model, sample = copy.deepcopy(models["fairseq"][0]), make_sample(LENGTHS)
    generator = build_generator([model], True)
    run(generator, [model], sample, True)
    captured = len(Counted.made)
    with torch.no_grad():  # as training changes them
        for p in model.parameters():
            p.mul_(1.1)
    expected = run(generator, [model], sample, False)
    assert_close(run(generator, [model], sample, True), expected)
    for p in model.parameters():
        p.data = p.data * 0.9
    expected = run(generator, [model], sample, False)
    before = len(Counted.made)
    assert_close(run(generator, [model], sample, True), expected)
    assert captured > 0 and len(Counted.made) > before


def test_the_oldest_captures_are_dropped(build_generator, models, make_sample, monkeypatch):
    monkeypatch.setattr(step_graphs, "MOST", 2)
    generator = build_generator(models["ftc"], True)
    for lengths in (LENGTHS, (20, 3), (1,), LENGTHS):
        sample = make_sample(lengths)
        expected = run(generator, models["ftc"], sample, False)
        assert_close(run(generator, models["ftc"], sample, True), expected)
    assert len(generator.graphs.graphs) == 2 < len(Counted.made)
    generator.graphs.drop()  # as when training needs the memory
    assert generator.graphs.memory is None and not generator.graphs.graphs
    assert_close(run(generator, models["ftc"], sample, True), expected)


@pytest.mark.parametrize(
    "kind, told",
    [
        ("sampling", "Sampling"),
        ("length", "a language model, or --match-source-len"),
        ("model", "this OtherTransformer is decoded by fairseq"),
        ("alignment", "SequenceGeneratorWithAlignment"),
        ("beam", None),
    ],
)
def test_what_stays_eager_is_told_in_one_line(
    build_generator, build, dictionary, models, monkeypatch, caplog, kind, told
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    caplog.set_level("INFO")
    model = models["fairseq"][0]
    if kind == "model":
        model = build("--decoder-layers", 1, arch="transformer")
        model.__class__ = type("OtherTransformer", (type(model),), {})
    if kind == "alignment":
        accelerate(SequenceGeneratorWithAlignment([model], dictionary))
    else:
        options = {"search_strategy": Sampling(dictionary)} if kind == "sampling" else {}
        build_generator([model], True, match_source_len=kind == "length", **options)
    lines = [record.message for record in caplog.records if "captured" in record.message]
    assert lines == ([f"search steps are not captured: {told}"] if told else [])


def test_a_search_at_the_same_time_is_not_captured(build_generator, models, make_sample):
    """Both would use the same memory."""
    sample = make_sample(LENGTHS)
    generator = build_generator(models["ftc"], True)
    expected = run(generator, models["ftc"], sample, True)
    replays, found = Counted.replays, []
    with generator.graphs.lock:
        thread = threading.Thread(
            target=lambda: found.append(generator.generate(models["ftc"], sample))
        )
        thread.start()
        thread.join(1200)
    assert_close(found[0], expected)
    assert Counted.replays == replays
    assert_close(generator.generate(models["ftc"], sample), expected)
    assert Counted.replays == 2 * replays


def test_the_variable_turns_captures_off(build_generator, models, make_sample, monkeypatch):
    generator = build_generator(models["ftc"], True)
    for value, captures in (("0", False), ("1", True), (None, True)):
        if value is None:
            monkeypatch.delenv(search_in_steps.VARIABLE)
        else:
            monkeypatch.setenv(search_in_steps.VARIABLE, value)
        Counted.replays = 0
        generator.generate(models["ftc"], make_sample(LENGTHS))
        assert bool(Counted.replays) == captures


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
    expected = run(generator, models["two"], sample, False)
    monkeypatch.setattr(search_in_steps, "graph_class", lambda device: Failing)
    for _ in range(2):
        assert_close(run(generator, models["two"], sample, True), expected)
    told = [record.message for record in caplog.records if "captured" in record.message]
    assert told == ["search steps are not captured: CUDA error: operation not permitted"]


# --- kernels ---


def test_a_step_launches_fewer_kernels_than_fairseqs(
    build, build_generator, make_sample, monkeypatch
):
    """Of fairseq's transformer with 6 layers; fused attention counts once, as on a GPU."""
    monkeypatch.setattr(decoding, "is_on_gpu", lambda x: True)
    monkeypatch.setattr(decoding, "FIRST_STEPS", 32)
    model, sample = build("--decoder-layers", 6, arch="transformer"), make_sample(LENGTHS)

    def count(generator):
        counts = []
        for steps in (8, 9):
            generator.max_len_a, generator.max_len_b, generator.min_len = 0, steps, steps
            with Launches() as launches, torch.no_grad():
                generator.generate([model], sample)
            counts.append(collections.Counter(launches.names))
        return counts[1] - counts[0]

    accelerated = build_generator([model], True)
    accelerated.captures = False
    ours, fairseqs = count(accelerated), count(build_generator([model], False))
    assert ours.total() <= 160 < 230 < fairseqs.total(), (ours, fairseqs)
    assert ours["clone"] <= 1 and ours["addmm"] == 36, ours
    run(accelerated, [model], sample, True)
    captured = Counted.made[-1].kernels
    assert len(captured) <= 180, collections.Counter(captured)


@pytest.mark.parametrize("name", ["fairseq", "copy", "two"])
@pytest.mark.parametrize("captures", [False, True])
def test_one_product_for_queries_keys_and_values(
    build_generator, models, make_sample, monkeypatch, name, captures
):
    sample, options = make_sample(LENGTHS), {"beam_size": 3, "no_repeat_ngram_size": 3}
    generator = build_generator(models[name], True, **options)
    expected = run(generator, models[name], sample, False)
    monkeypatch.setattr(decoding, "is_on_gpu", lambda x: True)
    with Launches() as launches:
        found = run(generator, models[name], sample, captures)
    assert_close(found, expected)
    assert "addmm" in launches.names


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["ftc", "copy", "two"])
@pytest.mark.parametrize(
    "options", [{}, {"beam_size": 2, "min_len": 4}, {"no_repeat_ngram_size": 2}], ids=str
)
def test_on_a_gpu(build_generator, models, make_sample, monkeypatch, caplog, name, options):
    """fairseq's loop, steps without waits and captured steps agree, batch after batch."""
    monkeypatch.undo()  # the graphs of the CPU
    own = copy.deepcopy(models[name])
    for model in own:
        model.cuda()
    generator = build_generator(own, True, **options)
    for lengths in (LENGTHS, (3, 7, 7, 2, 9), (2, 8, 8, 8)):
        sample = utils.move_to_cuda(make_sample(lengths))
        expected = SequenceGenerator._generate(generator, sample)
        assert_close(run(generator, own, sample, False), expected)
        assert_close(run(generator, own, sample, True), expected)
    assert generator.graphs.graphs
    assert not [record for record in caplog.records if "not captured" in record.message]
