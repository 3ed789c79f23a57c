"""LayerDrop for encoders whose blocks differ in size."""

from typing import Iterator

import torch
from fairseq.modules import LayerDropModuleList
from torch import nn


class BlockLayerDropModuleList(LayerDropModuleList):
    """LayerDrop (Fan et al. 2019) that keeps the layers which begin a block.

    Those change the size of what follows, which would not fit without them. The other layers are
    dropped with probability p in each training step.
    """

    def __iter__(self) -> Iterator[nn.Module]:
        draws = torch.empty(len(self)).uniform_()
        for draw, layer in zip(draws, self._modules.values()):
            if not self.training or layer.starts_block or draw > self.p:
                yield layer
