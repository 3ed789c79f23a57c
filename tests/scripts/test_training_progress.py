"""The short lines made of fairseq's own log."""

from scripts.training_progress import summarise


def test_reports_of_a_real_training(run_train, toy_data, train_args, tmp_path):
    words = [toy_data.bin, *train_args, "--save-dir", tmp_path, "--log-format", "simple"]
    first = run_train(*words, "--max-update", 4, "--log-interval", 2)
    lines = list(summarise(first.output.splitlines(), updates=4))
    steps = [line.split()[1] for line in lines if "train nll" in line]
    assert steps == ["2/4", "4/4"]
    assert any(line.startswith("  update 4/4  valid nll ") for line in lines)
    assert not any("going on" in line for line in lines)

    second = run_train(*words, "--max-update", 6, "--log-interval", 2)
    lines = list(summarise(second.output.splitlines(), updates=6))
    assert lines[0] == "  going on from update 4"
    assert lines[1].startswith("  update 6/6  train nll ")


def test_time_left_counts_from_where_this_run_began():
    line = "train_inner | epoch 001: 1 / 9 loss=3, nll_loss={}, ppl=8, num_updates={}, lr=1"
    lines = list(summarise([line.format(2.5, n) for n in (100, 200, 300)], updates=300))
    assert lines[0] == "  update 100/300  train nll 2.5"
    assert lines[2] == "  update 300/300  train nll 2.5  about 0 s left"


def test_a_criterion_without_label_smoothing_has_only_a_loss():
    log = [
        "train_inner | epoch 001: 1 / 9 loss=3.5, ppl=8, wps=2, num_updates=50, lr=1",
        "valid on 'valid' subset | loss 2.25 | ppl 8 | wps 1 | num_updates 50",
    ]
    assert list(summarise(log, updates=0)) == [
        "  update 50  train nll 3.5",
        "  update 50  valid nll 2.25",
    ]
