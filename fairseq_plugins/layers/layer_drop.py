"""LayerDrop for encoders whose blocks differ in size."""

from collections.abc import Iterator

import torch
from fairseq.modules import LayerDropModuleList
from torch import nn


class BlockLayerDropModuleList(LayerDropModuleList):
    """LayerDrop (Fan et al. 2019) that never drops the first layer of a later block.

    That layer changes the size, so later layers would not fit without it. Each other layer is
    dropped with probability p in each training step.
    """

    def __iter__(self) -> Iterator[nn.Module]:
        draws = torch.empty(len(self)).uniform_()
        for draw, layer in zip(draws, self._modules.values()):
            if not self.training or layer.starts_later_block or draw > self.p:
                yield layer
