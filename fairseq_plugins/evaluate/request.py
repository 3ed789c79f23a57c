"""What to evaluate: a model, a test set and options, checked before slow work starts."""

import argparse
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq import options
from fairseq.tasks import TASK_DATACLASS_REGISTRY

from fairseq_plugins.compat.literals import read_literal
from fairseq_plugins.errors import ConfigurationError, check_path, check_range, flag
from fairseq_plugins.evaluate import averages
from fairseq_plugins.options import fairseq_parser, recipes
from fairseq_plugins.search.choose_engine import open_engine
from fairseq_plugins.search.engine import Engine
from fairseq_plugins.search.onnx_backend.folder import CONFIG, is_export
from fairseq_plugins.search.torch_backend.trained_model import (
    TrainedModel,
    only_for_checkpoints,
    search_options,
)

OWN_OPTIONS = (
    "--user-dir", "--path", "--gen-subset", "--results-path", "--remove-bpe", "--post-process",
    "--bpe", "--tokenizer", "--source-lang", "-s", "--target-lang", "-t",
)  # fmt: skip
MISLEADING = ("--score-reference", "--prefix-size", "--num-shards", "--shard-id")
REFUSED = {  # options of fairseq-generate, and why they are refused
    **dict.fromkeys(OWN_OPTIONS, "this command sets it: remove it"),
    **dict.fromkeys(
        MISLEADING, "the score would not be of the model's translations of the whole split"
    ),
    "--quiet": "the output would not have the translations",
    "--lm-path": "no language model is used: use fairseq-generate",
    **dict.fromkeys(
        ("--replace-unk", "--print-alignment", "--print-step", "--retain-iter-history"),
        "the output has only the text: use fairseq-generate",
    ),
}
# options of fairseq's tasks that this command sets or does anyway
OF_THE_TASK = {"data", "source_lang", "target_lang", "truncate_source"}
DEFAULTS = ["--beam", "5", "--max-tokens", "4096"]
OF_CHECKPOINTS = ("fp16", "model_overrides", "batch_size")  # besides options of the search
LENGTHS = ("--max-len-a", "--max-len-b")
SPEED = ("--max-tokens", "--batch-size", "--num-workers")  # these do not change the output


class EvaluationRequest(NamedTuple):
    """The model and test set to evaluate, and the options."""

    data: Path
    run: Path
    split: str = "test"
    last: int | None = None
    best: int | None = None
    checkpoint: str | None = None
    by: str | None = None  # None: "epoch" if there are epoch checkpoints, otherwise "update"
    settings: Sequence[Path] = ()
    words: Sequence[str] = ()  # more options for fairseq-generate
    cpu: bool = False
    unicode: bool = False  # ROUGE of words of any script
    threads: int | None = None  # of fairseq-generate on a CPU; None leaves the choice to torch
    ensemble: Sequence[Path] = ()  # more runs, whose predictions are averaged with those of `run`

    @property
    def members(self) -> list["EvaluationRequest"]:
        """One request per model: one, or those of the ensemble."""
        return [self._replace(run=run, ensemble=()) for run in (self.run, *self.ensemble)]

    @property
    def label(self) -> str:
        """The choice of checkpoints, as part of a file name."""
        if is_export(self.run):
            return "export"
        if self.last is not None:
            return f"last{self.last}" + (f"-{self.by}" if self.by else "")
        if self.best is not None:
            return f"best{self.best}"
        return Path(self.checkpoint or "checkpoint_best.pt").stem

    @property
    def generation(self) -> list[str]:
        """Options of fairseq-generate; if an option occurs twice, fairseq uses the last value.

        `--option=value` counts as two words.
        """
        return apart([*DEFAULTS, *recipes.arguments(self.settings), *self.words])

    @property
    def beam(self) -> str:
        words = self.generation
        return [after for word, after in zip(words, words[1:]) if word == "--beam"][-1]

    @property
    def search(self) -> str:
        """How to generate, for file names: beam, settings and options, or a hash of many."""
        named = [path.stem for path in self.settings]
        words = iter(apart(self.words))
        for word in words:
            if word in ("--beam", *SPEED):
                next(words, None)
            else:
                named.append(re.sub("^--", "", word))
        label = "-".join(named)
        if len(label) > 60 or not re.fullmatch(r"[\w.-]*", label):
            label = "options" + hashlib.sha256("\n".join(named).encode()).hexdigest()[:8]
        return f"beam{self.beam}" + (f"-{label}" if label else "")

    def folder_name(self, generates: bool) -> str:
        """The name of the results' folder; for a classifier, without search options."""
        name = f"{self.split}-{self.label}" + (f"-{self.search}" if generates else "")
        if self.ensemble:
            places = "\n".join(str(other.resolve()) for other in self.ensemble)
            number = hashlib.sha256(os.fsencode(places)).hexdigest()[:8]
            name += f"-ensemble{len(self.members)}-{number}"
        return name


