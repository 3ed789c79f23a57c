"""Run a subcommand of `benchmark`."""

import json

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.commands import benchmark

SIZES = (
    "--encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2"
    " --decoder-embed-dim 16 --decoder-ffn-embed-dim 32 --decoder-attention-heads 2"
    " --decoder-layers 1"
)


def measure(tmp_path, *words):
    """The JSON that a subcommand writes."""
    out = tmp_path / "figures.json"
    assert benchmark.main([*map(str, words), "--cpu", "--json", str(out)]) == 0
    return json.loads(out.read_text())


def refused(*words):
    """The one line that a mistake ends in."""
    with pytest.raises(ConfigurationError) as stopped:
        benchmark.main([*map(str, words), "--cpu"])
    message = str(stopped.value)
    assert "\n" not in message
    return message
