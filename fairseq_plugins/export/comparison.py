"""Compares the hypotheses of an export with torch's."""

import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.dataclass.configs import GenerationConfig

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.search.batches import fill_batches
from fairseq_plugins.search.engine import ClassEngine
from fairseq_plugins.search.onnx_backend.beam_search import Source, search
from fairseq_plugins.search.onnx_backend.folder import Export
from fairseq_plugins.search.options import Options

from .architecture import limits
from .prepared import prepared_pairs

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


def sample_sources(task: Any, longest: int) -> list[list[int]]:
    """Sentences of the prepared folder, or random ones if none is short enough.

    Args:
        task: the task.
        longest: the most tokens of a sentence, with the end symbol.
    """
    for split in ("valid", "test", "train"):
        try:
            dataset = prepared_pairs(task, split).src
        except FileNotFoundError:
            continue
        step = max(1, len(dataset) // SENTENCES)
        found = [dataset[index].tolist() for index in range(0, len(dataset), step)[:SENTENCES]]
        found = [tokens for tokens in found if len(tokens) <= longest]
        if found:
            return found
    dictionary, draw = task.source_dictionary, random.Random(1)
    return [
        [draw.randrange(dictionary.nspecial, len(dictionary)) for _ in range(length)]
        + [dictionary.eos()]
        for length in (min(number, longest - 1) for number in range(1, SENTENCES + 1))
    ]


def all_sources(task: Any, split: str, longest: int) -> tuple[list[list[int]], int]:
    """All sentences of a split that have at most `longest` tokens.

    Returns:
        The sentences, and the number of longer ones.

    Raises:
        ConfigurationError: the prepared folder lacks the split, or no sentence is left.
    """
    try:
        dataset = prepared_pairs(task, split).src
    except FileNotFoundError as error:
        raise ConfigurationError(f"--compare {split}: {error}") from None
    found = [dataset[index].tolist() for index in range(len(dataset))]
    short = [tokens for tokens in found if len(tokens) <= longest]
    if not short:
        raise ConfigurationError(
            f"--compare {split}: all {len(found)} sentences exceed {longest - 1} "
            "subwords, the model's limit"
        )
    return short, len(found) - len(short)


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
            Source(tokens, min(most(len(tokens)), exported.max_output))
            for tokens in sources[start : start + BATCH]
        ]
        try:
            ours = [hypotheses[0] for hypotheses in search(exported, batch, options)]
        except RuntimeError as error:  # from onnxruntime, if tracing fixed a length
            reason = str(error).splitlines()[0]
            raise ConfigurationError(
                f"the model cannot be exported: its graphs fail on other lengths: {reason}"
            ) from error
        for hypothesis, (tokens, score) in zip(ours, expected[start:]):
            difference = abs(score - hypothesis.score)
            equal += tokens == hypothesis.tokens or difference <= TIE
            largest = max(largest, math.inf if math.isnan(difference) else difference)
    return Agreement(kind, len(sources), equal, largest)


def sample_texts(task: Any, split: str | None) -> list[list[int]]:
    """Texts of a classifier's prepared folder: all of a split, or some of the first split it has.

    Raises:
        ConfigurationError: the folder lacks the split.
    """
    for name in (split,) if split else ("valid", "test", "train"):
        try:
            dataset = task.load_dataset(name)
        except FileNotFoundError as error:
            reason = f"--compare {name}: {error}"
            continue
        step = 1 if split else max(1, len(dataset) // SENTENCES)
        chosen = range(0, len(dataset), step)[: None if split else SENTENCES]
        return [dataset[index]["net_input.src_tokens"].tolist() for index in chosen]
    raise ConfigurationError(reason)


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
