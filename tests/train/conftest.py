"""What the tests of trainings share: plans of commands, machines with GPUs, and documents."""

import pytest
import torch

from fairseq_plugins.cli import train as command
from fairseq_plugins.train import planning
from tests.conftest import binarise

BY_LOSS = "task: {eval_bleu: false}\ncheckpoint: {best_checkpoint_metric: loss}\n"


def plan(data, *words, recipe="transformer_ftc"):
    return planning.plan(command.read_request([recipe, str(data), *map(str, words)]))


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    """Without --save-dir a training is in runs/, where the checkout may have one."""
    monkeypatch.chdir(tmp_path)


def value(words, option):
    """The last value of an option on a command line, which is the one that counts."""
    return [after for word, after in zip(words, words[1:]) if word == option][-1]


def gpus(monkeypatch, count, capability=(8, 0)):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda gpu: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(torch.version, "hip", None)


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Documents of up to 51 tokens with summaries of 4, one dictionary for both."""
    folder = tmp_path_factory.mktemp("documents")
    for split, lengths in (("train", [20, 30, 50, 12] * 5), ("valid", [9, 14])):
        for side, limit in (("source", 50), ("target", 3)):
            lines = [" ".join("abcdefg"[i % 7] for i in range(min(n, limit))) for n in lengths]
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n")
    return binarise(folder, folder / "data", "--joined-dictionary")
