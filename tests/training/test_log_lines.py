"""Short progress lines from fairseq's log."""

import time

from fairseq_plugins import cpu
from fairseq_plugins.compat import bf16
from fairseq_plugins.training.log_lines import Progress


def summarise(log, updates):
    lines = []
    progress = Progress(lines.append, updates)
    for line in log:
        progress.line(line)
    return lines


def test_reports_of_a_real_training(run_train, toy_data, train_args, tmp_path):
    words = [toy_data.bin, *train_args, "--save-dir", tmp_path, "--log-format", "simple"]
    first = run_train(*words, "--max-update", 4, "--log-interval", 2)
    lines = summarise(first.output.splitlines(), updates=4)
    steps = [line.split()[1] for line in lines if "train nll" in line]
    assert steps == ["2/4", "4/4"]
    assert any(line.startswith("update 4/4  valid nll ") for line in lines)
    assert not any("resumed" in line for line in lines)

    second = run_train(*words, "--max-update", 6, "--log-interval", 2)
    lines = summarise(second.output.splitlines(), updates=6)
    assert lines[1] == "resumed from update 4"
    assert lines[2].startswith("update 6/6  train nll ")


def test_a_training_that_has_ended_says_so():
    told = "nothing left to train: 3 validations in a row were no better, --patience is 3"
    lines = summarise([f"2026-01-01 | INFO | fairseq_plugins.compat.resuming | {told}"], updates=9)
    assert lines == [told]


def test_time_left_counts_from_where_this_run_began():
    line = "train_inner | epoch 001: 1 / 9 loss=3, nll_loss={}, ppl=8, num_updates={}, lr=1"
    lines = summarise([line.format(2.5, n) for n in (100, 200, 300)], updates=300)
    assert lines[0] == "update 100/300  train nll 2.5"
    assert lines[2] == "update 300/300  train nll 2.5  about 0 s left"


def test_a_criterion_without_label_smoothing_has_only_a_loss():
    log = [
        "train_inner | epoch 001: 1 / 9 loss=3.5, ppl=8, wps=2, num_updates=50, lr=1",
        "valid on 'valid' subset | loss 2.25 | ppl 8 | wps 1 | num_updates 50",
    ]
    assert summarise(log, updates=0) == ["update 50  train nll 3.5", "update 50  valid nll 2.25"]


def test_scores_of_valid_are_told():
    valid = "valid on 'valid' subset | nll_loss 2.25 | {} | wps 1 | num_updates 50 | best_{}"
    for scores, told in (
        ("bleu 20.1", "bleu 20.1"),
        ("rouge1 31.2 | rouge2 9 | rougeL 20 | rougeLsum 28.4", "rouge1 31.2  rougeLsum 28.4"),
    ):
        lines = summarise([valid.format(scores, scores.split(" | ")[-1])], updates=0)
        assert lines == [f"update 50  valid nll 2.25  {told}"]


def test_lines_are_limited_in_time_and_hours_give_the_end(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    line = "train_inner | epoch 001: 1 / 9 loss=3, nll_loss=2.5, num_updates={}, lr=1"
    said = []
    progress = Progress(said.append, updates=400, seconds=20)
    for update, moment in ((100, 1000.0), (150, 1001.0), (200, 1100.0)):
        now[0] = moment
        progress.line(line.format(update))
    assert said == [
        "update 100/400  train nll 2.5",
        "update 200/400  train nll 2.5  about 3 min left",
    ]
    said.clear()
    progress = Progress(said.append, updates=0, hours=90 / 3600)
    progress.line(line.format(7))
    progress.until += 3 * 3600
    progress.line(line.format(8))
    assert said == [
        "update 7  train nll 2.5  about 90 s left",
        "update 8  train nll 2.5  about 3 h 2 min left",
    ]


def test_no_time_is_estimated_from_a_limit_that_was_used_before():
    line = "train_inner | epoch 001: 1 / 9 loss=3, nll_loss=2.5, num_updates={}, lr=1"
    said = []
    progress = Progress(said.append, updates=0, hours=10)
    progress.line("Loaded checkpoint runs/a/checkpoint_last.pt (epoch 2 @ 5000 updates)")
    progress.line(line.format(5100))
    assert said == ["resumed from update 5,000", "update 5,100  train nll 2.5"]


def test_fine_tuning_starts_from_a_model(run_train, toy_data, train_args, tmp_path):
    words = [toy_data.bin, *train_args, "--log-format", "simple", "--max-update", 1]
    run_train(*words, "--save-dir", tmp_path / "first")
    model = tmp_path / "first" / "checkpoint_last.pt"
    second = run_train(*words, "--save-dir", tmp_path / "second", "--finetune-from-model", model)
    parameters, begins, *_ = summarise(second.output.splitlines(), updates=1)
    assert parameters.startswith("parameters: ") and begins == f"starts from {model}"


def test_a_limit_counts_from_the_start_of_a_fine_tuning():
    line = "train_inner | epoch 001: 1 / 9 loss=3, nll_loss=2.5, num_updates={}, lr=1"
    said = []
    progress = Progress(said.append, updates=0, hours=90 / 3600)
    progress.line("Loaded checkpoint runs/a/checkpoint_best.pt (epoch 2 @ 0 updates)")
    progress.line(line.format(7))
    assert said[0] == "starts from runs/a/checkpoint_best.pt"
    assert said[1].endswith("s left"), said


def test_slow_arithmetic_is_told(caplog, monkeypatch):
    monkeypatch.setattr(cpu, "has_bf16", lambda: False)
    bf16.warn_if_emulated()
    (told,) = summarise([f"2026-01-01 | WARNING | bf16 | {caplog.messages[-1]}"], updates=9)
    assert told.startswith("--bf16 is slow here") and told.endswith("without --bf16")


def test_bleu_and_out_of_memory_are_reported():
    log = [
        "valid on 'valid' subset | loss 2.25 | nll_loss 1.5 | bleu 12.34 | num_updates 5000",
        "WARNING: OOM: Ran out of memory with exception: CUDA",
    ]
    valid, memory = summarise(log, updates=0)
    assert valid == "update 5,000  valid nll 1.5  bleu 12.34"
    assert summarise([log[0].replace("'valid'", "'test'")], updates=0) == [
        valid.replace("valid", "test")
    ]
    assert "--tokens-per-process" in memory


def test_a_classifier_has_accuracy_and_a_loss_a_text():
    prefix = "2024-01-01 | INFO | "
    log = [
        prefix
        + "train_inner | epoch 001: 5 / 10 loss=0.9, nll_loss=0.02, accuracy=51.5, num_updates=5",
        prefix
        + "valid on 'valid' subset | loss 0.7 | nll_loss 0.01 | accuracy 62.5 | num_updates 5",
    ]
    lines = summarise(log, updates=10)
    assert lines[0].startswith("update 5/10  train loss 0.9")
    assert lines[1] == "update 5/10  valid loss 0.7  accuracy 62.5"
