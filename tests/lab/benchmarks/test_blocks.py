"""Block sizes are tried in turn, and those that fail are named."""

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.benchmarks import blocks
from fairseq_plugins.lab.benchmarks.blocks import Blocks
from tests.lab.benchmarks.running import measure
from tests.layers.test_kernels import DEVICE, needs_triton


@pytest.mark.slow
@needs_triton
@pytest.mark.skipif(DEVICE == "cuda", reason="the interpreter takes block sizes that a GPU may not")
@pytest.mark.parametrize("name", blocks.KERNELS)
def test_each_kernel_runs_with_other_blocks(tmp_path, monkeypatch, name):
    build = blocks.KERNELS[name]

    def some(*given):
        work, candidates = build(*given)
        names = [label for label, _ in candidates]
        assert len(set(names)) == len(names)
        return work, candidates[:2]

    monkeypatch.setitem(blocks.KERNELS, name, some)
    words = ["blocks", "--cpu", "--kernel", name, "--part", 128, "--rounds", 1, "--warmup", 0]
    first, second = measure(tmp_path, *words)["rows"]
    assert first["contender"].startswith(name) and first["time_ratio"] == 1.0
    assert second["contender"] != first["contender"] and second["time_ratio"] > 0


def test_without_a_gpu_no_kernel_runs(tmp_path, monkeypatch):
    def fails():
        raise RuntimeError("0 active drivers")

    monkeypatch.setitem(blocks.KERNELS, "residual", lambda *given: (fails, [("1", ({}, 1, 1))]))
    with pytest.raises(ConfigurationError, match="^no kernel runs here: .*0 active drivers"):
        blocks.run(Blocks(cpu=True, kernel=["residual"]))
