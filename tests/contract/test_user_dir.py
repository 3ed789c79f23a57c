"""The contract checks parts of another package, as CONTRIBUTING says, and finds their mistakes."""

import re
import sys

from tests.conftest import ROOT

MIXERS = """
from torch import Tensor

from fairseq_plugins.layers.masking import Mask
from fairseq_plugins.layers.token_mixer import register_token_mixer
from fairseq_plugins.layers.token_mixers.multi_head import MultiHeadMixer, real_lengths

@register_token_mixer("mean")
class Mean(MultiHeadMixer):
    projections, drops_weights = "v", False

    def mix(
        self, x: Tensor, memory: Tensor, padding_mask: Mask, memory_padding_mask: Mask
    ) -> Tensor:
        v = self.split(self.v_proj(memory))  # B x h x S x s
        if memory_padding_mask is not None:
            v = v.masked_fill(self.hidden(memory_padding_mask), 0.0)
        count = real_lengths(memory, memory_padding_mask).clamp(min=1).view(-1, 1, 1, 1)
        return (v.sum(dim=2, keepdim=True) / count).expand(-1, -1, x.size(0), -1)

    def hidden(self, mask: Tensor) -> Tensor:
        return mask[:, None, :, None]

@register_token_mixer("leaking")
class Leaking(Mean):
    def hidden(self, mask: Tensor) -> Tensor:
        return mask[:, None, :1, None]

@register_token_mixer("wasteful")
class Wasteful(Mean):
    projections = "qkv"
"""
REFERENCES = """
import torch
from tests.contract.references import Reference, multi_head

@multi_head
def mean_rows(each, mixer, options, x, memory, pooled):
    return [torch.stack([sum(v) / len(v)] * len(x)) for _, _, _, v in each]

MIXERS = dict.fromkeys(("mean", "leaking", "wasteful"), Reference(mean_rows, outputs=(0.02, 0.2)))
"""
CHOSEN = (
    "mean and not long_sentences or every_part_has_a_reference or leaking and equals_the_reference"
    " or wasteful and (has_a_finite_gradient or checkpointed)"
)


def test_the_contract_of_a_user_dir(run_process, tmp_path):
    folder = tmp_path / "own_parts"
    folder.mkdir()
    (folder / "__init__.py").write_text(MIXERS)
    (folder / "references.py").write_text(REFERENCES)
    words = ["-q", "-p", "no:cacheprovider", "tests/contract", "--user-dir", folder, "-k", CHOSEN]
    done = run_process([sys.executable, "-m", "pytest", *words], cwd=ROOT)
    assert sorted(re.findall(r"^FAILED .*?::test_(\S+)", done.stdout, re.M)) == [
        "checkpointed_activations_change_nothing[wasteful-only]",
        "equals_the_reference_in_any_batch[leaking-only]",
        "every_parameter_has_a_finite_gradient[wasteful-only]",
    ], done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 15
    message = r"wasteful: no output depends on q_proj.weight: leave it out .*`projections`"
    # The summary repeats an error in full where `CI` is set: only its lines in the traceback count.
    assert len(re.findall(rf"^E +AssertionError: {message}", done.stdout, re.M)) == 2
