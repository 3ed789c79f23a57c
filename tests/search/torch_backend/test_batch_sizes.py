"""Batches that are sized by memory, or halved when it is short, find what others find."""

import contextlib
import re

import numpy as np
import pytest
import torch
from fairseq import utils
from fairseq.trainer import Trainer

from fairseq_plugins.evaluate import model as of_evaluate
from fairseq_plugins.search import torch_backend
from fairseq_plugins.search.torch_backend import batch_sizes
from fairseq_plugins.search.torch_backend import generator as search_in_steps
from fairseq_plugins.search.torch_backend.batch_sizes import estimate_bytes, fill_by_memory
from fairseq_plugins.search.torch_backend.generator import LIMITS
from tests.search.torch_backend.conftest import assert_close
from tests.tape import Tape

LENGTHS = (5, 1, 9, 3, 7)
TINY, HUGE = 2, 1 << 40  # free bytes


@pytest.fixture
def searched(monkeypatch):
    """The number of sentences of each search."""
    sizes, run = [], search_in_steps._Batch.run

    def counted(batch):
        sizes.append(batch.real)
        return run(batch)

    monkeypatch.setattr(search_in_steps._Batch, "run", counted)
    return sizes


def test_fairseq_generate(toy_data, tiny_checkpoint, run_generate, searched, monkeypatch):
    def generate(free, *more):
        monkeypatch.setattr(batch_sizes, "free_bytes", lambda device: free)
        searched.clear()
        words = (toy_data.bin, "--path", tiny_checkpoint, "--beam", 3, "--max-len-b", 8, *more)
        lines = re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", run_generate(*words).output, re.M)
        return sorted((n, round(float(score), 4), text) for n, score, text in lines), [*searched]

    expected, usual = generate(0)
    assert len(expected) == sum(usual) > 1
    with monkeypatch.context() as patch:
        patch.setattr(torch_backend, "accelerate", lambda generator: generator)
        assert generate(0) == (expected, []), "fairseq's own search finds others"
    assert generate(TINY) == (expected, [1] * len(expected))
    assert generate(HUGE) == (expected, [len(expected)])
    for chosen in (("--batch-size", 2), ("--max-tokens", 60)):
        assert generate(TINY, *chosen) == generate(0, *chosen)
    # batches that depend on the memory of each GPU would lose sentences
    shares = [
        generate(free, "--num-shards", 2, "--shard-id", n) for n, free in ((0, TINY), (1, HUGE))
    ]
    assert sorted(shares[0][0] + shares[1][0]) == expected


def test_validation(toy_data, train_args, run_train, searched, monkeypatch, tmp_path):
    """A process's first batch of training, not of validation, stands for one that it lacks."""
    words = [*train_args, "--max-update", 2, "--validate-interval-updates", 1]
    words += ["--eval-bleu", "--eval-bleu-args", '{"beam": 2, "max_len_b": 9}']
    dummies, train_step = [], Trainer.train_step

    def spied(self, *given, **more):
        dummies.append(len(self._dummy_batch["id"]))
        return train_step(self, *given, **more)

    monkeypatch.setattr(Trainer, "train_step", spied)

    def train(name, free, *more):
        monkeypatch.setattr(batch_sizes, "free_bytes", lambda device: free)
        searched.clear()
        said = run_train(toy_data.bin, *words, "--save-dir", tmp_path / name, *more).output
        return re.findall(r"valid on .*? loss ([\d.]+) .*? bleu ([\d.]+)", said), [*searched]

    expected, usual = train("usual", 0, "--max-tokens-valid", 40)
    assert expected and len(usual) > 2
    dummies.clear()
    sentences = sum(usual) // len(expected)
    assert train("memory", HUGE) == (expected, [sentences] * len(expected))
    assert len(dummies) == len(expected) == 2 and dummies[0] == dummies[1] != sentences
    assert train("chosen", HUGE, "--max-tokens-valid", 40) == (expected, usual)


@pytest.mark.parametrize(
    "words, by_memory",
    [((), True), (("--max-tokens", "512"), False), (("--batch-size", "8"), False)],
)
def test_evaluate(tmp_path, monkeypatch, words, by_memory):
    made = {}
    monkeypatch.setattr(of_evaluate, "TrainedModel", lambda *given, **more: made.update(more))
    given = of_evaluate.parse_generation(["--beam", "5", *words])
    of_evaluate.open_with(given, [tmp_path], tmp_path, True)
    assert made["by_memory"] == by_memory


