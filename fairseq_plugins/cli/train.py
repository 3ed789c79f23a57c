"""Train a recipe (a YAML file) on this machine's GPUs or CPU; rerun to resume."""

import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from fairseq_plugins.cli import needs_fairseq, run
from fairseq_plugins.options import recipes
from fairseq_plugins.options.arguments import (
    Parser,
    add_count,
    add_flag,
    add_number,
    add_path,
    split,
)
from fairseq_plugins.options.user_dirs import add_user_dir
from fairseq_plugins.train import precision
from fairseq_plugins.train.log import tell
from fairseq_plugins.train.request import TrainingRequest
from fairseq_plugins.train.supervise import supervise


def read_request(argv: Sequence[str]) -> TrainingRequest:
    """The request that the command line describes.

    Raises:
        ConfigurationError: a recipe or settings file does not exist.
    """
    own, extra = split(argv)
    parser = Parser(
        prog="python -m fairseq_plugins train",
        usage="%(prog)s RECIPE DATA [options] [-- more options for fairseq-train]",
        description="Train a recipe on a prepared folder. Rerun to resume. Options after -- "
        "override --settings, which override the recipe.",
        epilog="recipes: " + ", ".join(recipes.names()),
        allow_abbrev=False,
    )
    parser.add_argument("recipe", metavar="RECIPE", help="a YAML file, or a name listed below")
    parser.add_argument("data", type=Path, metavar="DATA", help="the prepared folder")
    add_path(parser, "--save-dir", "DIR", "default: runs/RECIPE in the current folder")
    parser.add_argument(
        "--settings", action="append", default=[], metavar="FILE",
        help="more settings: a YAML file like a recipe, a file of command-line options, or a name "
        "from the recipe's folder, such as reduced_cpu; repeatable: later files win",
    )  # fmt: skip
    add_count(
        parser, "--processes", "processes on this machine (default: one per GPU, or 1 without a "
        "GPU)",
    )  # fmt: skip
    add_number(
        parser, "--tokens-per-process", "limit of tokens per batch, to save memory; each update "
        "then accumulates more batches",
    )  # fmt: skip
    several = "number of machines; run the same command on each, with --rendezvous"
    add_count(parser, "--nodes", several, 1)
    parser.add_argument(
        "--rendezvous",
        metavar="HOST:PORT",
        help="the name of one of the machines, and a free port on it",
    )
    parser.add_argument(
        "--precision", choices=precision.PRECISIONS, default="auto",
        help=precision.HELP + " (default: %(default)s)",
    )  # fmt: skip
    add_flag(parser, "--cpu", "do not use a GPU")
    add_count(
        parser, "--threads", "processor threads of each process on a CPU (default: "
        "OMP_NUM_THREADS, or the cores are shared)",
    )  # fmt: skip
    add_flag(
        parser, "--eager", "on one GPU, launch the kernels of a step one by one (default: "
        "translators and summarizers in half precision capture whole steps: --cuda-graphs)",
    )  # fmt: skip
    add_user_dir(parser)
    add_flag(
        parser, "--dry-run", "write nothing: make some updates, and report the time, the number of "
        "parameters and the command",
    )  # fmt: skip
    args = vars(parser.parse_args(own))
    recipe = recipes.find(args.pop("recipe"))
    files = [recipes.find(name, recipes.folders(recipe)) for name in args.pop("settings")]
    return TrainingRequest(recipe=recipe, settings=files, words=extra, **args)


def main(argv: Sequence[str]) -> int:
    return supervise(read_request(argv), argv)


def train_here(argv: Sequence[str]) -> int:
    """Train in this process, which `supervise` has started."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # `compat.stopping` takes it once there is state
        signal.signal(number, signal.SIG_DFL)
    request = read_request(argv)
    needs_fairseq("train", request.user_dir)
    from fairseq_plugins.train import launch, planning

    plan = planning.plan(request)
    if request.dry_run:
        launch.rehearse(plan)
        return 0
    tell(f"command: {shlex.join(plan.command)}")
    launch.train(plan)
    return 0


if __name__ == "__main__":
    sys.exit(run("train", train_here, sys.argv[1:]))
