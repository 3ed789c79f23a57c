"""What to evaluate: a model, a test set and options, checked before slow work starts."""

import hashlib
import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.data.prepared_folder import check_data
from fairseq_plugins.errors import ConfigurationError, check_path
from fairseq_plugins.options import recipes
from fairseq_plugins.options.fields import MOST, argument, option
from fairseq_plugins.options.groups import Averaging, Device
from fairseq_plugins.options.search import LARGEST_BEAM
from fairseq_plugins.pretrained import is_export

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
DEFAULTS = ["--beam", "5"]
CHOICE = ("last", "best", "checkpoint", "by")  # options that choose checkpoints
SPEED = ("--max-tokens", "--batch-size", "--num-workers")  # these do not change the output


@dataclass
class EvaluationRequest(Device, Averaging):
    """The model and test set to evaluate: the options of the command."""

    data: Path = argument("the prepared folder", "DATA")
    run: Path = argument("the --save-dir of a training, or an export", "RUN")
    split: str = option("test", "the split to score, valid or test", metavar="SPLIT")
    checkpoint: str | None = option(
        None, "score this checkpoint of RUN", metavar="NAME", group="checkpoints"
    )
    settings: Sequence[Path] = option(
        (), "how to generate: a YAML file, or generate_cnn_dm, generate_pubmed or "
        "generate_headlines; repeatable", metavar="FILE", repeatable=True,
    )  # fmt: skip
    beam: int | None = option(None, "the beam size (default: 5)", least=1, most=LARGEST_BEAM)
    max_tokens: int | None = option(
        None,
        "the number of source tokens in a batch (default: 4096; on a GPU, as many as its memory "
        "allows)",
        least=1,
    )
    words: Sequence[str] = option((), "more options for fairseq-generate", rest=True)
    ensemble: Sequence[Path] = option(
        (), "score RUN and these trainings as one ensemble, with checkpoints chosen alike",
        metavar="RUN_B",
    )  # fmt: skip
    compare: Path | None = option(
        None, "also score this training, and test the difference by paired bootstrap",
        metavar="RUN_B",
    )  # fmt: skip
    examples: int = option(0, "print N outputs of the model", least=0)
    at_least: float | None = option(
        None, "exit with status 1 if BLEU, ROUGE-1 or accuracy is lower", least=0, metavar="SCORE"
    )
    unicode: bool = option(
        False, "compute ROUGE on words of any script, without a stemmer (default: words of the "
        "letters a to z and digits)",
    )  # fmt: skip
    threads: int | None = option(
        None, "the number of processor threads without a GPU (default: OMP_NUM_THREADS, or all "
        "cores)", least=1, most=MOST,
    )  # fmt: skip

    @property
    def runs(self) -> list[Path]:
        """The model, or those of the ensemble."""
        return [self.run, *self.ensemble]

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
        return apart([*DEFAULTS, *recipes.arguments(self.settings), *self.given_words])

    @property
    def given_words(self) -> list[str]:
        """The options of fairseq-generate that are not from `settings`."""
        named = {"--beam": self.beam, "--max-tokens": self.max_tokens}
        own = [[name, str(value)] for name, value in named.items() if value is not None]
        return [*itertools.chain(*own), *self.words]

    @property
    def beam_size(self) -> str:
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
        return f"beam{self.beam_size}" + (f"-{label}" if label else "")

    def folder_name(self, generates: bool) -> str:
        """The name of the results' folder; for a classifier, without search options."""
        name = f"{self.split}-{self.label}" + (f"-{self.search}" if generates else "")
        if self.ensemble:
            places = "\n".join(str(other.resolve()) for other in self.ensemble)
            number = hashlib.sha256(os.fsencode(places)).hexdigest()[:8]
            name += f"-ensemble{len(self.runs)}-{number}"
        return name


def apart(words: Sequence[str]) -> list[str]:
    """The words, with `--option=value` split in two."""
    return [
        word for one in words for word in (one.split("=", 1) if one.startswith("--") else [one])
    ]


def check(request: EvaluationRequest) -> None:
    """Raise a ConfigurationError for errors that can be detected before slow work starts."""
    check_path("DATA", request.data)
    check_data(request.data)
    places = [run.resolve() for run in request.runs]
    for run in request.runs:
        if run.is_file():
            raise ConfigurationError(
                f"{run} is a file, but RUN is a folder: give {run.parent}, and for this checkpoint "
                f"--checkpoint {run.name}"
            )
        if not run.is_dir():
            raise ConfigurationError(
                f"{run}: no such folder; RUN is the --save-dir of a training, or an export"
            )
        check_path("RUN", run)
        if places.count(run.resolve()) > 1:
            raise ConfigurationError(f"--ensemble: {run} is named twice: name a model once")
    behind = apart(request.words)
    for word in request.generation:
        where = "after --" if word in behind else "in --settings"
        if word in REFUSED:
            raise ConfigurationError(f"{word} is not allowed {where}: {REFUSED[word]}")


def sides(request: EvaluationRequest, other: Path) -> list[EvaluationRequest]:
    """The requests that compare a model with `other`, with the same options.

    Of an export and a training, the export gets no choice of checkpoints.
    """
    both = [request, replace(request, run=other, ensemble=())]
    none: Any = dict.fromkeys(CHOICE)
    if is_export(request.run) == is_export(other):
        return both
    return [replace(side, **none) if is_export(side.run) else side for side in both]
