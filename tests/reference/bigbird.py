"""BigBird for one head (Zaheer et al. 2020, section 2)."""

from torch import Tensor

from .multi_head import attend_all


def sample(draws: list[int], items: list[int]) -> list[int]:
    """len(draws) of the items without replacement, or all: Floyd's algorithm."""
    chosen: list[int] = []
    for step, draw in enumerate(draws):
        last = len(items) - len(draws) + step
        if last < 0:
            continue
        index = draw % (last + 1)
        chosen.append(last if index in chosen else index)
    return [items[index] for index in chosen]


def bigbird(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    draws: Tensor,
    block: int,
    window_blocks: int,
    global_blocks: int,
    ratio: int = 1,
) -> Tensor:
    """`N x s`; draws: `blocks x r` random numbers, used again after the last row."""
    blocks = list(range((len(keys) + block - 1) // block))
    seen = {}
    for a in range((len(queries) + block - 1) // block):
        if a < global_blocks:
            seen[a] = set(blocks)
            continue
        side = window_blocks // 2
        own = range(a * ratio - side, (a + 1) * ratio + side)
        known = {b for b in blocks if b in own or b < global_blocks}
        others = [b for b in blocks if b not in known]
        seen[a] = known | set(sample(draws[a % len(draws)].tolist(), others))
    return attend_all(queries, keys, values, lambda i, j: j // block in seen[i // block])
