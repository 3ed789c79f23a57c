"""BigBird: blocks of window, global and random attention (Zaheer et al., NeurIPS 2020)."""

from dataclasses import dataclass

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor

from fairseq_plugins.layers.masking import Mask
from fairseq_plugins.layers.token_mixer import MixerSpec, register_token_mixer
from fairseq_plugins.options.fields import option

from .multi_head import MultiHeadMixer, masked_softmax, real_lengths
from .windows import chunks, window_positions, windows

DRAWS = 1024  # blocks of queries with their own random numbers; later blocks reuse them


@dataclass
class BigBirdOptions(FairseqDataclass):
    block: int = option(32, "tokens in one of BigBird's blocks", least=1)
    window_blocks: int = option(
        3, "blocks in BigBird's window, an odd number: equally many on each side", least=1, odd=True
    )
    global_blocks: int = option(
        2,
        "BigBird's global blocks: the first blocks of a sentence, which attend to all blocks and "
        "are attended to by all",
        least=0,
    )
    random_blocks: int = option(
        2, "random blocks that each block attends to in BigBird", least=0, most=1000
    )


@register_token_mixer("bigbird", BigBirdOptions)
class BigBird(MultiHeadMixer):
    """Softmax attention of each block of queries to a window, global blocks and random blocks.

    ``out_i = softmax_j(q_i . k_j / sqrt(s)) v_j`` over all j in the blocks that i's block A sees
    (section 2 and appendix D)::

        A < g:   all blocks
        A >= g:  the window A - (w - 1) / 2 .. A + (w - 1) / 2; blocks 0 .. g - 1; r others

    The random blocks of each block and head are drawn without replacement from the other blocks of
    the sentence (Floyd's algorithm). Their random numbers are a buffer, so the blocks depend on
    --seed and on the length of the sentence, not on its batch. A block of pooled queries covers the
    `time_window` blocks of memory that it was pooled from, and the window extends beyond them on
    both sides. Blocks count from the first real token.

    This is the paper's internal form (BigBird-ITC): existing tokens are global. The published code
    takes the first and the last block; here it is the first g blocks. The default window, random
    blocks and global tokens are close to those of Fastformer's table 9 for CNN/DailyMail.

    Time O(T b (w + g + r) d + S b g d), memory O(T b (w + g + r) h + S b g h) for the weights and
    O(T (w + r) d) for the keys and values of each block, of b positions, beside the projections.

    Options:
        block: b.
        window_blocks: w, odd.
        global_blocks: g.
        random_blocks: r.
    """

    draws: Tensor

    def __init__(self, spec: MixerSpec, options: BigBirdOptions | None = None):
        super().__init__(spec, counts_positions=True)
        options = options or BigBirdOptions()
        self.block = options.block
        self.side = options.window_blocks // 2
        self.global_blocks = options.global_blocks
        self.random_blocks = options.random_blocks
        self.ratio = spec.time_window
        self.fixed = False
        draws = torch.randint(2**31, (spec.num_heads, DRAWS, options.random_blocks))
        self.register_buffer("draws", draws)
        self.dropout_module = FairseqDropout(spec.dropout, module_name=self.__class__.__name__)

    def length_multiple(self) -> int:
        return self.block * max(1, self.global_blocks)

    def mix(
        self, x: Tensor, memory: Tensor, padding_mask: Mask, memory_padding_mask: Mask
    ) -> Tensor:
        device = x.device
        block, side = self.block, self.side
        if not self.fixed:  # at most the sentence, which is then a single block
            block = min(block, max(x.size(0), memory.size(0)))
            side = min(side, max(x.size(0) * self.ratio, memory.size(0)) // block + 1)
        lengths = real_lengths(memory, memory_padding_mask)
        q = self.split(self.q_proj(x)) * self.scaling
        k, v = self.split(self.k_proj(memory)), self.split(self.v_proj(memory))
        bsz, heads, length, size = q.size()
        first = self.global_blocks * block  # number of global tokens
        absent = torch.arange(k.size(2), device=device) >= lengths.view(-1, 1)  # B x S

        queries = chunks(q, block)  # B x h x n x b x s
        count = queries.size(2)
        step, before = self.ratio * block, side * block
        width = step + 2 * before
        positions = window_positions(count, step, before, width, device)  # n x width
        window_hidden = (positions < first) | (positions >= lengths.view(-1, 1, 1))
        random = self._random_blocks((lengths + block - 1) // block, count)  # B x h x n x r
        positions = random.unsqueeze(-1) * block + torch.arange(block, device=device)
        random_hidden = (positions < 0) | (positions >= lengths.view(-1, 1, 1, 1, 1))
        hidden = torch.cat(
            [
                window_hidden.unsqueeze(1).expand(-1, heads, -1, -1),
                absent[:, None, None, :first].expand(-1, heads, count, -1),
                random_hidden.flatten(3),
            ],
            dim=-1,
        )
        first_k, first_v = k[:, :, :first], v[:, :, :first]
        random_k, random_v = self._take(k, random, block), self._take(v, random, block)
        first_scores = torch.matmul(queries.flatten(2, 3), first_k.transpose(2, 3))
        scores = torch.cat(
            [
                torch.matmul(queries, windows(k, count, step, before, width)),
                first_scores.view(bsz, heads, count, block, -1),
                torch.matmul(queries, random_k.transpose(3, 4)),
            ],
            dim=-1,
        )
        weights = self.dropout_module(masked_softmax(scores, hidden.unsqueeze(3)))
        end = width + first_k.size(2)
        window_v = windows(v, count, step, before, width).transpose(3, 4)
        out = torch.matmul(weights[..., :width], window_v)
        out = out + torch.matmul(weights[..., end:], random_v)
        out = out.flatten(2, 3) + torch.matmul(weights[..., width:end].flatten(2, 3), first_v)

        scores = torch.matmul(q[:, :, :first], k.transpose(2, 3))
        weights = self.dropout_module(masked_softmax(scores, absent[:, None, None, :]))
        return torch.cat([torch.matmul(weights, v), out[:, :, first:length]], dim=2)

    def _random_blocks(self, blocks: Tensor, count: int) -> Tensor:
        """The random blocks of memory for each block of queries; -1 if no block is left.

        Args:
            blocks: B, the number of blocks in the memory of each sentence.
            count: the number of blocks of queries.

        Returns:
            B x h x count x r.
        """
        blocks = blocks.view(-1, 1, 1)
        own = torch.arange(count, device=blocks.device) * self.ratio
        zero = torch.zeros_like(blocks + own)  # B x 1 x count
        begin = torch.minimum((own - self.side).clamp(min=self.global_blocks) + zero, blocks)
        end = torch.minimum(own + self.ratio + self.side + zero, blocks)
        window = (end - begin).clamp(min=0)
        others = (blocks - self.global_blocks).clamp(min=0) - window

        draws = self.draws[:, torch.arange(count, device=blocks.device) % self.draws.size(1)]
        picks: list[Tensor] = []
        for number in range(self.random_blocks):
            last = others - self.random_blocks + number  # the last candidate of this step, from 0
            pick = draws[..., number] % (last + 1).clamp(min=1)  # B x h x count
            taken = torch.zeros_like(pick, dtype=torch.bool)
            for earlier in picks:
                taken = taken | (earlier == pick)
            pick = torch.where(taken, last.expand_as(pick), pick)
            picks.append(pick.masked_fill(last < 0, -1))
        if len(picks) == 0:
            return draws.expand(blocks.size(0), -1, -1, -1)
        chosen = torch.stack(picks, dim=-1)
        block = chosen + self.global_blocks
        block = block + window.unsqueeze(-1) * (block >= begin.unsqueeze(-1)).to(block.dtype)
        return block.masked_fill(chosen < 0, -1)

    def _take(self, x: Tensor, index: Tensor, block: int) -> Tensor:
        """Gather blocks of B x h x S x s by an index, B x h x n x r: B x h x n x (r b) x s."""
        bsz, heads, count, number = index.size()
        rows = chunks(x, block).flatten(3)  # B x h x blocks x (b s)
        index = index.flatten(2).clamp(min=0).unsqueeze(-1).expand(-1, -1, -1, rows.size(3))
        return rows.gather(2, index).view(bsz, heads, count, number * block, x.size(3))
