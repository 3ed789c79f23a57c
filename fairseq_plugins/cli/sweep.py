"""Train, test and compare the rows of a table of your own: options x seeds.

    fairseq-plugins sweep TABLE.yaml DATA --parallel 2
    fairseq-plugins sweep TABLE.yaml DATA --rows ftc window-4 --seeds 1 2
    fairseq-plugins sweep TABLE.yaml DATA --out OUT --report-only     # table and plot again
    fairseq-plugins sweep TABLE.yaml DATA --slurm "--gpus 1 --time 8:00:00"

{table}
DATA is the folder that a prepare-* command made. Options come from the recipe, the table, the row,
and last those after --. Rerun to resume: finished runs are kept, and --minutes ends a call. --out
gets table.md, results.json, a plot, and in `runs` the folder of each row and seed. The table has
the mean and deviation of each score, p of the difference to the first row with the same seed
(paired bootstrap), parameters, operations and the time of an update. --slurm submits a job for each
row with sbatch, which gets these words; when they have ended, make the table with --report-only.
"""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import read_json
from fairseq_plugins.options import recipes
from fairseq_plugins.options.arguments import (
    add_count,
    add_flag,
    add_number,
    add_path,
    at_least,
    parser_of,
    split,
)
from fairseq_plugins.options.user_dirs import add_user_dir
from fairseq_plugins.system.quiet import only_warnings_of_fairseq
from fairseq_plugins.train import precision


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of a sweep, which `reproduce` has, too."""
    parser.add_argument("--rows", nargs="+", default=[], metavar="ROW", help="default: all")
    parser.add_argument(
        "--seeds", nargs="+", type=at_least(0), default=[], metavar="N",
        help="default: those of the table",
    )  # fmt: skip
    parser.add_argument(
        "--settings", action="append", default=[], metavar="FILE",
        help="settings that replace the recipes', as for train; repeatable",
    )  # fmt: skip
    average = "test the average of the last K checkpoints; 0: the best (default: the table's)"
    add_number(parser, "--average", average, least=0, metavar="K")
    parser.add_argument(
        "--generate", default="", type=shlex.split, metavar="WORDS",
        help='more options for fairseq-generate, in one word: "--lenpen 0.6"',
    )  # fmt: skip
    add_number(parser, "--max-update", "end each run there")
    add_number(
        parser, "--minutes", "stop everything after this time, plus half a minute to save; rerun "
        "to resume", least=0.01, kind=float, metavar="M",
    )  # fmt: skip
    add_count(
        parser, "--parallel", "runs side by side: on several GPUs each has its own, as far as they "
        "go", 1,
    )  # fmt: skip
    add_count(parser, "--processes", "processes that share each training", 1)
    threads = "processor threads of each process (default: OMP_NUM_THREADS, or the cores shared)"
    add_count(parser, "--threads", threads)
    parser.add_argument("--precision", choices=precision.PRECISIONS, help=precision.HELP)
    add_user_dir(parser)
    add_flag(parser, "--cpu", "do not use a GPU")
    add_flag(parser, "--report-only", "only make table and plot again, from results.json")


def request_of(args: argparse.Namespace, table: Any, **more: Any) -> Any:
    """The `SweepRequest` of the arguments."""
    from fairseq_plugins.system.cpu import available_threads
    from fairseq_plugins.train.sweep import SweepRequest

    given = {name: value for name, value in vars(args).items() if name in SweepRequest._fields}
    first = recipes.find(table.rows[0].recipe, more.get("beside", ()))
    folders = [*more.get("beside", ()), *recipes.folders(first)]
    given.update(
        table=table,
        seeds=list(dict.fromkeys(args.seeds)),
        settings=[recipes.find(name, folders) for name in args.settings],
        threads=args.threads or available_threads(args.parallel * args.processes),
        **more,
    )
    return SweepRequest(**given)


def check_failures(work: Any) -> None:
    """Raise a ConfigurationError if runs failed."""
    if work.failures:
        failed = "; ".join(f"{each['run']}: {each['message']}" for each in work.failures)
        raise ConfigurationError(f"failed: {failed}")


def write_report(results: dict[str, Any], folder: Path, conclusions: Sequence[str] = ()) -> None:
    """Write and print the table, and draw the plot."""
    from fairseq_plugins.train import sweep_report

    written = [folder / "results.json", sweep_report.write_table(results, folder, conclusions)]
    print("\n" + sweep_report.table(results, conclusions))
    try:
        written.append(sweep_report.plot(results, folder / "scores.svg"))
    except ImportError:
        print("no plot: matplotlib is missing (pip install matplotlib, then --report-only)")
    print("written: " + " ".join(map(str, written)))


def submit(args: argparse.Namespace, argv: Sequence[str], rows: Sequence[Any]) -> None:
    """Submit a job for each row.

    Raises:
        ConfigurationError: sbatch is missing or rejected a job.
    """
    args.out.mkdir(parents=True, exist_ok=True)
    own, extra = split(argv)
    place = next(n for n, word in enumerate(own) if word.split("=")[0] == "--slurm")
    own[place : place + (1 if "=" in own[place] else 2)] = []
    words = [*own, "--out", str(args.out)]
    for row in rows:
        command = [sys.executable, "-m", "fairseq_plugins", "sweep", *words, "--rows", row.name]
        command += ["--", *extra] if extra else []
        job = ["sbatch", "--job-name", row.name, "--output", f"{args.out}/{row.name}.slurm.log"]
        try:
            done = subprocess.run(
                [*job, *args.slurm, "--wrap", shlex.join(command)], capture_output=True, text=True
            )
        except FileNotFoundError:
            raise ConfigurationError("--slurm: there is no sbatch on this machine") from None
        if done.returncode != 0:
            raise ConfigurationError(f"--slurm: sbatch rejected {row.name}: {done.stderr.strip()}")
        print(f"{row.name}: {done.stdout.strip()}")


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments; `.words` holds the options after the first ``--``."""
    from fairseq_plugins.train import sweep_table

    own, extra = split(argv)
    example = (sweep_table.__doc__ or "").split("\n", 2)[2]
    about = (__doc__ or "").replace("{table}", f"TABLE.yaml, for example:\n\n{example}")
    usage = "%(prog)s TABLE DATA [options] [-- more options for fairseq-train]"
    parser = parser_of("sweep", about, usage=usage, allow_abbrev=False)
    parser.add_argument("table", type=Path, metavar="TABLE", help="the table, a YAML file")
    parser.add_argument("data", type=Path, metavar="DATA", help="the prepared folder")
    add_path(parser, "--out", "DIR", "where to work (default: runs/sweep_TABLE)")
    add_options(parser)
    slurm = 'submit a job for each row, with these words for sbatch: "--gpus 1"'
    parser.add_argument("--slurm", type=shlex.split, metavar="WORDS", help=slurm)
    args = parser.parse_args(own)
    args.words, args.out = extra, args.out or Path("runs", f"sweep_{args.table.stem}")
    return args


def main(argv: Sequence[str]) -> int:
    from fairseq_plugins.train.sweep_table import read_table

    args = read_arguments(argv)
    table = read_table(args.table)
    if args.slurm is not None:
        submit(args, argv, table.choose_rows(args.rows))
        return 0
    needs_fairseq("sweep", args.user_dir)
    from fairseq_plugins.train import sweep
    from fairseq_plugins.train.log import tell

    with only_warnings_of_fairseq():  # it tells of models that are checked
        work = sweep.Sweep(request_of(args, table), tell)
        if args.report_only:
            work.compare()
        else:
            work.finish_all()
        work.write_results()
    write_report(read_json(args.out / "results.json"), args.out)
    check_failures(work)
    return 0
