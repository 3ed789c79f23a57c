"""The loss on the validation set by captured forward passes; `Tape` stands for the graph."""

import contextlib
import json
import re
from unittest import mock

import pytest
import torch

from fairseq_plugins.data.packed_batches import Spec, pack
from fairseq_plugins.graphs import captured_step
from fairseq_plugins.graphs.captured_loss import CapturedLoss
from fairseq_plugins.losses import LabelSmoothedCrossEntropyFused, LabelSmoothedCrossEntropyRDrop
from tests.batches import PAD, TASK, assert_close
from tests.tape import Tape

SENTENCES = [((5, 1, 7), (7, 1, 5)), ((9, 2, 3), (3, 2, 9)), ((1, 1, 8), (2, 8, 1))]


@pytest.mark.parametrize("kind", [LabelSmoothedCrossEntropyFused, LabelSmoothedCrossEntropyRDrop])
@pytest.mark.parametrize("words", [("--dropout", "0.5"), ("--time-window", "3")], ids=str)
def test_replays_of_other_batches_equal_the_criterion(build, make_sample, kind, words):
    model, criterion = build(*words).eval(), kind(TASK, False, 0.1).eval()
    loss = CapturedLoss(model, criterion, Spec.make(PAD, 32, model.encoder.time_window, 2), Tape)
    samples = [make_sample(*sizes, seed=seed) for seed, sizes in enumerate(SENTENCES)]
    assert loss(pack(samples[0], loss.spec)) is None  # its shape may not come again
    for sample in samples[1:]:
        expected, size, log = criterion(model, sample)
        found = loss(pack(sample, loss.spec))
        assert_close(found[0], expected.detach(), "loss", 1e-6)
        assert found[1] == size and found[2]["nsentences"] == log["nsentences"] == 3
        assert float(found[2]["nll_loss"]) == pytest.approx(float(log["nll_loss"]), rel=1e-6)
    assert len(loss.captures) == 1
    assert loss(pack(make_sample((70,), (60,)), loss.spec)) is None


def test_a_capture_that_fails_is_told_once(build, make_sample, caplog):
    class Failing(Tape):
        @contextlib.contextmanager
        def capturing(self):
            yield
            raise torch.OutOfMemoryError("CUDA out of memory.")

    model, criterion = build().eval(), LabelSmoothedCrossEntropyFused(TASK, False, 0.1)
    loss = CapturedLoss(model, criterion, captured_step.make_spec(model), Failing)
    batch = pack(make_sample((5, 1), (2, 3)), loss.spec)
    assert [loss(batch) for _ in range(4)] == [None] * 4
    told = [record.message for record in caplog.records if "captured" in record.message]
    (line,) = told
    assert line.startswith("--cuda-graphs: capture of the loss on the validation set stopped")
    assert "after 0 shapes of batches: CUDA out of memory; if memory is short" in line


@pytest.mark.slow
def test_the_validations_of_a_training(toy_data, run_train, train_args, tmp_path, monkeypatch):
    """Three of them: the first one is fairseq's, the others replay."""
    replays = []
    monkeypatch.setattr(captured_step, "graph_class", lambda device: Tape)
    call = CapturedLoss.__call__

    def counted(loss, batch):
        found = call(loss, batch)
        replays.append(found is not None)
        return found

    monkeypatch.setattr(CapturedLoss, "__call__", counted)
    words = ("--cuda-graphs", "--cpu", "--max-update", 3, "--validate-interval-updates", 1)

    def train(folder):
        output = run_train(
            *(toy_data.bin, *train_args, *words, "--max-tokens-valid", 40, "--dropout", 0),
            *("--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 9}'),
            *("--log-format", "json", "--save-dir", tmp_path / folder),
        ).output
        lines = map(json.loads, re.findall(r"valid \| (\{.*\})", output))
        return [(line["valid_loss"], line["valid_bleu"], line["valid_bsz"]) for line in lines]

    found = train("captured")
    batches = len(replays) // 3
    assert len(found) == 3 and batches > 1
    assert sum(replays[:batches]) < batches and all(replays[batches:])
    monkeypatch.setattr(CapturedLoss, "add", mock.Mock(side_effect=RuntimeError("not here")))
    assert train("eager") == found
    assert not any(replays[3 * batches :])
