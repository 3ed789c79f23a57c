"""Switch feed-forward: one expert for each position (Fedus, Zoph & Shazeer, JMLR 2022)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from fairseq.dataclass import FairseqDataclass
from torch import Tensor, nn

from fairseq_plugins.layers.feed_forward import FeedForward, FeedForwardSpec, register_feed_forward
from fairseq_plugins.layers.masking import Mask
from fairseq_plugins.options.fields import option

from .standard import StandardFeedForward


@dataclass
class SwitchOptions(FairseqDataclass):
    experts: int = option(4, "experts of a Switch network", least=2, most=1000)
    capacity_factor: float = option(
        1.25,
        "in training, an expert of a Switch network takes at most this many times its even share "
        "of a batch's positions; the others skip the network; 0: no limit",
        least=0,
        most=1000,
    )
    balance: float = option(
        0.01, "weight of the loss that balances Switch networks", least=0, most=1000
    )


@register_feed_forward("switch", SwitchOptions)
class SwitchFeedForward(FeedForward):
    """Each position goes to the expert with the highest router probability (section 2)::

        p(x) = softmax(W_r x)                       (eq. 1)
        out  = p_e(x) E_e(x),  e = argmax_i p_i(x)  (eq. 2)

    The experts E_1 .. E_N are standard networks: N times the parameters, but per position only the
    multiply-adds of one network, and d N for the router. The router computes in float32 at least.

    In training, an expert takes at most ceil(capacity_factor M / N) of the M real positions of a
    batch (eq. 3). Later positions, in the order of the rows, are dropped: their result is zero, and
    only the layer's residual remains. Evaluation drops nothing, so that results do not depend on
    the batch.

    ``balance N sum_i f_i P_i`` of each layer (eq. 4 to 6) is added to the loss of any criterion
    (`losses/expert_balance.py`): f_i is the share of positions that go to expert i, and P_i the
    mean of p_i. It is computed per batch and process, so two processes train like one with
    --update-freq 2.

    MSCFFN's table 2 uses six experts of inner dimension sqrt(5) / 2 d. The paper's noise on the
    router's input is not implemented.

    Shape:
        x: ... x d, or T x B x d with padding_mask: B x T, True at padding; result: as x.

    Options:
        experts: N, at least 2.
        capacity_factor: 0 drops nothing.
        balance: alpha, the weight of the loss.
    """

    routes_positions = True
    shares: Tensor | None  # in the class body, where TorchScript looks

    def __init__(self, spec: FeedForwardSpec, options: SwitchOptions | None = None):
        super().__init__()
        options = options or SwitchOptions()
        self.capacity_factor = options.capacity_factor
        self.balance = options.balance
        self.router = nn.Parameter(torch.empty(options.experts, spec.embed_dim))  # W_r
        nn.init.normal_(self.router, std=(0.1 / spec.embed_dim) ** 0.5)  # section 2.4
        self.experts = nn.ModuleList(StandardFeedForward(spec) for _ in range(options.experts))
        self.shares = None

    def forward(self, x: Tensor, padding_mask: Mask = None) -> Tensor:
        if padding_mask is not None:  # padding may hold NaN
            x = x.masked_fill(padding_mask.t().unsqueeze(-1), 0.0)
        rows = x.reshape(-1, x.size(-1))
        probabilities = self._probabilities(rows)
        gate, expert = probabilities.max(dim=-1)
        if not torch.jit.is_scripting():
            if self.training:
                expert = self._route(probabilities, expert, padding_mask)

        order = torch.argsort(expert)
        count = len(self.experts)
        sizes: list[int] = torch.bincount(expert, minlength=count + 1).tolist()
        parts = rows.index_select(0, order).split(sizes)
        results: list[Tensor] = []
        for i, network in enumerate(self.experts):
            results.append(network(parts[i]))
        results.append(torch.zeros_like(parts[count]).type_as(results[0]))  # dropped positions
        sorted_out = torch.cat(results)
        out = torch.empty_like(sorted_out).index_copy(0, order, sorted_out)
        return (out * gate.type_as(out).unsqueeze(-1)).view(x.size())

    def _probabilities(self, rows: Tensor) -> Tensor:
        """Rows x N, in float32 at least, under autocast too."""
        dtype = torch.promote_types(rows.dtype, torch.float32)
        if torch.jit.is_scripting():
            return torch.softmax(F.linear(rows.to(dtype), self.router.to(dtype)), dim=-1)
        else:
            with torch.autocast(rows.device.type, enabled=False):
                return torch.softmax(F.linear(rows.to(dtype), self.router.to(dtype)), dim=-1)

    @torch.jit.unused
    def _route(self, probabilities: Tensor, expert: Tensor, padding_mask: Mask) -> Tensor:
        """The expert of each row, or N if dropped or padding; stores the loss in `shares`."""
        count = probabilities.size(1)
        chosen = F.one_hot(expert, count)
        if padding_mask is not None:
            padding = padding_mask.t().reshape(-1)
            chosen = chosen.masked_fill(padding.unsqueeze(-1), 0)
            probabilities = probabilities.masked_fill(padding.unsqueeze(-1), 0.0)
            expert = expert.masked_fill(padding, count)
        total = chosen.sum().clamp(min=1)
        self.shares = count * (chosen.sum(dim=0) * probabilities.sum(dim=0)).sum() / total**2
        if self.capacity_factor > 0:
            capacity = torch.ceil(self.capacity_factor * total / count)
            position = (chosen.cumsum(dim=0) * chosen).sum(dim=1)  # in its expert's queue, from 1
            expert = expert.masked_fill(position > capacity, count)
        return expert

    def take_balance(self) -> Tensor | None:
        """Return ``N sum_i f_i P_i`` of the last forward in training, and clear it.

        1 is a perfect balance; None if nothing was computed since the last call.
        """
        shares, self.shares = self.shares, None
        return shares
