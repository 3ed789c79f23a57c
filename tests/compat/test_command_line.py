"""Options that fairseq reads wrongly."""

import re
import sys

import pytest
import torch
from fairseq import options

from fairseq_plugins import compat

compat.apply()


def parsed(monkeypatch, *words):
    words = ["data", "--arch", "transformer"] + list(words)
    monkeypatch.setattr(sys, "argv", ["fairseq-train"] + words)
    return options.parse_args_and_arch(options.get_training_parser())


def test_bf16_means_a_tpu_only_with_tpu(monkeypatch):
    assert parsed(monkeypatch, "--bf16").tpu is False
    assert parsed(monkeypatch, "--memory-efficient-bf16").tpu is False
    assert parsed(monkeypatch, "--bf16", "--tpu").tpu is True
    assert parsed(monkeypatch).bf16 is False


def test_cpu_starts_no_process_for_every_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert parsed(monkeypatch).distributed_world_size == 4
    assert parsed(monkeypatch, "--cpu").distributed_world_size == 1
    assert parsed(monkeypatch, "--cpu", "--distributed-world-size=3").distributed_world_size == 3


def test_validation_without_a_task(tiny_checkpoint, toy_data, run_validate):
    words = [toy_data.bin, "--path", tiny_checkpoint, "--max-tokens", 400, "--no-progress-bar"]

    def loss(*more):
        return re.search(r"\| loss ([\d.]+)", run_validate(*words, *more).output).group(1)

    assert loss() == loss("--task", "translation")


def test_fp16_without_a_gpu_is_a_clear_error(toy_data, tmp_path, run_train, train_args):
    with pytest.raises(ValueError, match="--fp16 needs a GPU: leave it out, or use --bf16"):
        run_train(toy_data.bin, *train_args, "--fp16", "--cpu", "--save-dir", tmp_path)


def test_amp_without_a_gpu_says_that_it_does_nothing(toy_data, tmp_path, run_train, train_args):
    words = [toy_data.bin, *train_args, "--cpu", "--max-update", 2, "--no-save"]
    plain = run_train(*words, "--save-dir", tmp_path).output
    amp = run_train(*words, "--save-dir", tmp_path, "--amp").output
    assert "--amp has no effect without a GPU" in amp
    assert "--amp" not in plain
    losses = [re.findall(r"train_inner .*? loss=([\d.]+)", text) for text in (plain, amp)]
    assert losses[0] == losses[1] and len(losses[0]) == 2
