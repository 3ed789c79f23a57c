"""Reproduce a table of a paper or of this project: train and test every row.

    python -m fairseq_plugins reproduce fastformer-imdb DATA --reduced       # on two CPU cores
    python -m fairseq_plugins reproduce mscffn-text DATA --seeds 1 2 3 4 5   # on one GPU
    python -m fairseq_plugins reproduce ftc DATA --parallel 4 -- --bf16
    python -m fairseq_plugins reproduce translation DATA --minutes 9 --parallel 4
    python -m fairseq_plugins reproduce ftc --report-only --out DIR          # table and plot again

TABLE is one of

{tables}

DATA is the folder that a prepare-* command made. --reduced takes a small model and few updates, for
small data on two CPU cores. ftc: the paper does not say how long it trained: runs end after the
recipes' 50,000 updates, in float32. translation, multi30k: a run ends after 10 epochs without a
gain on valid; its last 10 checkpoints are averaged. low-resource: the learning rate falls to 0
within 14,000 updates, or --max-update; the last 5 checkpoints are averaged.

Settings are those of the recipes and the table, then --settings files, then the options after --.
Runs end earlier with --max-update. Rerun to resume; finished runs are kept. To train one longer,
raise --max-update, or --max-epoch after --; if its learning rate has ended, choose another --out.
--minutes ends the call: runs save their state and stop.

With --report-only, --beside names results on more or less data, and scores are also plotted against
the number of pairs:

    python -m fairseq_plugins reproduce low-resource --report-only --out ALL --beside HALF QUARTER

The folder of --out gets table.md, which compares with the paper's figures, plots (.svg) of
the scores and of validation during training, results.json with everything, and the runs with their
logs.
"""

import argparse
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.arguments import add_count, add_flag, add_number, add_path, at_least, parser_of
from fairseq_plugins.commands import needs_fairseq, split
from fairseq_plugins.cpu import available_threads
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.json_files import read_json
from fairseq_plugins.lab.reproduction.request import BATCHES, ReproductionRequest, settings_of
from fairseq_plugins.lab.reproduction.tables import TABLES, Table
from fairseq_plugins.quiet import only_warnings_of_fairseq
from fairseq_plugins.train import precision, recipes


def _by_value(value: Callable[[Table], Any]) -> str:
    """A default that differs from table to table: each value, and the tables that have it."""
    tables: dict[str, list[str]] = {}
    for name, table in TABLES.items():
        tables.setdefault(str(value(table)), []).append(name)
    return "; ".join(f"{shown} ({', '.join(names)})" for shown, names in tables.items())


def _seeds(table: Table) -> str:
    seeds = sorted({seed for _, seed in table.runs} or table.seeds)
    shown = " ".join(map(str, seeds))
    return f"{shown}, of some rows 1" if table.runs and len(seeds) > 1 else shown


