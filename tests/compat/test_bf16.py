"""`--bf16` without a TPU, on CPUs with and without instructions for it."""

import sys

import pytest
from fairseq import options

from fairseq_plugins import compat, cpu
from fairseq_plugins.errors import ConfigurationError

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


def test_bf16_and_fp16_exclude_each_other(monkeypatch):
    with pytest.raises(ConfigurationError, match="--bf16 and --fp16 cannot be combined"):
        parsed(monkeypatch, "--bf16", "--fp16")


@pytest.mark.parametrize("supported", [True, False])
def test_one_line_says_where_bf16_is_emulated(
    supported, toy_data, tmp_path, run_train, train_args, monkeypatch
):
    monkeypatch.setattr(cpu, "has_bf16", lambda: supported)
    words = [toy_data.bin, *train_args, "--cpu", "--bf16", "--max-update", 2, "--no-save"]
    output = run_train(*words, "--save-dir", tmp_path).output
    assert output.count("--bf16 is slow here") == (0 if supported else 1)
    assert "done training" in output
