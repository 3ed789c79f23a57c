"""What is read from training logs."""

import pytest

from fairseq_plugins.train.training_log import read_log
from tests.lab.reproduction.conftest import log_line

START = ["# 2026-01-01 here\n", "# python -m fairseq_cli.train data\n"]


def test_a_start_that_resumes_nothing_begins_the_log_anew():
    """The one before died before its first checkpoint, perhaps with other options."""
    valid = "| valid | epoch 001 | valid on 'valid' subset | nll_loss {} | num_updates 20\n"
    dead = [*START, log_line(9, 10), log_line(9, 20), valid.format(7), log_line(8, 30)]
    living = [*START, log_line(1, 10), log_line(2, 20), valid.format(5)]
    log = read_log(dead + living)
    assert log == read_log(living) and log.step_seconds == pytest.approx([2], rel=1e-3)
    assert [each["nll_loss"] for each in log.valid] == [5]
    begins = "| trainer | Loaded checkpoint {} (epoch 1 @ {} updates)\n"
    model, own = begins.format("first/checkpoint_best.pt", 0), begins.format("x.pt", 20)
    assert read_log([*dead, *START, model, *living[2:]]).step_seconds == log.step_seconds
    assert len(read_log([*dead, *START, own, *living[2:]]).step_seconds) == 2


def test_of_several_validation_subsets_the_first_counts():
    line = "| x | epoch 001 | valid on '{}' subset | nll_loss {} | bleu {} | num_updates 20\n"
    lines = [*START, line.format("valid", 2.5, 30), line.format("test", 2.25, 31)]
    found = {"nll_loss": 2.5, "bleu": 30, "num_updates": 20}
    assert [dict(each, **found) for each in read_log(lines).valid] == read_log(lines).valid
    assert len(read_log(lines).valid) == 1


def test_time_of_an_update_leaves_out_what_is_no_training():
    lines = ["# 2026-01-01 here\n", "# python -m fairseq_cli.train data\n"]
    lines += [log_line(9, 10), log_line(3, 20)]  # in the warm-up
    lines += [log_line(1, 30)]
    lines += ['| fairseq_cli.train | begin validation on "valid" subset\n']
    lines += [log_line(10, 40)]  # validation is in it
    lines += [log_line(2, 50)]
    lines += ["| fairseq_cli.train | end of epoch 1 (average epoch stats below)\n"]
    lines += ["| train | epoch 001 | train | loss 9 | nll_loss 8 | num_updates 50 | lr 1\n"]
    # killed, and resumed from update 40: its first 20 updates are a warm-up again
    lines += ["# 2026-01-01 here\n", "# python -m fairseq_cli.train data\n"]
    lines += ["| trainer | Loaded checkpoint checkpoint_last.pt (epoch 1 @ 40 updates)\n"]
    lines += [log_line(9, 50), log_line(9, 60), log_line(8, 70), log_line(5, 80)]
    log = read_log(lines, skip=20)
    assert log.step_seconds == pytest.approx([1, 2, 8, 5], rel=1e-3)
    assert log.updates_per_epoch == 50 and log.updates == 80
    assert read_log(lines[:3], skip=0) == ([], 50, 10, 1, [])
    assert read_log([], skip=0) == ([], None, 0, 0, [])
    fast = log_line(1, 30).replace("wps=3000.0", "wps=1.5e+06")
    assert read_log([log_line(1, 20), fast]).step_seconds[-1] == pytest.approx(0.002)