def apart(words: Sequence[str]) -> list[str]:
    """The words, with `--option=value` split in two."""
    return [
        word for one in words for word in (one.split("=", 1) if one.startswith("--") else [one])
    ]


def check(request: EvaluationRequest) -> None:
    """Raise a ConfigurationError for errors that can be detected before slow work starts."""
    if not request.data.is_dir():
        raise ConfigurationError(f"DATA {request.data}: no such folder")
    check_path("DATA", request.data)
    for member in request.members:
        if member.run.is_file():
            raise ConfigurationError(
                f"{member.run} is a file, but RUN is a folder: give {member.run.parent}, and for "
                f"this checkpoint --checkpoint {member.run.name}"
            )
        if not member.run.is_dir():
            raise ConfigurationError(
                f"{member.run}: no such folder; RUN is the --save-dir of a training, or an export"
            )
        check_path("RUN", member.run)
    places = [member.run.resolve() for member in request.members]
    for place, member in zip(places, request.members):
        if places.count(place) > 1:
            raise ConfigurationError(f"--ensemble: {member.run} is named twice: name a model once")
    behind = apart(request.words)
    for option in request.generation:
        where = "after --" if option in behind else "in --settings"
        if option in REFUSED:
            raise ConfigurationError(f"{option} is not allowed {where}: {REFUSED[option]}")
    if request.by is not None and request.last is None:
        raise ConfigurationError(f"--by {request.by} only affects --last: add --last K")


def sides(request: EvaluationRequest, other: Path) -> tuple[EvaluationRequest, EvaluationRequest]:
    """The requests that compare a model with `other`, with the same options.

    Of an export and a training, the export gets no choice of checkpoints.
    """
    both = request, request._replace(run=other, ensemble=())
    exported = [is_export(side.run) for side in both]
    if len(set(exported)) == 1:
        return both
    first, second = (
        side._replace(last=None, best=None, checkpoint=None, by=None) if of_export else side
        for side, of_export in zip(both, exported)
    )
    return first, second


def parse_generation(words: Sequence[str]) -> argparse.Namespace:
    """The options of generation, as fairseq-generate parses them; `limited` if they limit lengths.

    Raises:
        ConfigurationError: fairseq-generate does not take an option, or it changes the task, which
            the training determines.
    """
    place = ["DATA", "--path", "RUN"]
    given = fairseq_parser.parse_as("fairseq-generate", generation_parser, [*place, *words])
    check_range("--beam", given.beam, 1)
    given.limited = any(word in LENGTHS for word in apart(words))
    options_of = getattr(TASK_DATACLASS_REGISTRY.get(given.task), "__dataclass_fields__", {})
    of_training = options_of.keys() - OF_THE_TASK
    for word in apart(words):
        if word in map(flag, of_training):
            raise ConfigurationError(
                f"{word} is for training, but the model is already trained: remove it"
            )
    return given


def generation_parser() -> argparse.ArgumentParser:
    """The parser of fairseq-generate's options."""
    parser = options.get_generation_parser()
    parser.add_argument("--arch", "-a", default="wav2vec2")  # as fairseq-generate adds it
    return parser


def open_with(given: argparse.Namespace, models: Sequence[Path], data: Path, cpu: bool) -> Engine:
    """Load checkpoints, or the folder of an export, with options of fairseq-generate.

    Raises:
        ConfigurationError: an option is not for such a model.
    """
    if not is_export(models[0]):
        return TrainedModel(
            models, data, cpu, given.fp16, given, given.max_tokens, seed=given.seed,
            max_sentences=given.batch_size, overrides=read_literal(given.model_overrides),
            word_by_word=False,
        )  # fmt: skip
    return open_engine(
        models[0], max_tokens=given.max_tokens or 4000,
        threads=torch.get_num_threads(), **options_of_export(given),
    )  # fmt: skip


def options_of_export(given: argparse.Namespace) -> dict[str, Any]:
    """The options of the search for an exported model, from those of fairseq-generate.

    Raises:
        ConfigurationError: an option is only for checkpoints.
    """
    search, unset = dict(vars(search_options(given))), generation_parser()
    for name in OF_CHECKPOINTS:
        if getattr(given, name) != unset.get_default(name):
            raise ConfigurationError(only_for_checkpoints(name))
    return search


def choose(request: EvaluationRequest) -> list[Path]:
    """The checkpoints to average, or the single checkpoint to use; of an export, its description.

    Raises:
        ConfigurationError: a checkpoint is missing, or there are too few.
    """
    run = request.run
    if is_export(run):
        if request.last or request.best or request.checkpoint:
            raise ConfigurationError(f"{run} is an exported model, which has no checkpoints")
        return [run / CONFIG]
    if request.last is None and request.best is None:
        path = run / (request.checkpoint or "checkpoint_best.pt")
        if not path.is_file():
            have = sorted(path.name for path in run.glob("*.pt"))
            raise ConfigurationError(
                f"{path} is missing: {run} has {', '.join(have) or 'no checkpoint; train first'}"
            )
        return [path]
    return averages.choose([run], request.last, request.best, request.by)
