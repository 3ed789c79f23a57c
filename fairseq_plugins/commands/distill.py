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
import contextlib
from pathlib import Path
from typing import Dict, List, Sequence

from fairseq_plugins.commands import needs_fairseq
from fairseq_plugins.commands._numbers import at_least
from fairseq_plugins.engine import LARGEST_PENALTY
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.quiet import only_warnings_of_fairseq
from fairseq_plugins.serving.text import LONGEST
from fairseq_plugins.workers import default_workers

KEEP = ("teacher", "nearest", "both")


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugins distill",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("data", type=Path, metavar="DATA", help="the prepared folder")
    add(
        "teachers", type=Path, nargs="+", metavar="TEACHER",
        help="a run, a checkpoint, or an exported model; several runs are an ensemble",
    )  # fmt: skip
    add("--out", type=Path, required=True, metavar="NEW", help="the folder to write")
    add(
        "--last", type=at_least(1), metavar="K",
        help="average the newest K checkpoints of each run, as evaluate does",
    )  # fmt: skip
    add(
        "--keep", choices=KEEP, default="teacher",
        help="teacher: its best text; nearest: of its --nbest best texts the one nearest to the "
        "reference by BLEU; both: its best text and the original pair (default: %(default)s)",
    )  # fmt: skip
    add(
        "--nbest", type=at_least(2), metavar="N",
        help="with --keep nearest (default: --beam)",
    )  # fmt: skip
    add(
        "--extra", type=Path, metavar="FILE",
        help="more source text, one line each, for which the teacher writes targets",
    )  # fmt: skip
    add(
        "--back-translate", type=Path, metavar="FILE",
        help="more target text, one line each, for which --reverse writes sources",
    )  # fmt: skip
    add(
        "--reverse", type=Path, nargs="+", default=[], metavar="TEACHER",
        help="a teacher of the opposite direction, for --back-translate",
    )  # fmt: skip
    add(
        "--no-tag", action="store_true",
        help="do not mark back-translated sources with a tag (an unused word of the dictionary)",
    )  # fmt: skip
    add("--beam", type=at_least(1), default=5, help="beam size (default: %(default)s)")
    add(
        "--lenpen", type=at_least(-LARGEST_PENALTY, float, LARGEST_PENALTY), default=1.0,
        help="above 1 favours long outputs (default: %(default)s)",
    )  # fmt: skip
    add(
        "--max-tokens", type=at_least(1), default=4000,
        help="subwords in a batch (default: %(default)s)",
    )  # fmt: skip
    summaries = parser.add_argument_group("summaries")
    summaries.add_argument(
        "--min-len", type=at_least(1), default=1, metavar="N",
        help="minimum length in subwords (default: %(default)s)",
    )  # fmt: skip
    summaries.add_argument(
        "--max-len", type=at_least(1), metavar="N",
        help=f"maximum length in subwords (default: {LONGEST}, or the model's limit)",
    )  # fmt: skip
    summaries.add_argument(
        "--no-repeat-ngram-size", type=at_least(0), default=3, metavar="N",
        help="no sequence of N subwords occurs twice; 0 turns this off (default: %(default)s)",
    )  # fmt: skip
    add("--cpu", action="store_true", help="do not use a GPU")
    add("--fp16", action="store_true", help="half precision, on a GPU")
    add("--int8", action="store_true", help="8-bit matrix products, on a CPU")
    add(
        "--processes", type=at_least(1), metavar="N",
        help="processes, each with a teacher (default: one per GPU; without a GPU, one per "
        "core)",
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
    return args


def main(argv: Sequence[str]) -> int:
    args = read_arguments(argv)
    needs_fairseq("distill")
    from fairseq_plugins.evaluation.teachers import Search, Teachers
    from fairseq_plugins.preparation.distillation import Request, distill, show

    search = Search(
        args.beam, args.lenpen, args.max_tokens, args.cpu, args.fp16, args.int8,
        args.min_len, args.max_len, args.no_repeat_ngram_size,
    )  # fmt: skip
    request = Request(
        args.data, args.keep, args.nbest, args.extra, args.back_translate, not args.no_tag
    )
    with only_warnings_of_fairseq():
        places: Dict[str, List[Path]] = {"TEACHER": args.teachers, "--reverse": args.reverse}
        teachers, reverse = (
            Teachers(names, args.data, args.last, search, args.processes, option) if names else None
            for option, names in places.items()
        )
        assert teachers is not None
        with teachers, reverse or contextlib.nullcontext():
            distill(request, args.out, teachers, reverse, args.processes or default_workers())
    show(args.out)
    return 0
