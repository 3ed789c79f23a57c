"""Prepare data that a teacher wrote: small models learn from large ones.

    fairseq-plugins distill DATA RUN --last 10 --out NEW
    fairseq-plugins distill DATA RUN_A RUN_B RUN_C --last 10 --keep nearest --out NEW
    fairseq-plugins distill DATA EXPORT --extra more.de --out NEW
    fairseq-plugins distill DATA RUN --back-translate more.en --reverse EN_DE --out NEW
    fairseq-plugins train transformer_ftc_deep NEW

The teacher translates or summarizes the training text of DATA, a prepared folder. NEW is a prepared
folder with its output and the same subwords and dictionaries; the validation and test sets stay
original.
The teacher is a run, a checkpoint or an exported model; several runs are an ensemble. The report
gives the distance of the teacher's output from the references.

Where the teacher writes nothing, reaches its length limit or writes an unknown word, the original
is kept. Rerun to resume. Until all is done, NEW is named NEW.part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.cli._lines import Lines
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import MOST, REQUIRED, argument, option, values_of, with_default
from fairseq_plugins.options.groups import Device, Precision
from fairseq_plugins.options.search import BeamSearch
from fairseq_plugins.system.quiet import only_warnings_of_fairseq

KEEP = ("teacher", "nearest", "both")


@dataclass
class Distill(Precision, BeamSearch, Device, Command):
    """The options of the command."""

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
    )  # fmt: skip
    reverse: Sequence[Path] = option(
        (), "a teacher of the opposite direction, for --back-translate", metavar="TEACHER"
    )
    no_tag: bool = option(
        False,
        "do not mark back-translated sources with a tag, which is an unused word of the dictionary",
    )
    max_len: int | None = option(
        None, "the maximum length of an output in subwords (default: that of translate or "
        "summarize)", least=1,
    )  # fmt: skip
    max_tokens: int | None = with_default(Lines, "max_tokens", None)
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
        if (self.back_translate is None) != (not self.reverse):
            raise ConfigurationError(
                "--back-translate FILE and --reverse TEACHER go together: give both"
            )
        if self.no_tag and not self.reverse:
            raise ConfigurationError("--no-tag needs --back-translate: remove it")


@command
@only_warnings_of_fairseq()
def main(args: Distill) -> None:
    needs_fairseq("distill", args.user_dir)
    from fairseq_plugins.data.report import show
    from fairseq_plugins.distill.distillation import Distillation
    from fairseq_plugins.distill.teachers import Teacher

    search = values_of(args, BeamSearch, Precision, Device)
    search["user_dir"] = list(map(str, args.user_dir))
    search.update(nbest=args.nbest, max_len=args.max_len, max_tokens=args.max_tokens)
    if "no_repeat_ngram" not in args.given:  # what the teacher writes decides
        search["no_repeat_ngram"] = None
    how = (args.data, args.last)
    teacher = Teacher.of(args.teachers, *how, search, "TEACHER")
    reverse = None
    if args.reverse:
        reverse = Teacher.of(args.reverse, *how, {**search, "nbest": 1}, "--reverse")
    Distillation(
        args.out, args.data, teacher, reverse, args.keep, args.extra, args.back_translate,
        not args.no_tag, args.processes,
    ).run()  # fmt: skip
    show(args.out)
