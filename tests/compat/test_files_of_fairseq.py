"""What fairseq 0.12.2 wrote still loads, resumes and gives the same text."""

import json
import re
import shutil

import pytest
from fairseq.trainer import Trainer

from tests.conftest import ROOT, load, unpack
from tests.faults.training import difference


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The files; see `fixtures/README.md`."""
    unpack(ROOT / "tests/fixtures/fairseq_0.12.2.tar.xz", tmp_path)
    monkeypatch.chdir(tmp_path)
    return json.loads((tmp_path / "expected.json").read_text(encoding="utf-8"))


def test_a_training_resumes(kept, tmp_path, run_train, monkeypatch):
    """With the state of the checkpoint to the bit, and nearly the same losses."""
    checkpoint, updates, train_step = load(tmp_path / "run"), [], Trainer.train_step

    def record(self, samples, *args, **kwargs):
        number = self.get_num_updates()
        if not updates:
            state = {
                "optimizer_history": [{"num_updates": number}],
                "model": self.get_model().state_dict(),
                "last_optimizer_state": self.optimizer.state_dict(),
            }
            for one, other in ((state, checkpoint), (checkpoint, state)):
                for name in set(one["model"]) - set(other["model"]):  # buffers that hold nothing
                    del one["model"][name]
            assert difference(state, checkpoint) == ""
        result = train_step(self, samples, *args, **kwargs)
        ids = {i for sample in samples for i in sample["id"].tolist()}
        updates.append([number, ids, sum(log["loss"] for log in self.losses)])
        return result

    reduce = Trainer._reduce_and_log_stats

    def reduce_and_log_stats(self, outputs, *args, **kwargs):
        self.losses = outputs
        return reduce(self, outputs, *args, **kwargs)

    monkeypatch.setattr(Trainer, "train_step", record)
    monkeypatch.setattr(Trainer, "_reduce_and_log_stats", reduce_and_log_stats)
    shutil.copytree("run", "further")
    run_train(*kept["words"])
    assert len(updates) == len(kept["updates"]) == 7
    for (number, ids, loss), (expected, others, before) in zip(updates, kept["updates"]):
        assert number == expected
        # its torch and numpy put sentences of equal length in another order, so that some are in
        # other batches, and dropout hits other words
        assert len(ids & set(others)) >= 0.9 * max(len(ids), len(others))
        assert float(loss) == pytest.approx(before, rel=0.2)


def test_a_model_writes_the_same(kept, run_generate):
    words = ("--path", "run/checkpoint_last.pt", "--beam", 5, "--cpu")
    output = run_generate("data", "--task", "translation", *words).output
    found = {int(n): text for n, text in re.findall(r"^H-(\d+)\t\S+\t(.*)$", output, re.M)}
    assert [found[number] for number in sorted(found)] == kept["texts"]
