"""Classify raw text with a trained model.

Classifier("runs/imdb").classify(["What a film!"])
"""

import functools
from typing import Any, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_plugins import pretrained
from fairseq_plugins.engine import Place
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.preparation.classification import Cut, load_cut
from fairseq_plugins.progress import progress_bar
from fairseq_plugins.serving.batches import fill_batches
from fairseq_plugins.serving.folder import is_export
from fairseq_plugins.serving.text import listed
from fairseq_plugins.trained_models import find_checkpoint, load_models


class Prediction(NamedTuple):
    """The label of a text and its probability."""

    label: str
    probability: float


class Classifier:
    """Classifies texts.

    Args:
        model: a checkpoint, or a folder of them.
        data: the prepared folder; None for the folder that the model was trained on.
        cpu: do not use a GPU.
        max_tokens: tokens in a batch, including padding; a longer text gets its own batch.
        progress: show a bar on stderr.

    Attributes:
        labels: the classes, in the order of the model's scores.
        cut: numbers (from 1) of the texts given to `classify` that were truncated.
        empty: numbers of the texts without a token; no model was trained on these.

    Raises:
        ConfigurationError: a folder or file is missing, the model is not a classifier, or model and
            data do not match.
    """

    def __init__(
        self,
        model: Place,
        data: Optional[Place] = None,
        cpu: bool = False,
        max_tokens: int = 16384,
        progress: bool = False,
    ):
        if is_export(pretrained.find(model)):
            raise ConfigurationError(f"--model {model}: exported models do not classify")
        path = find_checkpoint(model)
        self.device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
        self.folder, (loaded,), _, self.task = load_models([str(path)], data, classifier=True)
        if getattr(self.task.cfg, "regression_target", False):
            raise ConfigurationError(
                f"--model {path} is trained with --regression-target: it has no labels"
            )
        self.head = self.task.cfg.classification_head_name
        self.model: Any = loaded.to(self.device).eval()
        dictionary = self.task.label_dictionary
        self.labels = dictionary.symbols[dictionary.nspecial :][: self.task.cfg.num_classes]
        self.max_tokens, self.progress = max_tokens, progress
        self.cut: List[int] = []
        self.empty: List[int] = []
        self._texts = 0

    def classify(self, texts: Iterable[str]) -> List[Prediction]:
        """Classify raw texts; one prediction per text, in the order of the texts.

        Raises:
            ConfigurationError: the prepared folder lacks the settings or the subword model, or
                holds images.
        """
        (cut, longest), tokens = self._reading, []
        for text in listed(texts):
            self._texts += 1
            pieces = cut(text)
            if not pieces:
                self.empty.append(self._texts)
            if len(pieces) > longest:
                self.cut.append(self._texts)
            tokens.append(self._encode(pieces[:longest]))
        return self.classify_tokens(tokens)

    @property
    def max_tokens_of_text(self) -> int:
        """The maximum number of tokens read per text, as in training.

        Raises:
            ConfigurationError: as `classify`.
        """
        return self._reading[1]

    @functools.cached_property
    def _reading(self) -> Tuple[Cut, int]:
        """The function that converts a text to tokens, and how many tokens are read."""
        cut, kept = load_cut(self.folder)
        cfg = self.task.cfg
        longest = self.task.max_positions() - (cfg.init_token is not None)
        if str(cfg.shorten_method) == "none":  # otherwise a truncated text has no end symbol
            longest -= 1
        return cut, longest if kept is None else min(longest, kept)

    def _encode(self, pieces: List[str]) -> Tensor:
        dictionary = self.task.source_dictionary
        line = dictionary.encode_line(" ".join(pieces), add_if_not_exist=False).long()
        first = self.task.cfg.init_token
        if first is not None:
            line = torch.cat([line.new_tensor([first]), line])
        return line[: self.task.max_positions()]

    def classify_tokens(self, tokens: Sequence[Tensor]) -> List[Prediction]:
        """Classify tokenised texts: int64 indices of the dictionary, with the end symbol.

        Returns:
            one prediction per text, in the order of the texts.
        """
        found: List[Prediction] = [Prediction("", 0.0)] * len(tokens)
        batches = fill_batches([len(text) for text in tokens], self.max_tokens)
        for batch in progress_bar(batches, description="batches", disable=not self.progress):
            size = (len(batch), max(len(tokens[index]) for index in batch))
            padded = tokens[0].new_full(size, self.task.source_dictionary.pad())
            for row, index in enumerate(batch):
                padded[row, : len(tokens[index])] = tokens[index]
            with torch.no_grad():
                output = self.model(
                    padded.to(self.device),
                    features_only=True,
                    classification_head_name=self.head,
                )
                probabilities = self.model.get_normalized_probs(output, log_probs=False)
            best = probabilities.max(dim=-1)
            for index, value, label in zip(batch, best.values.tolist(), best.indices.tolist()):
                found[index] = Prediction(self.labels[label], value)
        return found

    def classify_split(self, split: str, at_once: int = 2000) -> Iterable[List[Prediction]]:
        """Yield the predictions for a prepared split, for `at_once` texts at a time.

        Texts are truncated as in training.
        """
        dataset = self.task.load_dataset(split)
        for start in range(0, len(dataset), at_once):
            end = min(start + at_once, len(dataset))
            texts = [dataset[index]["net_input.src_tokens"] for index in range(start, end)]
            yield self.classify_tokens(texts)
