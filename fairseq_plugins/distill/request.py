"""What to distill. Nothing here needs torch or fairseq."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.arguments import Command
from fairseq_plugins.options.fields import MOST, REQUIRED, argument, option, values_of
from fairseq_plugins.options.groups import Device, Precision
from fairseq_plugins.options.search import BeamSearch

KEEP = ("teacher", "nearest", "both")


@dataclass
class DistillationRequest(Precision, BeamSearch, Device, Command):
    """The teachers, their data and how they search: the options of the command."""

    data: Path = argument("the prepared folder", "DATA")
    teachers: Sequence[Path] = argument(
        "a run, a checkpoint, an exported model or a bundled model; several runs form an ensemble",
        "TEACHER",
    )
    out: Path = option(REQUIRED, "the folder to write", metavar="NEW")
    last: int | None = option(
        None, "average the newest K checkpoints of each run, as evaluate does", least=1,
        metavar="K",
    )  # fmt: skip
    keep: str = option(
        "teacher", "teacher: its best text; nearest: of its --nbest best texts the one nearest to "
        "the reference by BLEU; both: its best text and the original pair", choices=KEEP,
    )  # fmt: skip
    nbest: int | None = option(
        None, "the number of texts that --keep nearest chooses among (default: the beam size)",
        least=2,
    )  # fmt: skip
    extra: Path | None = option(
        None, "more source text, one line each, for which the teacher writes targets",
        metavar="FILE",
    )  # fmt: skip
    back_translate: Path | None = option(
        None, "more target text, one line each, for which --reverse writes sources", metavar="FILE",
        needs="reverse",
    )  # fmt: skip
    reverse: Sequence[Path] = option(
        (), "a teacher of the opposite direction, for --back-translate", metavar="TEACHER",
        needs="back_translate",
    )  # fmt: skip
    no_tag: bool = option(
        False,
        "do not mark back-translated sources with a tag, which is an unused word of the dictionary",
        needs="back_translate",
    )
    max_len: int | None = option(
        None, "the maximum length of an output in subwords (default: that of translate or "
        "summarize)", least=1,
    )  # fmt: skip
    max_tokens: int | None = option(
        None, "the number of tokens in a batch, including padding (default: 4000; for checkpoints "
        "on a GPU, as many as its memory allows)", least=1,
    )  # fmt: skip
    processes: int | None = option(
        None, "the number of processes, each with a teacher (default: one per GPU; without a GPU, "
        "one per core)", least=1, most=MOST,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nbest is None:
            self.nbest = self.beam if self.keep == "nearest" else 1
        elif self.keep != "nearest":
            raise ConfigurationError(f"--nbest {self.nbest} needs --keep nearest: add it")
        if self.keep == "nearest" and not 2 <= self.nbest <= self.beam:
            raise ConfigurationError(
                f"--keep nearest chooses among --nbest {self.nbest} texts of --beam {self.beam}: "
                "give --nbest of at least 2 and at most the beam"
            )
        if self.max_len is not None and self.min_len > self.max_len:
            raise ConfigurationError(
                f"--min-len {self.min_len} is above --max-len {self.max_len}: change one of them"
            )

    @property
    def search(self) -> dict[str, Any]:
        """The options of `Translator` or `Summarizer`."""
        found = values_of(self, BeamSearch, Precision, Device)
        user_dir = list(map(str, self.user_dir))
        return {**found, "nbest": self.nbest, "max_tokens": self.max_tokens, "user_dir": user_dir}
