"""A lexical shortlist: the few words of the vocabulary that a batch may write."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fairseq_plugins.errors import ConfigurationError

FILE = "shortlist.npz"
ZERO = 128  # the 8-bit number that stands for 0
GROUP = 8  # words in a group, see `export.decoder.build`


class Words(NamedTuple):
    """The words that a batch may write; their number V is a multiple of `GROUP`.

    Attributes:
        inputs: inputs of the decoder's graph.
        groups: V / GROUP.
        places: for each index in the dictionary, its position among the V words, or -1.
    """

    inputs: dict[str, np.ndarray]
    groups: int
    places: np.ndarray


class Shortlist:
    """For each source token, the target tokens it may become; and the vectors of all.

    Args:
        path: the file written by `export`. Its arrays: `common`, tokens that every batch may write;
            `starts` and `targets`, where ``targets[starts[i] : starts[i + 1]]`` belong to source
            token i; `vectors`, V x d, and `biases`, V, of the output projection; and `scales`, V,
            if the vectors have 8 bits, as numbers around `ZERO`.

    Raises:
        ConfigurationError: the file cannot be read.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            with np.load(path, allow_pickle=False) as arrays:
                self.arrays: dict[str, Any] = dict(arrays)
        except Exception as error:  # zipfile and numpy raise anything for damaged archives
            raise self._damaged(f"{type(error).__name__}: {error}") from None

    def _damaged(self, reason: str) -> ConfigurationError:
        return ConfigurationError(
            f"--shortlist: {self.path} cannot be used ({reason}): export the model again"
        )

    def check(self, sources: int, targets: int) -> None:
        """Raise a ConfigurationError unless the arrays fit dictionaries of these sizes."""
        kinds = {"common": (1, "i"), "starts": (1, "i"), "targets": (1, "i")}
        kinds.update(vectors=(2, "fu"), biases=(1, "f"))
        for name, (axes, kind) in kinds.items():
            array = self.arrays.get(name)
            if array is None or array.ndim != axes or array.dtype.kind not in kind:
                raise self._damaged(f"{name} is missing or of a wrong type")
        starts, words = self.arrays["starts"], self.arrays["targets"]
        chosen = np.concatenate([self.arrays["common"], words])
        fits = (
            len(starts) == sources + 1
            and (np.diff(starts) >= 0).all()
            and starts[0] >= 0
            and starts[-1] <= len(words)
            and len(self.arrays["biases"]) == len(self.arrays["vectors"]) == targets
            and len(self.arrays.get("scales", self.arrays["biases"])) == targets
            and (chosen >= 0).all()
            and (chosen < targets).all()
        )
        if not fits:
            raise self._damaged("it does not fit the dictionaries")

    def choose(self, sources: np.ndarray, more: Iterable[int], padding: int) -> Words:
        """The words for a batch.

        Args:
            sources: the source tokens of a batch.
            more: target tokens that must be included.
            padding: the token that fills the last group, with probability 0.
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
