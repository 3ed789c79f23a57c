"""Reproduce a table of a paper or of this project: train and test every row.

    fairseq-plugins reproduce fastformer-imdb DATA --reduced       # on two CPU cores
    fairseq-plugins reproduce mscffn-text DATA --seeds 1 2 3 4 5   # on one GPU
    fairseq-plugins reproduce ftc DATA --parallel 4 -- --bf16
    fairseq-plugins reproduce translation DATA --minutes 9 --parallel 4
    fairseq-plugins reproduce ftc --report-only --out DIR          # table and plot again

TABLE is one of

{tables}

It is a `sweep` of a table of this package (`lab/tables/TABLE.yaml`), whose report compares with the
paper's figures. DATA is the folder that a prepare-* command made. --reduced takes a small model and
few updates, for small data on two CPU cores. ftc: the paper does not say how long it trained: runs
end after the recipes' 50,000 updates, in float32. translation, multi30k: a run ends after 10 epochs
without a gain on the validation set; its last 10 checkpoints are averaged. low-resource: the
learning rate falls to 0 within 14,000 updates, or --max-update; the last 5 are averaged.

Settings are those of the recipes and the table, then --settings files, then the options after --.
Runs end earlier with --max-update. Rerun to resume; finished runs are kept. To train one longer,
raise --max-update, or --max-epoch after --; if its learning rate has ended, choose another --out.
--minutes ends the call: runs save their state and stop.

With --report-only, --beside names results on more or less data, and scores are also plotted against
the number of pairs:

    fairseq-plugins reproduce low-resource --report-only --out ALL --beside HALF QUARTER

The folder of --out gets table.md, a plot of the scores, results.json with everything, and the runs
with their logs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.cli import needs_fairseq, sweep
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import read_json
from fairseq_plugins.lab.reproduction.tables import FILES, LAB, RECIPES, table_of
from fairseq_plugins.options.arguments import command
from fairseq_plugins.options.fields import argument, option
from fairseq_plugins.system.quiet import only_warnings_of_fairseq
from fairseq_plugins.train.sweep_request import SweepRequest

TABLES = "\n".join(
    f"  {name:<26} {' '.join(row.name for row in table_of(name).rows)}" for name in FILES
)
__doc__ = (__doc__ or "").replace("{tables}", TABLES)


@dataclass
class Reproduce(SweepRequest):
    """The options of the command."""

    table: str = argument("one of those above, with their rows", "TABLE", choices=list(FILES))
    data: Path | None = option(None, "the data folder", metavar="DATA", positional=True, nargs="?")
    out: Path | None = option(None, "the folder (default: runs/reproduce_TABLE)", metavar="DIR")
    reduced: bool = option(False, "take the table's size for two CPU cores")
    beside: Sequence[Path] = option(
        (), "with --report-only: folders of the same table on more or less data, to plot scores "
        "against the number of training pairs", metavar="OUT", needs="report_only",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        self.user_dir = [LAB, *self.user_dir]

    @property
    def folder(self) -> Path:
        return self.out or Path("runs", f"reproduce_{self.table}")


def open_table(args: Reproduce, say: Any) -> Any:
    """The checked runs of the arguments.

    Raises:
        ConfigurationError: the data, a row, a seed or an option is invalid.
    """
    needs_fairseq("reproduce", args.user_dir)
    from fairseq_plugins.lab.reproduction import runs

    if args.data is None:
        raise ConfigurationError("DATA is missing: give a prepared folder")
    table = table_of(args.table).reduce() if args.reduced else table_of(args.table)
    how = args, table, args.data, args.folder, say, [RECIPES]
    return runs.Reproduction(args.table, args.reduced, *how)


def read_results(folder: Path, table: str, option: str) -> dict[str, Any]:
    """The results of a table in a folder that an option names.

    Raises:
        ConfigurationError: the folder has none, or those of another table.
    """
    results = read_json(folder / "results.json")
    if not isinstance(results, dict) or results.get("table") != table:
        raise ConfigurationError(
            f"{option}: {folder} has no results.json of {table}: name another folder, or its table"
        )
    return results


def report_only(folder: Path, table: str, beside: Sequence[Path] = ()) -> None:
    """Table and plots from results.json only."""
    from fairseq_plugins.lab.reproduction import agreement, plots

    results = read_results(folder, table, "--out")
    others = [read_results(other, table, "--beside") for other in beside]
    sizes = {results["data"]["pairs"]["train"]}
    for path, other in zip(beside, others):
        pairs = other["data"]["pairs"]["train"]
        if other["reduced"] != results["reduced"] or pairs in sizes:
            what = f"{pairs:,} training pairs" if pairs in sizes else "another size of models"
            raise ConfigurationError(
                f"--beside: {path} has {what}: name one folder for each number of pairs, all "
                f"{'reduced' if results['reduced'] else 'of full size'}"
            )
        sizes.add(pairs)
    sweep.write_report(results, folder, agreement.agreement(results))
    if others:
        print(f"written: {plots.plot(results, others, folder)}")


@command
def main(args: Reproduce) -> None:
    if args.report_only:
        report_only(args.folder, args.table, args.beside)
        return
    from fairseq_plugins.train.log import tell

    with only_warnings_of_fairseq():  # it tells of models that are checked
        work = open_table(args, tell)
        work.finish_all()
    report_only(args.folder, args.table)
    sweep.check_failures(work)
