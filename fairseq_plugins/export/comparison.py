"""Compares what an export answers with what torch answers: hypotheses, or classes."""

import functools
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.dataclass.configs import GenerationConfig

from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.search import Options
from fairseq_plugins.search.batches import fill_batches
from fairseq_plugins.search.checkpoints import limits
from fairseq_plugins.search.engine import ClassEngine, Input
from fairseq_plugins.search.onnx_backend.beam_search import search
from fairseq_plugins.search.onnx_backend.exported_model import ExportedClassifier
from fairseq_plugins.search.onnx_backend.folder import Export
from fairseq_plugins.search.text import LONGEST
from fairseq_plugins.search.torch_backend.trained_model import TrainedClassifier
from fairseq_plugins.tasks.summarization import SummarizationTask

from .architecture import classifies

BEAM = 5
SENTENCES = 20  # number compared without --compare
BATCH = 32  # sentences per batch of the export
SHORT = 60  # maximum tokens of a hypothesis, without --compare
TIE = 1e-5  # scores this close are a tie: either answer may come first
# the tokens of a hypothesis and its score, or a class and the probabilities of all classes
Answer = tuple[Any, Any]


class Agreement(NamedTuple):
    """How an export's answers compare with torch's."""

    kind: str  # kind of the graphs
    total: int
    equal: int  # answers that equal torch's or tie with them
    largest_difference: float  # difference of the best scores
    # what they are, of what, and what differs
    words: tuple[str, str, str] = ("hypothesis", "sentences", "scores")


class Comparison:
    """The texts that torch and an export answer.

    Args:
        folder: the prepared folder.
        model, task: as loaded.
        split: all texts of "valid" or "test"; None for `SENTENCES` texts.

    Attributes:
        too_long: the number of texts of the split over the model's limit, which are skipped.
        agreements: those of all exports that were compared.
    """

    def __init__(self, folder: Path, model: Any, task: Any, split: str | None):
        self.agreements: list[Agreement] = []
        if classifies(model):
            self.words = "label", "texts", "probabilities"
            engine = TrainedClassifier("RUN", folder, model, task, cpu=True)
            self.sources, self.too_long = sources_of(task, split, engine.max_positions)
            self._by_torch = functools.partial(classify, engine)
            self._by_export = lambda part: classify(ExportedClassifier(part), self.sources)
            return
        self.words = Agreement._field_defaults["words"]
        most: Callable[[int], int] = sample_limit
        if split is not None:
            most = Prepared(folder).length_limit(task.cfg.source_lang, task.cfg.target_lang)
            if isinstance(task, SummarizationTask):
                most = lambda source_length: LONGEST  # noqa: E731
        self.sources, self.too_long = sources_of(task, split, limits([model], task)[0] + 1)
        self._by_torch = functools.partial(search_with_torch, model, task, most=most)
        self._by_export = lambda part: search_with_export(Export(part), self.sources, most)

    @functools.cached_property
    def expected(self) -> list[Answer]:
        return self._by_torch(self.sources)

    def agree(self, part: Path, kind: str) -> Agreement:
        """Compare the export in a folder."""
        found = compare(self._by_export(part), self.expected, kind, self.words)
        self.agreements.append(found)
        return found


def sources_of(task: Any, split: str | None, longest: int) -> tuple[list[list[int]], int]:
    """All texts of a split that have at most `longest` tokens, with the end symbol.

    Without a split, some texts of the first one that the prepared folder has, or random ones if
    there are none.

    Returns:
        the texts, and the number of longer ones of the split.

    Raises:
        ConfigurationError: the prepared folder lacks the split, or no text is left.
    """
    texts: Any = []
    for name in ("valid", "test", "train") if split is None else (split,):
        try:
            texts = _texts(task, name)
            break
        except FileNotFoundError as error:
            if split is not None:
                raise ConfigurationError(f"--compare {split}: {error}") from None
    if split is None:
        texts = [texts[n] for n in range(0, len(texts), max(1, len(texts) // SENTENCES))]
        texts = texts[:SENTENCES]
    found = [tokens.tolist() for tokens in texts]
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


def _texts(task: Any, split: str) -> Any:
    """The tokens of all texts of a split as it was prepared, with their usual subwords.

    A task that samples subwords, or sorts texts, wraps its dataset. A task that refuses documents
    over the model's limit keeps those of valid and test; the caller counts them.
    """
    cfg = getattr(task, "cfg", None)
    # the second is for training and would read the references
    for option, value in (("skip_invalid_size_inputs_valid_test", True), ("eval_bleu", False)):
        if hasattr(cfg, option):
            setattr(cfg, option, value)
    task.load_dataset(split)
    texts = task.dataset(split)
    texts = getattr(texts, "dataset", texts)
    return texts.defn["net_input.src_tokens"] if hasattr(task, "label_dictionary") else texts.src


def _beam(vocabulary: int) -> int:
    """`BEAM`, lowered as fairseq does for a small vocabulary."""
    return min(BEAM, vocabulary - 1)


def sample_limit(source_length: int) -> int:
    """The maximum tokens of a hypothesis when a comparison may truncate."""
    return SHORT


def search_with_torch(
    model: Any, task: Any, sources: list[list[int]], most: Callable[[int], int] = sample_limit
) -> list[Answer]:
    """Tokens and score of the best hypothesis for each source, searched one by one.

    Args:
        model, task: as loaded.
        sources: tokens of each sentence, with the end symbol.
        most: maps the tokens of a source to the maximum tokens of its hypothesis.
    """
    longest = limits([model], task)[1]
    beam = _beam(len(task.target_dictionary))
    generator = task.build_generator([model], GenerationConfig(beam=beam, max_len_a=0))
    found: list[Answer] = []
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


def search_with_export(
    exported: Export, sources: list[list[int]], most: Callable[[int], int] = sample_limit
) -> list[Answer]:
    """As `search_with_torch`, with an export and in batches."""
    options = Options(beam=_beam(len(exported.target.words)), min_len=1)
    found: list[Answer] = []
    for start in range(0, len(sources), BATCH):
        batch = [
            Input(tokens, min(most(len(tokens)), exported.max_output))
            for tokens in sources[start : start + BATCH]
        ]
        with exported.running():  # it fails if tracing fixed a length
            best = [hypotheses[0] for hypotheses in search(exported, batch, options)]
        found += [(each.pieces, each.score) for each in best]
    return found


def classify(engine: ClassEngine, texts: list[list[int]]) -> list[Answer]:
    """The most probable class of each text, and the probabilities of all classes."""
    found: list[Answer] = [()] * len(texts)  # type: ignore[list-item]
    for batch in fill_batches(list(map(len, texts)), 4000, BATCH):
        for index, row in zip(batch, engine.probabilities([texts[index] for index in batch])):
            found[index] = int(row.argmax()), row
    return found


def compare(
    found: list[Answer],
    expected: list[Answer],
    kind: str = "float32",
    words: tuple[str, str, str] = Agreement._field_defaults["words"],
) -> Agreement:
    """Compare the answers of an export with those of torch."""
    equal, largest = 0, 0.0
    for (ours, score), (theirs, other) in zip(found, expected, strict=True):
        difference = float(np.max(np.abs(score - other)))
        equal += ours == theirs or difference <= TIE
        largest = max(largest, math.inf if math.isnan(difference) else difference)
    return Agreement(kind, len(expected), equal, largest, words)
