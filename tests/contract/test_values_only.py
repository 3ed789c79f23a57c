"""A mixer without queries and keys, added as CONTRIBUTING.md says, and what the contract finds."""

import pytest
import torch
from torch import Tensor

from fairseq_plugins.layers.masking import Mask
from fairseq_plugins.layers.registry import NoOptions
from fairseq_plugins.layers.token_mixers.multi_head import MultiHeadMixer, real_lengths
from tests.batches import SIDES
from tests.contract import test_parts as contract
from tests.contract.references import MIXERS, Reference, multi_head


class Mean(MultiHeadMixer):
    """``W mean_j v_j + b``, the mean of the values of all real positions."""

    projections = "v"
    drops_weights = False

    def mix(
        self, x: Tensor, memory: Tensor, padding_mask: Mask, memory_padding_mask: Mask
    ) -> Tensor:
        v = self.split(self.v_proj(memory))  # B x h x S x s
        if memory_padding_mask is not None:
            v = v.masked_fill(memory_padding_mask[:, None, :, None], 0.0)
        count = real_lengths(memory, memory_padding_mask).clamp(min=1).view(-1, 1, 1, 1)
        return (v.sum(dim=2, keepdim=True) / count).expand(-1, -1, x.size(0), -1)


class Wasteful(Mean):
    """It has projections that it does not use."""

    projections = "qkv"


@multi_head
def mean_rows(each, mixer, options, x, memory, pooled):
    assert all(q is None and k is None for _, q, k, _ in each)
    return [torch.stack([sum(v) / len(v)] * len(x)) for _, _, _, v in each]


@pytest.fixture
def part(request, monkeypatch):
    parts = contract.TOKEN_MIXERS._parts
    monkeypatch.setitem(parts, "mean", (getattr(request, "param", Mean), NoOptions))
    monkeypatch.setitem(MIXERS, "mean", Reference(mean_rows, outputs=(0.02, 0.2)))
    return contract.Part("mixer", "mean", {}, "only")


@pytest.mark.parametrize("side", SIDES)
def test_it_passes_the_contract(part, side):
    contract.test_every_part_has_a_reference("mixer")
    contract.test_equals_the_reference_in_any_batch(part, side)
    contract.test_reads_a_memory_of_another_length_and_size(part, side, contract.MEMORY_DIM)
    contract.test_every_parameter_has_a_finite_gradient(part)
    contract.test_training_begins_with_numbers_of_the_right_size(part)
    contract.test_scripted_equals_eager(part)
    contract.test_checkpointed_activations_change_nothing(part)


@pytest.mark.parametrize("part", [Wasteful], indirect=True)
def test_a_projection_that_does_nothing_is_named(part):
    message = r"^mean: no output depends on q_proj.weight: leave it out .*`projections`"
    with pytest.raises(AssertionError, match=message):
        contract.test_every_parameter_has_a_finite_gradient(part)
    with pytest.raises(AssertionError, match=message):
        contract.test_checkpointed_activations_change_nothing(part)