def test_all_sentences_that_fit(build_generator, models, monkeypatch):
    def fill(free, generator=None, **more):
        monkeypatch.setattr(batch_sizes, "free_bytes", lambda device: free)
        generator = generator or build_generator(models["two"], True, beam_size=4)
        return fill_by_memory(generator, lengths, steps, **more)

    lengths, steps = [5, 9, 2] * 400, [10, 12, 4] * 400
    assert fill(0) is None and fill(HUGE, build_generator(models["two"], False)) is None
    generator = build_generator(models["two"], True, beam_size=4)
    arrays = (np.array(x) for x in (lengths, steps, [0] * 1200))
    sizes = estimate_bytes(generator, *arrays)
    assert sizes[1] > sizes[0] > sizes[2] > 4 * 4 * generator.vocab_size
    found = fill(20 * int(sizes[1]))
    assert sorted(n for batch in found for n in batch) == list(range(1200))
    assert len(found[0]) == 10 and len(found[-2]) > 10  # half of the memory, and short ones
    assert {len(batch) for batch in fill(HUGE)} == {640, 560}  # 2,560 hypotheses
    assert max(len(batch) for batch in fill(20 * int(sizes[1]), scored=lengths)) < len(found[-2])


def test_processes_agree_on_the_smallest_memory(build_generator, models, monkeypatch):
    """They share the batches: with others, sentences would be lost."""
    monkeypatch.setattr(batch_sizes, "free_bytes", lambda device: HUGE)
    combine = {batch_sizes.dist.ReduceOp.MIN: min, batch_sizes.dist.ReduceOp.MAX: max}
    monkeypatch.setattr(
        batch_sizes.dist, "all_reduce", lambda room, op: room.fill_(combine[op](int(room), TINY))
    )
    generator = build_generator(models["ftc"], True)
    assert sorted(fill_by_memory(generator, [3, 4, 2], [5] * 3, processes=2)) == [[0], [1], [2]]
    generator.room = HUGE
    assert fill_by_memory(generator, [3, 4, 2, 5], [5] * 4, processes=2) == [[3, 1], [0, 2]]


@pytest.mark.parametrize("captures", [False, True])
@pytest.mark.parametrize("name", ["copy", "two"])
def test_a_batch_without_memory_is_halved(
    build_generator, models, make_sample, monkeypatch, searched, caplog, name, captures
):
    monkeypatch.setattr(search_in_steps, "graph_class", lambda device: Tape)
    sample = make_sample(LENGTHS)
    sample[LIMITS] = torch.tensor([9, 3, 12, 5, 7])
    words = {"prefix_tokens": torch.tensor([[7], [8], [9], [10], [1]])}
    generator = build_generator(models[name], True)
    generator.captures = captures
    expected = generator.generate(models[name], sample, **words)
    run = search_in_steps._Batch.run

    def limited(batch, most=2):
        if batch.real > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return run(batch)

    monkeypatch.setattr(search_in_steps._Batch, "run", limited)
    searched.clear()
    assert_close(generator.generate(models[name], sample, **words), expected)
    assert searched == [2, 1, 2]
    assert [record.message for record in caplog.records] == [
        "memory is short for 5 sentences: searching 3 at a time",
        "memory is short for 3 sentences: searching 2 at a time",
    ]
    monkeypatch.setattr(search_in_steps._Batch, "run", lambda batch: limited(batch, 0))
    with pytest.raises(torch.OutOfMemoryError):
        generator.generate(models[name], sample, **words)


@pytest.mark.parametrize("most", [3, 0])
def test_a_capture_without_memory_halves_its_batch(
    build_generator, models, make_sample, monkeypatch, searched, caplog, most
):
    """If not even one sentence can be captured, its steps are launched one by one."""

    class Limited(Tape):
        @contextlib.contextmanager
        def capturing(self):
            with super().capturing():
                yield
            if searched[-1] > most:
                try:
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
                except torch.OutOfMemoryError:
                    raise RuntimeError("CUDA error: operation failed") from None

    sample = make_sample(LENGTHS)
    generator = build_generator(models["ftc"], True)
    expected = generator.generate(models["ftc"], sample)
    monkeypatch.setattr(search_in_steps, "graph_class", lambda device: Limited)
    generator.captures = True
    searched.clear()
    assert_close(generator.generate(models["ftc"], sample), expected)
    assert searched[:2] == [5, 3] and generator.graphs.failed == (most == 0)
    told = {record.message.split(":")[0] for record in caplog.records}
    assert "search steps are not captured" not in told and told


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("captures", [False, True])
def test_the_estimate_is_not_too_low_on_a_gpu(
    build, build_generator, make_sample, monkeypatch, captures
):
    monkeypatch.setattr(search_in_steps, "LATE", 0)
    model = build("--decoder-layers", 6, "--decoder-embed-dim", 512, arch="transformer").cuda()
    generator = build_generator([model], True, max_len_b=60, min_len=60)
    generator.captures = captures
    sample = utils.move_to_cuda(make_sample([20] * 96))
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    generator.generate([model], sample)
    used = torch.cuda.max_memory_allocated() - before
    of_one = (np.array([n]) for n in (20, 60, 0))
    assert used <= 96 * int(estimate_bytes(generator, *of_one)[0])