def _add_runs(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is run")
    group.add_argument(
        "--rows", nargs="+", default=[], metavar="ROW",
        help="default: all. "
        + "; ".join(
            f"{name}: " + " ".join(row.name for row in table.rows) for name, table in TABLES.items()
        ),
    )  # fmt: skip
    group.add_argument(
        "--seeds", nargs="+", type=at_least(0), default=[], metavar="N",
        help="default: " + _by_value(_seeds),
    )  # fmt: skip
    add_flag(group, "--reduced", "the table's size for two CPU cores")
    group.add_argument(
        "--settings", action="append", default=[], metavar="FILE",
        help="settings that replace the recipes', as for train; repeatable",
    )  # fmt: skip
    add_number(
        group, "--average", "test the average of the last K checkpoints, of epochs or updates; 0: "
        f"the best, by --best-checkpoint-metric (default: {_by_value(lambda t: t.average)})",
        least=0, metavar="K",
    )  # fmt: skip
    group.add_argument(
        "--generate", default="", type=shlex.split, metavar="WORDS",
        help='more options for fairseq-generate, in one word: "--lenpen 0.6"',
    )  # fmt: skip


def _add_lengths(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how long")
    add_number(group, "--max-update", "end each run there")
    add_number(
        group, "--minutes", "stop everything after this time, plus half a minute to save; rerun to "
        "resume", least=0.01, kind=float, metavar="M",
    )  # fmt: skip


def _add_machine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("processes and devices")
    add_count(
        group, "--parallel", "runs side by side: on several GPUs each has its own, as far as they "
        "go", 1,
    )  # fmt: skip
    add_count(
        group, "--processes", "processes that share each training: GPUs, or cores with --cpu", 1
    )
    add_count(
        group, "--threads", "processor threads of each process (default: OMP_NUM_THREADS, or all "
        "cores / --parallel / --processes)",
    )  # fmt: skip
    group.add_argument(
        "--precision", choices=precision.PRECISIONS,
        help=precision.HELP + " (default: "
        + _by_value(lambda table: table.precision) + ")",
    )  # fmt: skip
    add_flag(group, "--cpu", "do not use a GPU")


def _add_timing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how training steps are timed")
    group.add_argument(
        "--time", choices=["interleaved", "log"], default="interleaved",
        help="time ratio of tables that have one: interleaved times training steps of all rows in "
        "turn after the runs (default); log compares the seconds per epoch of the runs",
    )  # fmt: skip
    rounds = f"interleaved: how often each of {BATCHES} batches is timed"
    add_number(group, "--time-rounds", rounds, 5)
    add_number(
        group, "--timing-skip", "warm-up: updates after each start that are not timed", 100, 0
    )


def _add_report(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("tables of earlier results")
    add_flag(group, "--report-only", "only make table and plot again, from results.json")
    add_path(
        group, "--beside", "OUT", "with --report-only: folders of the same table on more or less "
        "data, to plot scores against the number of training pairs", nargs="+", default=[],
    )  # fmt: skip


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments; `.words` holds the options after the first ``--``."""
    own, extra = split(argv)
    tables = "\n".join(f"  {name:<23} {table.title}" for name, table in TABLES.items())
    usage = "%(prog)s TABLE DATA [options] [-- more options for fairseq-train]"
    about = (__doc__ or "").format(tables=tables)
    parser = parser_of("reproduce", about, usage=usage, allow_abbrev=False)
    parser.add_argument("table", choices=list(TABLES), metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("data", nargs="?", type=Path, metavar="DATA", help="the prepared folder")
    add_path(parser, "--out", "DIR", "where to work (default: runs/reproduce_TABLE)")
    for add in (_add_runs, _add_lengths, _add_machine, _add_timing, _add_report):
        add(parser)
    args = parser.parse_args(own)
    if args.beside and not args.report_only:
        raise ConfigurationError("--beside only plots: train first, then add --report-only")
    args.words = extra
    args.out = args.out or Path("runs", f"reproduce_{args.table}")
    return args


def read_request(args: argparse.Namespace) -> ReproductionRequest:
    if args.data is None:
        raise ConfigurationError("DATA is missing: give a prepared folder")

    table = TABLES[args.table]
    folders = settings_of(table.rows[0].recipe)
    given = {
        name: value for name, value in vars(args).items() if name in ReproductionRequest._fields
    }
    given.update(
        seeds=list(dict.fromkeys(args.seeds)),
        settings=[recipes.find(name, folders) for name in args.settings],
        interleaved=table.timed and args.time == "interleaved",
        threads=args.threads or available_threads(args.parallel * args.processes),
    )
    return ReproductionRequest(**given)


def read_results(folder: Path, table: str, option: str) -> dict[str, Any]:
    """The results of a table in a folder that an option names.

    Raises:
        ConfigurationError: the folder has none, or those of another table.
    """
    results = read_json(folder / "results.json")
    if results is None:
        raise ConfigurationError(f"{option}: {folder} has no results.json; name its folder")
    if not isinstance(results, dict) or not {"table", "data", "rows"} <= set(results):
        raise ConfigurationError(
            f"{option}: {folder}/results.json is not of this command: name another folder"
        )
    if results["table"] != table:
        raise ConfigurationError(
            f"{option}: {folder} has results of {results['table']}, not of {table}: name another "
            "folder or that table"
        )
    return results


def report_only(folder: Path, table: str, beside: Sequence[Path] = ()) -> None:
    """Table and plots from results.json only."""
    from fairseq_plugins.lab.reproduction import plots, report

    results = read_results(folder, table, "--out")
    others = [read_results(other, table, "--beside") for other in beside]
    sizes = {results["data"]["pairs"]["train"]: folder}
    for other, found in zip(beside, others):
        if found["reduced"] != results["reduced"]:
            size = "reduced" if found["reduced"] else "of full size"
            raise ConfigurationError(
                f"--beside: the runs in {other} are {size}, but those in {folder} are not: give a "
                "folder of the same size"
            )
        pairs = found["data"]["pairs"]["train"]
        if pairs in sizes:
            raise ConfigurationError(
                f"--beside: {sizes[pairs]} and {other} both have {pairs:,} training pairs: name "
                "one folder for each number of pairs"
            )
        sizes[pairs] = other
    written = [folder / "results.json", report.write_table(results, folder)]
    print("\n" + report.table(results))
    try:
        written += plots.plot(results, folder, others)
    except ImportError:
        print("no plot: matplotlib is missing (pip install matplotlib, then --report-only)")
    print("written: " + " ".join(map(str, written)))


def main(argv: Sequence[str]) -> int:
    args = read_arguments(argv)
    if args.report_only:
        report_only(args.out, args.table, args.beside)
        return 0
    needs_fairseq("reproduce")
    from fairseq_plugins.files import alone_in
    from fairseq_plugins.lab.reproduction import runs
    from fairseq_plugins.train.log import tell

    with only_warnings_of_fairseq():  # it tells of models that are checked
        request = read_request(args)
        with alone_in(request.out, "reproduction"):
            work = runs.Reproduction(request, tell)
            work.finish_all()
            if request.interleaved and not work.time_is_up.is_set():
                work.measure_interleaved()
            work.write_results()
    report_only(request.out, args.table)
    if work.failures:
        failed = "; ".join(f"{each['run']}: {each['message']}" for each in work.failures)
        raise ConfigurationError(f"failed: {failed}")
    return 0
