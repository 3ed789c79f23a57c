"""The first trials of the long run, and a check that it detects losses."""

import functools
import re
from collections import Counter

import pytest
import torch

from tests.faults import storm

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="processes are forked")


@pytest.mark.slow
def test_the_first_trials(capsys):
    counts = storm.storm(seconds=float("inf"), seed=2, trials=3)
    assert counts["trials"] == 3 and counts["tried"] >= 3
    assert counts["lost"] == 0, capsys.readouterr().out
    assert counts["survived"] + counts["rejected"] == counts["tried"]
    assert counts["survived"] > 0


@pytest.mark.slow
def test_losses_are_reported(capsys, monkeypatch):
    """A training that loses its checkpoints and starts over with another seed is lost."""

    def forget(trial):
        trial.start()
        for path in trial.save_dir.glob("*.pt"):
            path.unlink()
        for path in trial.records[1].iterdir():
            path.unlink()
        trial.words += ["--seed", 12345]
        return Counter({trial.finish(): 1})

    monkeypatch.setattr(storm, "FAULTS", (forget,))
    monkeypatch.setattr(storm, "storm", functools.partial(storm.storm, trials=1))
    assert storm.main(["inf", "7"]) == 1
    output = capsys.readouterr().out
    assert re.search(r"lost in trial 0 of seed 7, \d process.*--arch .*: other ", output)
    assert "tried 1, survived 0, rejected 0, lost 1" in output
