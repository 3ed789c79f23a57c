"""Prepare data that a teacher wrote: small models learn from large ones.

    python -m fairseq_plugins distill DATA RUN --last 10 --out NEW
    python -m fairseq_plugins distill DATA RUN_A RUN_B RUN_C --last 10 --keep nearest --out NEW
    python -m fairseq_plugins distill DATA EXPORT --extra more.de --out NEW
    python -m fairseq_plugins distill DATA RUN --back-translate more.en --reverse EN_DE --out NEW
    python -m fairseq_plugins train transformer_ftc_deep NEW

The teacher translates or summarizes the training text of DATA, a prepared folder. NEW is a prepared
folder with its output and the same subwords and dictionaries; valid and test stay original.
The teacher is a run, a checkpoint or an exported model; several runs are an ensemble. The report
gives the distance of the teacher's output from the references.

Where the teacher writes nothing, reaches its length limit or writes an unknown word, the original
is kept. Rerun to resume. Until all is done, NEW is named NEW.part.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.cli._lines import add_search, engine_options
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.arguments import add_count, add_flag, add_number, add_path, parser_of
from fairseq_plugins.options.user_dirs import add_user_dir
from fairseq_plugins.system.quiet import only_warnings_of_fairseq
from fairseq_plugins.system.workers import default_workers

KEEP = ("teacher", "nearest", "both")


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = parser_of("distill", __doc__)
    add = parser.add_argument
    add("data", type=Path, metavar="DATA", help="the prepared folder")
    add(
        "teachers", type=Path, nargs="+", metavar="TEACHER",
        help="a run, a checkpoint, an exported model or a model in the box; several runs are an "
        "ensemble",
    )  # fmt: skip
    add_path(parser, "--out", "NEW", "the folder to write", required=True)
    add_number(
        parser, "--last", "average the newest K checkpoints of each run, as evaluate does",
        metavar="K",
    )  # fmt: skip
    add(
        "--keep", choices=KEEP, default="teacher",
        help="teacher: its best text; nearest: of its --nbest best texts the one nearest to the "
        "reference by BLEU; both: its best text and the original pair (default: %(default)s)",
    )  # fmt: skip
    add_number(parser, "--nbest", "with --keep nearest (default: --beam)", least=2)
    add_path(
        parser, "--extra", "FILE", "more source text, one line each, for which the teacher writes "
        "targets",
    )  # fmt: skip
    add_path(
        parser, "--back-translate", "FILE", "more target text, one line each, for which --reverse "
        "writes sources",
    )  # fmt: skip
    add_path(
        parser, "--reverse", "TEACHER", "a teacher of the opposite direction, for --back-translate",
        nargs="+", default=[],
    )  # fmt: skip
    add_flag(
        parser, "--no-tag", "do not mark back-translated sources with a tag (an unused word of the "
        "dictionary)",
    )  # fmt: skip
    add_search(parser, "outputs", "that of translate or summarize")
    add_number(parser, "--max-tokens", "subwords in a batch", 4000)
    add_user_dir(parser)
    add_flag(parser, "--cpu", "do not use a GPU")
    add_count(
        parser, "--processes", "processes, each with a teacher (default: one per GPU; without a "
        "GPU, one per core)",
    )  # fmt: skip
    args = parser.parse_args(argv)
    if args.nbest is None:
        args.nbest = args.beam if args.keep == "nearest" else 1
    elif args.keep != "nearest":
        raise ConfigurationError(f"--nbest {args.nbest} needs --keep nearest: add it")
    if args.keep == "nearest" and not 2 <= args.nbest <= args.beam:
        raise ConfigurationError(
            f"--keep nearest chooses among --nbest {args.nbest} texts of --beam {args.beam}: give "
            "--nbest of at least 2 and at most the beam"
        )
    if (args.back_translate is None) != (not args.reverse):
        raise ConfigurationError(
            "--back-translate FILE and --reverse TEACHER go together: give both"
        )
    if args.no_tag and not args.reverse:
        raise ConfigurationError("--no-tag needs --back-translate: remove it")
    return args


@only_warnings_of_fairseq()
def main(argv: Sequence[str]) -> int:
    args = read_arguments(argv)
    needs_fairseq("distill", args.user_dir)
    from fairseq_plugins.data.report import show
    from fairseq_plugins.distill.distillation import DistillationRequest, distill
    from fairseq_plugins.distill.teachers import Teacher

    search = {**engine_options(args), "max_len": args.max_len}
    search["user_dir"] = list(map(str, search["user_dir"]))
    del search["data"]  # which is not what a teacher was trained on
    request = DistillationRequest(
        args.data, args.keep, args.extra, args.back_translate, not args.no_tag
    )
    how = (args.data, args.last)
    teacher = Teacher.of(args.teachers, *how, search, "TEACHER")
    reverse = None
    if args.reverse:
        reverse = Teacher.of(args.reverse, *how, {**search, "nbest": 1}, "--reverse")
    workers = args.processes or default_workers()
    distill(request, args.out, teacher, reverse, args.processes, workers)
    show(args.out)
    return 0
