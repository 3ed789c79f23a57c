"""Compares the hypotheses of an export with torch's."""

import math
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.dataclass.configs import GenerationConfig

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.search import Options
from fairseq_plugins.search.batches import fill_batches
from fairseq_plugins.search.engine import ClassEngine, Input
from fairseq_plugins.search.onnx_backend.beam_search import search
from fairseq_plugins.search.onnx_backend.folder import Export

from .architecture import limits

BEAM = 5
SENTENCES = 20  # number compared without --compare
BATCH = 32  # sentences per batch of the export
LONGEST = 60  # maximum tokens of a hypothesis, without --compare
TIE = 1e-5  # scores this close are a tie: either hypothesis may come first


class Agreement(NamedTuple):
    """How an export's output compares with torch's."""

    kind: str  # kind of the graphs
    total: int
    equal: int  # outputs that equal torch's or tie with them
    largest_difference: float  # difference of the best scores
    # what they are, of what, and what differs
    words: tuple[str, str, str] = ("hypothesis", "sentences", "scores")


def prepared_pairs(task: Any, split: str) -> Any:
    """fairseq's dataset of a split as it was prepared: all sentences, with their usual subwords.

    A task that samples subwords wraps it. A task that refuses documents over the model's limit
    keeps those of valid and test; the caller counts them.

    Raises:
        FileNotFoundError: the folder lacks the split.
    """
    cfg = getattr(task, "cfg", None)
    # the second is for training and would read the references
    for option, value in (("skip_invalid_size_inputs_valid_test", True), ("eval_bleu", False)):
        if hasattr(cfg, option):
            setattr(cfg, option, value)
    task.load_dataset(split)
    pairs = task.dataset(split)
    return getattr(pairs, "dataset", pairs)


def sources_of(task: Any, split: str | None, longest: int) -> tuple[list[list[int]], int]:
    """All sentences of a split that have at most `longest` tokens, with the end symbol.

    Without a split, some sentences of the first one that the prepared folder has, or random ones if
    there are none.

    Returns:
        the sentences, and the number of longer ones of the split.

    Raises:
        ConfigurationError: the prepared folder lacks the split, or no sentence is left.
    """
    dataset = _open(lambda name: prepared_pairs(task, name).src, split)
    found = [] if dataset is None else [tokens.tolist() for tokens in _some(dataset, split)]
    short = [tokens for tokens in found if len(tokens) <= longest]
    if split is not None and not short:
        raise ConfigurationError(
            f"--compare {split}: all {len(found)} sentences exceed {longest - 1} "
            "subwords, the model's limit"
        )
    if short:
        return short, 0 if split is None else len(found) - len(short)
    dictionary, draw = task.source_dictionary, random.Random(1)
    return [
        [draw.randrange(dictionary.nspecial, len(dictionary)) for _ in range(length)]
        + [dictionary.eos()]
        for length in (min(number, longest - 1) for number in range(1, SENTENCES + 1))
    ], 0


def _open(load: Callable[[str], Any], split: str | None) -> Any:
    """The dataset of a split; without one, the first that there is, or None."""
    for name in ("valid", "test", "train") if split is None else (split,):
        try:
            return load(name)
        except FileNotFoundError as error:
            if split is not None:
                raise ConfigurationError(f"--compare {split}: {error}") from None
    return None


def _some(dataset: Any, split: str | None) -> Iterator[Any]:
    """The entries of a dataset; without a split, only `SENTENCES` of them."""
    step = 1 if split is not None else max(1, len(dataset) // SENTENCES)
    chosen = range(0, len(dataset), step)[: None if split is not None else SENTENCES]
    return (dataset[index] for index in chosen)


def _beam(vocabulary: int) -> int:
    """`BEAM`, lowered as fairseq does for a small vocabulary."""
    return min(BEAM, vocabulary - 1)


def sample_limit(source_length: int) -> int:
    """The maximum tokens of a hypothesis when a comparison may truncate."""
    return LONGEST


def search_with_torch(
    model: Any, task: Any, sources: list[list[int]], most: Callable[[int], int] = sample_limit
) -> list[tuple[list[int], float]]:
    """Tokens and score of the best hypothesis for each source, searched one by one.

    Args:
        model, task: as loaded.
        sources: tokens of each sentence, with the end symbol.
        most: maps the tokens of a source to the maximum tokens of its hypothesis.
    """
    longest = limits(model, task)[1]
    beam = _beam(len(task.target_dictionary))
    generator = task.build_generator([model], GenerationConfig(beam=beam, max_len_a=0))
    found = []
    for tokens in sources:
        generator.max_len_b = min(most(len(tokens)), longest)
        net_input = {
            "src_tokens": torch.tensor([tokens]),
            "src_lengths": torch.tensor([len(tokens)]),
        }
        with torch.no_grad():
            best = generator.generate([model], {"net_input": net_input})[0][0]
        found.append((best["tokens"].tolist(), float(best["score"])))
    return found


def compare(
    exported: Export,
    expected: list[tuple[list[int], float]],
    sources: list[list[int]],
    kind: str = "float32",
    most: Callable[[int], int] = sample_limit,
) -> Agreement:
    """Search for `sources` with the export, in batches, and compare with torch's hypotheses.

    `most` is as in `search_with_torch`.
    """
    options = Options(beam=_beam(len(exported.target.words)), min_len=1)
    equal, largest = 0, 0.0
    for start in range(0, len(sources), BATCH):
        batch = [
            Input(tokens, min(most(len(tokens)), exported.max_output))
            for tokens in sources[start : start + BATCH]
        ]
        with exported.running():  # it fails if tracing fixed a length
            ours = [hypotheses[0] for hypotheses in search(exported, batch, options)]
        for hypothesis, (tokens, score) in zip(ours, expected[start:]):
            difference = abs(score - hypothesis.score)
            equal += tokens == hypothesis.pieces or difference <= TIE
            largest = max(largest, math.inf if math.isnan(difference) else difference)
    return Agreement(kind, len(sources), equal, largest)


def texts_of(task: Any, split: str | None) -> list[list[int]]:
    """Texts of a classifier's prepared folder: all of a split, or some of the first split it has.

    Raises:
        ConfigurationError: the folder lacks the split.
    """
    dataset = _open(task.load_dataset, split)
    if dataset is None:
        raise ConfigurationError("the prepared folder has no texts to compare")
    return [each["net_input.src_tokens"].tolist() for each in _some(dataset, split)]


def probabilities(engine: ClassEngine, texts: list[list[int]]) -> np.ndarray:
    """The probabilities of the classes of each text."""
    found: list[np.ndarray] = [np.empty(0)] * len(texts)
    for batch in fill_batches(list(map(len, texts)), 4000, BATCH):
        for index, row in zip(batch, engine.probabilities([texts[index] for index in batch])):
            found[index] = row
    return np.stack(found)


def compare_classes(found: np.ndarray, expected: np.ndarray, kind: str) -> Agreement:
    """Compare an export's probabilities, texts x classes, with torch's."""
    rows = np.arange(len(found))
    best = found.argmax(axis=1)
    equal = expected.max(axis=1) - expected[rows, best] <= TIE
    largest = np.abs(found - expected).max()
    return Agreement(
        kind,
        len(found),
        int(equal.sum()),
        math.inf if math.isnan(largest) else float(largest),
        ("label", "texts", "probabilities"),
    )
