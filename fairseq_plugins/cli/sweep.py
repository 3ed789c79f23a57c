"""Train, test and compare the rows of a table of your own: options x seeds.

    fairseq-plugins sweep TABLE.yaml DATA --parallel 2
    fairseq-plugins sweep TABLE.yaml DATA --rows ftc window-4 --seeds 1 2
    fairseq-plugins sweep TABLE.yaml DATA --out OUT --report-only     # table and plot again
    fairseq-plugins sweep TABLE.yaml DATA --slurm "--gpus 1 --time 8:00:00"

{table}
DATA is the folder that a prepare-* command made. Options come from the recipe, the table, the row,
and finally from after --. Rerun to resume: finished runs are kept, and --minutes ends a call. --out
gets table.md, results.json, a plot, and in `runs` the folder of each row and seed. The table has
the mean and deviation of each score, p of the difference to the first row with the same seed
(paired bootstrap), parameters, operations and the time of an update. --slurm submits a job for each
row with sbatch, which gets these words; when they have ended, make the table with --report-only.
"""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.data.prepared_folder import check_data
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import read_json
from fairseq_plugins.options.arguments import command, words_of
from fairseq_plugins.options.fields import argument, option
from fairseq_plugins.system.quiet import only_warnings_of_fairseq
from fairseq_plugins.train import sweep_table
from fairseq_plugins.train.sweep_request import SweepRequest, arguments_in
from fairseq_plugins.train.sweep_table import read_table

EXAMPLE = (sweep_table.__doc__ or "").split("\n", 2)[2]
__doc__ = (__doc__ or "").replace("{table}", f"TABLE.yaml, for example:\n\n{EXAMPLE}")


@dataclass
class SweepCommand(SweepRequest):
    """The options of the command."""

    table: Path = argument("the table, a YAML file", "TABLE")
    data: Path = argument("the prepared folder", "DATA")
    out: Path | None = option(
        None, "the folder to work in (default: runs/sweep_TABLE)", metavar="DIR"
    )
    slurm: str | None = option(
        None, 'submit a job for each row, with these options of sbatch: "--gpus 1"',
        metavar="OPTIONS",
    )  # fmt: skip


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


def submit(args: SweepCommand, out: Path, rows: Sequence[Any]) -> None:
    """Submit a job for each row.

    Raises:
        ConfigurationError: the data cannot be used, or sbatch is missing or rejected a job.
    """
    check_data(args.data)
    out.mkdir(parents=True, exist_ok=True)
    options = arguments_in("--slurm", args.slurm or "")
    for row in rows:
        words = words_of(replace(args, slurm=None, out=out, rows=[row.name]))
        command = [sys.executable, "-m", "fairseq_plugins", "sweep", *words]
        job = ["sbatch", "--job-name", row.name, "--output", f"{out}/{row.name}.slurm.log"]
        try:
            done = subprocess.run(
                [*job, *options, "--wrap", shlex.join(command)],
                capture_output=True,
                text=True,
            )
        except FileNotFoundError:
            raise ConfigurationError("--slurm: there is no sbatch on this machine") from None
        if done.returncode != 0:
            raise ConfigurationError(f"--slurm: sbatch rejected {row.name}: {done.stderr.strip()}")
        print(f"{row.name}: {done.stdout.strip()}")


@command
def main(args: SweepCommand) -> None:
    table = read_table(args.table)
    out = args.out or Path("runs", f"sweep_{args.table.stem}")
    if args.slurm is not None:
        submit(args, out, table.choose_rows(args.rows))
        return
    needs_fairseq("sweep", args.user_dir)
    from fairseq_plugins.train import sweep
    from fairseq_plugins.train.log import tell

    with only_warnings_of_fairseq():  # it tells of models that are checked
        work = sweep.Sweep(args, table, args.data, out, tell)
        work.finish_all()
    write_report(read_json(out / "results.json"), out)
    check_failures(work)
