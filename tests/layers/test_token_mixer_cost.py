"""Time and memory that grow linearly with length, counted and not measured."""

from argparse import Namespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from fairseq_plugins.layers.token_mixers import TOKEN_MIXERS, MixerSpec

LINEAR = [name for name in TOKEN_MIXERS if TOKEN_MIXERS._parts[name][0].is_linear]


class Count(TorchDispatchMode):
    """Numbers in the largest tensor that was computed, and in all of them."""

    def __init__(self):
        super().__init__()
        self.largest = self.all = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.largest = max(self.largest, out.numel())
            self.all += out.numel()
        return out


def cost(name, length):
    """Operations and numbers computed for a sentence of this length, and its largest tensor."""
    values = {full: option.default for full, option in TOKEN_MIXERS.options()}
    # with dropout torch's attention is not fused, so that its products are counted
    spec = MixerSpec(32, 32, 2, dropout=0.1, max_positions=4096)
    mixer = TOKEN_MIXERS.choose("mixer", Namespace(mixer=name, **values)).build(spec)
    x = torch.zeros(length, 1, 32, requires_grad=True)
    with FlopCounterMode(display=False) as operations, Count() as numbers:
        mixer(x, x).sum().backward()
    return operations.get_total_flops(), numbers.all, numbers.largest


@pytest.mark.parametrize("name", LINEAR)
def test_cost_grows_linearly_with_length(name):
    """Lengths are beyond every window."""
    for short, long in zip(cost(name, 1024), cost(name, 2048)):
        assert long <= 2.01 * short, f"{name} is not linear in length: let it say is_linear = False"


def test_softmax_attention_is_not_linear():
    """Shows that the test above can fail."""
    for short, long in zip(cost("softmax", 1024), cost("softmax", 2048)):
        assert long > 3 * short
