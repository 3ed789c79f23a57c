"""Score a trained model: BLEU, chrF, ROUGE, accuracy; compare two models.

    python -m fairseq_plugins evaluate DATA RUN --last 10
    python -m fairseq_plugins evaluate DATA RUN --last 10 --compare RUN_B
    python -m fairseq_plugins evaluate DATA RUN --last 10 --ensemble RUN_B RUN_C
    python -m fairseq_plugins evaluate DATA RUN --settings generate_cnn_dm

DATA is the prepared folder, RUN the --save-dir of a training, or an export. Each score is printed
with its signature. Translation:

  tokenised BLEU  lower-case Moses tokens, not smoothed, as papers report it (multi-bleu.perl -lc);
                  not for text without spaces between words
  BLEU, chrF2     sacreBLEU's, on detokenised text, in the case the model was trained for

Summarization: ROUGE-1, 2, L and Lsum with Porter's stemmer and 95 % intervals. The ROUGE-L that
papers report is summary-level: compare it with ROUGE-Lsum.

Classification: accuracy and macro F1 in percent, with 95 % intervals of the bootstrap.

Without --last, --best or --checkpoint, checkpoint_best.pt is scored. Results are kept in
RUN/evaluation and computed again only if checkpoints, data or options differ. Rerun to resume.
"""

import argparse
import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import write_json
from fairseq_plugins.options import recipes
from fairseq_plugins.options.arguments import (
    add_count,
    add_flag,
    add_number,
    add_path,
    parser_of,
    split,
)
from fairseq_plugins.options.user_dirs import add_user_dir
from fairseq_plugins.system.quiet import only_warnings_of_fairseq

if TYPE_CHECKING:
    from fairseq_plugins.evaluate.evaluate import Opened
    from fairseq_plugins.evaluate.request import EvaluationRequest


def read_arguments(own: Sequence[str]) -> argparse.Namespace:
    parser = parser_of(
        "evaluate",
        __doc__,
        usage="%(prog)s DATA RUN [options] [-- more options for fairseq-generate]",
        allow_abbrev=False,
    )
    parser.add_argument("data", type=Path, metavar="DATA", help="the prepared folder")
    parser.add_argument(
        "run", type=Path, metavar="RUN", help="the --save-dir of a training, or an export"
    )
    parser.add_argument("--split", default="test", help="valid or test (default: %(default)s)")
    which = parser.add_mutually_exclusive_group()
    add_number(which, "--last", "average the newest K checkpoints", metavar="K")
    add_number(
        which, "--best", "average the best K that training kept (--keep-best-checkpoints)",
        metavar="K",
    )  # fmt: skip
    which.add_argument("--checkpoint", metavar="NAME", help="score this checkpoint of RUN")
    parser.add_argument(
        "--by", choices=["epoch", "update"],
        help="what --last counts (default: epochs where training kept their checkpoints)",
    )  # fmt: skip
    parser.add_argument(
        "--settings", action="append", default=[], metavar="FILE",
        help="how to generate: a YAML file, or generate_{cnn_dm,pubmed,headlines}; repeatable",
    )  # fmt: skip
    parser.add_argument("--beam", metavar="N", help="beam size (default: 5)")
    parser.add_argument(
        "--max-tokens", metavar="N", help="source tokens in a batch (default: 4096)"
    )
    add_path(
        parser, "--ensemble", "RUN_B", "score RUN and these trainings as one ensemble, selecting "
        "checkpoints alike", nargs="+", default=[],
    )  # fmt: skip
    add_path(
        parser, "--compare", "RUN_B", "also score this training, and test the difference by paired "
        "bootstrap",
    )  # fmt: skip
    add_number(parser, "--examples", "print N outputs of the model", 0, least=0)
    add_number(
        parser, "--at-least", "exit with status 1 if BLEU, ROUGE-1 or accuracy is lower",
        least=0, kind=float, metavar="SCORE",
    )  # fmt: skip
    add_flag(
        parser, "--unicode", "ROUGE on words of any script, without a stemmer (default: letters a "
        "to z and digits)",
    )  # fmt: skip
    add_user_dir(parser)
    add_flag(parser, "--cpu", "do not use a GPU")
    add_count(
        parser, "--threads", "processor threads, without a GPU (default: OMP_NUM_THREADS, or all "
        "cores)",
    )  # fmt: skip
    return parser.parse_args(own)


