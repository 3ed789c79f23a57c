"""A lexical shortlist: the few words of the vocabulary that a batch may write."""

from pathlib import Path
from typing import Any, Dict, Iterable, NamedTuple

import numpy as np

from fairseq_plugins.errors import ConfigurationError

FILE = "shortlist.npz"
ZERO = 128  # the 8-bit number that stands for 0
GROUP = 8  # words in a group, see `export.decoder.build`


class Words(NamedTuple):
    """The words that one batch may write; their number V is a multiple of `GROUP`.

    Attributes:
        inputs: of the decoder's graph.
        groups: V / GROUP.
        places: for each number in the dictionary, its place among the V words, or -1.
    """

    inputs: Dict[str, np.ndarray]
    groups: int
    places: np.ndarray


class Shortlist:
    """For each source token the target tokens that it may become, and the vectors of all.

    Args:
        path: the file that `export` wrote. Its arrays: `common`, tokens that every batch may write;
            `starts` and `targets`, where ``targets[starts[i] : starts[i + 1]]`` belong to source
            token i; `vectors`, V x d, and `biases`, V, of the output projection; and `scales`, V,
            if the vectors have 8 bits, as numbers around `ZERO`.

    Raises:
        ConfigurationError: the file is missing.
    """

    def __init__(self, path: Path):
        if not path.is_file():
            raise ConfigurationError(
                f"--shortlist: {path.parent} has none: export the model with --shortlist"
            )
        with np.load(path) as arrays:
            self.arrays: Dict[str, Any] = dict(arrays)

    def choose(self, sources: np.ndarray, more: Iterable[int], padding: int) -> Words:
        """The words for a batch.

        Args:
            sources: the source tokens of a batch.
            more: target tokens that must be among them.
            padding: the token that fills up the last group, with a probability of 0.
        """
        starts, targets = self.arrays["starts"], self.arrays["targets"]
        chosen = [targets[starts[t] : starts[t + 1]] for t in np.unique(sources).tolist()]
        chosen += [self.arrays["common"], np.fromiter(more, np.int64)]
        words = np.unique(np.concatenate(chosen))
        count, filler = len(words), -len(words) % GROUP
        words = np.concatenate([words, np.full(filler, padding)])
        places = np.full(len(self.arrays["biases"]), -1)
        places[words[:count]] = np.arange(count)
        biases = self.arrays["biases"][words]
        biases[count:] = -np.inf
        groups = len(words) // GROUP
        inputs = {
            "words": words,
            "word_vectors": np.ascontiguousarray(self.arrays["vectors"][words].T),
            "word_biases": biases,
            "groups": np.full(1, groups),
        }
        if "scales" in self.arrays:
            inputs["word_scales"] = self.arrays["scales"][words]
        return Words(inputs, groups, places)
