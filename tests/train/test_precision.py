"""The precision of a training, on each kind of machine and when it resumes."""

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.system import cpu
from fairseq_plugins.train.fairseq_program import words_of
from fairseq_plugins.train.run_folder import Run
from tests.train.conftest import gpus, plan, value


@pytest.mark.parametrize("has_bf16", [True, False])
def test_the_fastest_precision_of_a_cpu(monkeypatch, toy_data, has_bf16):
    gpus(monkeypatch, 0)
    monkeypatch.setattr(cpu, "has_bf16", lambda: has_bf16)
    command = plan(toy_data.bin, "--precision", "fastest").command
    assert ("--bf16" in command) == has_bf16 and "--fp16" not in command


@pytest.mark.parametrize("capability, flag", [((7, 0), "--fp16"), ((8, 0), "--bf16")])
def test_one_gpu_of_two_and_its_precision(monkeypatch, toy_data, capability, flag):
    gpus(monkeypatch, 2, capability)
    fastest = plan(toy_data.bin, "--processes", 1, "--precision", "fastest").command
    command = plan(toy_data.bin, "--processes", 1).command
    assert fastest == command
    assert command[1:3] == words_of("train")[:2] and "--cpu" not in command
    assert value(command, "--distributed-world-size") == "1"
    assert [word for word in command if word in ("--fp16", "--bf16")] == [flag]
    command = plan(toy_data.bin, "--precision", "fp32").command
    assert not {"--fp16", "--bf16"} & set(command)
    command = plan(toy_data.bin, "--", "--fp16").command
    assert command.count("--fp16") == 1 and "--bf16" not in command


def test_a_training_resumes_in_its_precision(monkeypatch, toy_data, tmp_path):
    """An optimizer's state fits no other precision; "auto" differs from machine to machine."""

    def resume(*words):
        return plan(toy_data.bin, "--save-dir", tmp_path, *words)

    begun = resume("--cpu", "--precision", "bf16")
    (tmp_path / "checkpoint_last.pt").touch()
    Run(tmp_path).store(begun.settings)
    gpus(monkeypatch, 0)
    assert "--bf16" in resume().command
    monkeypatch.setattr(cpu, "has_bf16", lambda: False)
    assert "--bf16" in resume("--precision", "fastest").command
    Run(tmp_path).check_same(resume().settings)
    for words in (["--precision", "fp32"], ["--", "--amp"]):
        other = resume(*words).settings
        with pytest.raises(ConfigurationError, match="--precision was bf16, is (fp32|amp)"):
            Run(tmp_path).check_same(other)
    gpus(monkeypatch, 1, (8, 0))
    assert "--bf16" in resume().command
    gpus(monkeypatch, 1, (7, 0))
    with pytest.raises(ConfigurationError, match="in bf16, which this machine does not support"):
        resume()
    (tmp_path / "checkpoint_last.pt").unlink()
    assert "--fp16" in resume().command
    (tmp_path / "checkpoint_last.pt").touch()
    Run(tmp_path).store(resume("--precision", "fp16").settings)
    with pytest.raises(ConfigurationError, match="in fp16, which this machine .* another folder"):
        resume("--cpu")
    Run(tmp_path).store(
        begun.settings | {"precision": "fp16"}, resume().end
    )  # any machine may find that nothing is left
    Run(tmp_path).check_same(resume("--cpu").settings)
