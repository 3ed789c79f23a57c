"""Repairs of command-line options."""

import re
import sys

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_plugins import compat
from fairseq_plugins.errors import ConfigurationError
from tests.conftest import USER_DIR

compat.apply()


def parsed(monkeypatch, *words):
    words = ["data", "--arch", "transformer"] + list(words)
    monkeypatch.setattr(sys, "argv", ["fairseq-train"] + words)
    return options.parse_args_and_arch(options.get_training_parser())


def test_cpu_starts_no_process_for_every_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert parsed(monkeypatch).distributed_world_size == 4
    assert parsed(monkeypatch, "--cpu").distributed_world_size == 1
    assert parsed(monkeypatch, "--cpu", "--distributed-world-size=3").distributed_world_size == 3


def test_bf16_means_a_tpu_only_with_tpu(monkeypatch):
    assert parsed(monkeypatch, "--bf16").tpu is False
    assert parsed(monkeypatch, "--memory-efficient-bf16").tpu is False
    assert parsed(monkeypatch, "--bf16", "--tpu").tpu is True
    assert parsed(monkeypatch).bf16 is False


def test_the_learning_rate_decays_until_the_last_update(monkeypatch):
    def total(*words):
        args = parsed(monkeypatch, "--lr-scheduler", "polynomial_decay", *words)
        return convert_namespace_to_omegaconf(args).lr_scheduler.total_num_update

    assert total("--max-update", "70") == 70
    assert total("--max-update", "70", "--total-num-update", "90") == 90
    with pytest.raises(ConfigurationError, match="--max-update N or --total-num-update N"):
        total()


def test_validation_without_a_task(tiny_checkpoint, toy_data, run_validate):
    words = [toy_data.bin, "--path", tiny_checkpoint, "--max-tokens", 400, "--no-progress-bar"]

    def loss(*more):
        return re.search(r"\| loss ([\d.]+)", run_validate(*words, *more).output).group(1)

    expected = loss()
    assert loss("--task", "translation") == expected
    for bpe in ("sentencepiece", "subword_nmt", "fastbpe"):  # without its file: it is not built
        assert loss("--bpe", bpe) == expected


def test_a_wrong_option_is_one_line_with_hydra_too(tmp_path, toy_data, run_process):
    (tmp_path / "wrong.yaml").write_text(
        f"common: {{user_dir: {USER_DIR}, cpu: true}}\n"
        f"task: {{_name: translation, data: {toy_data.bin}, source_lang: src, target_lang: tgt}}\n"
        "model: {_name: transformer_ftc, time_window: 1}\n"
        "criterion: {_name: cross_entropy}\n"
        "optimizer: {_name: adam}\n"
        "optimization: {update_freq: [1]}\n"
        "dataset: {max_tokens: 100}\n"
    )
    words = ["-W", "ignore", "-m", "fairseq_cli.hydra_train", "--config-dir", tmp_path]
    done = run_process([sys.executable, *words, "--config-name", "wrong"], cwd=tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stdout
    told = "error: --lr-scheduler is missing: give one, such as inv"
    assert done.stdout.splitlines()[-1].startswith(told)


def test_a_link_of_another_name_is_refused_in_one_line(toy_data, tmp_path, run_process):
    (tmp_path / "plugins").symlink_to(USER_DIR)
    words = ["--user-dir", tmp_path / "plugins", "--path", "none.pt"]
    ended = run_process([sys.executable, "-m", "fairseq_cli.generate", toy_data.bin, *words])
    assert ended.returncode == 1
    told = f"error: --user-dir {tmp_path / 'plugins'}: give the folder itself, or a link named"
    assert ended.stdout.splitlines()[-1].startswith(told)
