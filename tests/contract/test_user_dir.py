"""The contract checks parts of another package, as CONTRIBUTING says."""

import sys

import pytest

from tests.conftest import ROOT

MIXER = """
from fairseq_plugins.layers.token_mixer import register_token_mixer
from fairseq_plugins.layers.token_mixers.multi_head import MultiHeadMixer

@register_token_mixer("total")
class Total(MultiHeadMixer):
    projections, drops_weights = "v", False

    def mix(self, x, memory, padding_mask, memory_padding_mask):
        v = self.split(self.v_proj(memory))
        if memory_padding_mask is not None:
            v = v.masked_fill(memory_padding_mask[:, None, :, None], 0.0)
        return v.sum(dim=2, keepdim=True).expand(-1, -1, x.size(0), -1)
"""
REFERENCES = """
import torch
from tests.contract.references import Reference, multi_head

@multi_head
def total_rows(each, mixer, options, x, memory, pooled):
    return [torch.stack([sum(v)] * len(x)) for _, _, _, v in each]

MIXERS = {"total": Reference(total_rows, outputs=(0.2, 5))}
"""


@pytest.mark.parametrize(
    "mask, passes", [("[:, None, :, None]", True), ("[:, None, :1, None]", False)]
)
def test_the_contract_of_a_user_dir(run_process, tmp_path, mask, passes):
    folder = tmp_path / "own_parts"
    folder.mkdir()
    (folder / "__init__.py").write_text(MIXER.replace("[:, None, :, None]", mask))
    (folder / "references.py").write_text(REFERENCES)
    chosen = "total and equals_the_reference or every_part_has_a_reference"
    words = ["-q", "-p", "no:cacheprovider", "tests/contract", "--user-dir", folder, "-k", chosen]
    done = run_process([sys.executable, "-m", "pytest", *words], cwd=ROOT)
    assert (done.returncode == 0) == passes, done.stdout
    assert ("4 passed" in done.stdout) == passes
    assert ("2 failed, 2 passed" in done.stdout) != passes
