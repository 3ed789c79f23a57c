"""What an engine is: it runs a model, with torch or onnxruntime. `choose_engine` makes one."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol, runtime_checkable

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.search.text import Output
from fairseq_plugins.system.progress import progress_bar

IN_EACH_PROCESS = (
    'start the processes with multiprocessing.get_context("spawn"), and make the Translator, '
    "Summarizer or Classifier in each of them, such as in the initializer of a Pool"
)
Place = str | Path
# whether to show a bar on stderr, or a function called with the number of texts of each batch
Progress = bool | Callable[[int], Any]
Done = Callable[[int], Any]  # called with the number of sources of each finished batch


class Input(NamedTuple):
    """A source for which the engine writes an `Output`."""

    pieces: Sequence[Any]  # its subwords, at most `Engine.max_source`
    limit: int  # the most subwords of a hypothesis, without the end symbol
    prefix: Sequence[Any] = ()  # the subwords with which every hypothesis must begin
    number: int = 0  # from 0, for the draws of sampling and for messages
    part: int = 0  # from 0, of a text that was split, for the draws
    terms: Sequence[Sequence[str]] = ()  # lists of subwords that every hypothesis must have


@runtime_checkable
class Engine(Protocol):
    """Searches for lists of subwords. Several threads may share one.

    Attributes:
        name: the model's name, for messages.
        processor: converts raw text to subwords and back.
        max_source: the maximum number of subwords that the model reads, without the end symbol.
        max_output: the maximum number of subwords that the model writes.
        min_len: `Options.min_len` of its search.
        summarizes: whether it was trained to summarize.
        copies: whether the model copies; of an ensemble, the first one.
    """

    name: str
    processor: Any
    max_source: int
    max_output: int
    min_len: int
    summarizes: bool
    copies: bool

    def search(
        self,
        inputs: Sequence[Input],
        count: int,
        copied: bool,
        done: Done,
        aligned: bool = False,
    ) -> list[list[Output]]:
        """Up to `count` hypotheses for each input, the best first.

        Args:
            inputs: what to search for.
            count: at least 1; at most the beam size is returned.
            copied: whether outputs should have `copied`, if the engine supports it.
            done: see its type.
            aligned: whether outputs should have `attention`. It is None for a model of torch that
                returns none, such as a convolutional one.

        Raises:
            ConfigurationError: the options allow no hypothesis, or the memory is too small.
        """


@runtime_checkable
class ClassEngine(Protocol):
    """Finds the classes of texts.

    Attributes:
        name: the model's name, for messages.
        folder: has what raw text needs, see `data.prepared_folder.load_cut`.
        labels: the classes, in the order of their probabilities.
        start: the number of the token that every text begins with; None for none.
        max_source: the most tokens of a text, without this one and the end symbol.
        max_positions: the most with both; what exceeds it is left out.
        pair_bytes: bytes that attention takes for each pair of positions; 0 if not known.
    """

    name: str
    folder: Path
    labels: list[str]
    start: int | None
    max_source: int
    max_positions: int
    pair_bytes: int

    def numbers(self, pieces: Sequence[str]) -> list[int]:
        """The numbers of tokens in the dictionary, with the end symbol."""

    def probabilities(self, texts: Sequence[Sequence[int]]) -> Any:
        """The probabilities of the classes, an array B x classes, for numbers of tokens."""


class Loaded:
    """The base class of engines: a loaded model, which belongs to one process.

    Args:
        not_inherited: what a forked process would lack, such as "a GPU"; "" if it can run the
            model.
    """

    def __init__(self, not_inherited: str) -> None:
        self._not_inherited, self._process = not_inherited, os.getpid()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a loaded model cannot be pickled: {IN_EACH_PROCESS}")

    def check_process(self) -> None:
        """Raise a ConfigurationError in a forked process that cannot run the model."""
        if self._not_inherited and os.getpid() != self._process:
            raise ConfigurationError(
                f"a model that was loaded with {self._not_inherited} cannot run in a forked "
                f"process: {IN_EACH_PROCESS}"
            )


def search(
    engine: Engine,
    inputs: Sequence[Input],
    count: int,
    progress: Progress,
    copied: bool = False,
    aligned: bool = False,
) -> list[list[Output]]:
    """`Engine.search` with progress."""
    with progress_bar(description="done", total=len(inputs), show=progress is True) as bar:
        done = progress if callable(progress) else bar.update
        return engine.search(inputs, count, copied, done, aligned)
