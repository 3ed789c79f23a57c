"""How much longer than its source a target is, which limits the length of translations."""

import itertools
import re
from pathlib import Path

import numpy as np

from fairseq_plugins.data.prepared_folder import shards
from fairseq_plugins.text.processing import MORE

KEPT = 0.999  # the share of training pairs within the limit
TRAIN = re.compile(r"train\.[^.]+-[^.]+\.([^.]+)\.idx")


def length_ratios(folder: Path) -> dict[str, float]:
    """`LengthLimit.ratio` of both directions of a folder's binary training pairs.

    Returns:
        by direction, such as "de-en"; empty if the folder has no pairs, such as for classification.
    """
    from fairseq_plugins.data.lengths import sizes as tokens  # imports torch

    parts = shards(folder)
    found = [(TRAIN.fullmatch(path.name), path.stem) for path in parts[0].glob("train.*.idx")]
    # without the end symbol
    sizes = {name[1]: tokens(*(part / stem for part in parts)) - 1 for name, stem in found if name}
    return {
        f"{source}-{target}": length_ratio(sizes[source], sizes[target])
        for source, target in itertools.permutations(sorted(sizes), 2)
    }


def length_ratio(source: np.ndarray, target: np.ndarray) -> float:
    """The least r for which `KEPT` of the pairs have ``target <= r * (source + 1) + MORE``.

    Args:
        source, target: subwords of each pair, without the end symbol, which limits count.
    """
    needed = (target - MORE) / (source + 1)
    ratio = np.quantile(needed, KEPT, method="higher")
    return float(max(np.ceil(ratio * 1000) / 1000, 0.001))