def read_request(args: argparse.Namespace, extra: Sequence[str]) -> "EvaluationRequest":
    """The evaluation that the arguments and the options after -- describe."""
    from fairseq_plugins.evaluate.request import EvaluationRequest

    words = list(extra)
    for option, value in (("--beam", args.beam), ("--max-tokens", args.max_tokens)):
        words = [option, value, *words] if value is not None else words
    return EvaluationRequest(
        args.data, args.run, args.split, args.last, args.best, args.checkpoint, args.by,
        [recipes.find(name) for name in args.settings], words, args.cpu, args.unicode, args.threads,
        ensemble=args.ensemble,
    )  # fmt: skip


@only_warnings_of_fairseq()
def main(argv: Sequence[str]) -> int:
    own, extra = split(argv)
    args = read_arguments(own)
    needs_fairseq("evaluate", args.user_dir)
    from fairseq_plugins.evaluate.evaluate import evaluate, open_request
    from fairseq_plugins.evaluate.request import sides

    request = read_request(args, extra)
    if args.compare is not None:
        request, other = sides(request, args.compare)
    opened = open_request(request)  # fail before minutes of work
    if args.compare is not None:
        against = open_request(other)
        if _references(opened) != _references(against):
            raise ConfigurationError(
                f"--compare {args.compare} and {args.run} have different references: compare "
                "models of one task and direction"
            )
    system = evaluate(request, _say, opened)
    lines = [*system.test.examples(system.output, args.examples), *system.lines()]
    try:
        if args.compare is not None:
            baseline = evaluate(other, _say, against)
            found = system.test.compare(system.output, baseline.output)
            name = f"against-{_name(args.compare, args.run)}.json"
            result = {"data": str(args.data), "baseline": baseline.name, "scores": found}
            write_json(system.folder / name, result)
            lines += [*baseline.lines(), *_differences(system.name, baseline.name, found)]
            lines += [f"written: {system.folder}/scores.json, {name}"]
    finally:  # also if the baseline fails
        print("\n".join(lines))  # last, as the reader may go away, such as head
    name = "BLEU" if "BLEU" in system.scores else next(iter(system.scores))
    if args.at_least is not None and system.scores[name]["score"] < args.at_least:
        reached = system.scores[name]["score"]
        raise ConfigurationError(f"{name} {reached:.2f} is below --at-least {args.at_least:g}")
    return 0


def _differences(name: str, baseline: str, found: dict[str, dict[str, Any]]) -> list[str]:
    """The result of a comparison as lines of text for the terminal."""
    lines = [f"{name} against {baseline}"]
    for score, result in found.items():
        lines.append(
            f"  {score} {result['difference']:+.2f}, p = {result['p']:.4f}, {result['sides']}: "
            "{:.2f} ({:.2f} - {:.2f}) against {:.2f} ({:.2f} - {:.2f})  {}".format(
                result["score"],
                *result["interval"],
                result["baseline"],
                *result["baseline_interval"],
                result["signature"],
            )
        )
    return lines


def _name(other: Path, run: Path) -> str:
    """The name of a folder, plus a hash of its path if it is not beside `run`."""
    other = other.resolve()
    if other.parent == run.resolve().parent:
        return other.name
    return f"{other.name}-{hashlib.sha256(os.fsencode(other)).hexdigest()[:8]}"


def _references(opened: "Opened") -> Any:
    """What the output is scored against."""
    return type(opened.test), opened.test.references


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
