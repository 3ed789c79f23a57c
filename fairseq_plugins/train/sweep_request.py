"""How to run a sweep. Nothing here needs torch or fairseq."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.arguments import Command
from fairseq_plugins.options.fields import MOST, option
from fairseq_plugins.options.groups import Device
from fairseq_plugins.train import precision


@dataclass
class SweepRequest(Device, Command):
    """How to run the rows of a table: the options of `sweep` and `reproduce`."""

    words: Sequence[str] = option((), "more options for fairseq-train", rest=True)
    rows: Sequence[str] = option((), "the rows to train (default: all)", metavar="ROW")
    seeds: Sequence[int] = option((), "the seeds (default: those of the table)", least=0)
    settings: Sequence[str] = option(
        (), "settings that replace the recipes', as for train; repeatable", metavar="FILE",
        repeatable=True,
    )  # fmt: skip
    average: int | None = option(
        None, "test the average of the last K checkpoints, or with 0 the best one (default: the "
        "table's)", least=0, metavar="K",
    )  # fmt: skip
    generate: str = option(
        "", 'more options for fairseq-generate in one argument, such as "--lenpen 0.6"',
        metavar="OPTIONS",
    )  # fmt: skip
    max_update: int | None = option(None, "end each run after this update", least=1)
    minutes: float | None = option(
        None, "stop everything after M minutes, plus half a minute to save; rerun to resume",
        least=0.01, metavar="M",
    )  # fmt: skip
    parallel: int = option(
        1, "the number of runs side by side: on several GPUs each has its own, as far as they go",
        least=1, most=MOST,
    )  # fmt: skip
    processes: int = option(
        1, "the number of processes that share each training", least=1, most=MOST
    )
    threads: int | None = option(
        None, "the number of processor threads of each process (default: OMP_NUM_THREADS, or the "
        "runs share the cores)", least=1, most=MOST,
    )  # fmt: skip
    precision: str | None = option(None, precision.HELP, choices=precision.PRECISIONS)
    report_only: bool = option(False, "only make table and plot again, from results.json")


def arguments_in(option: str, text: str) -> list[str]:
    """The arguments in the value of an option, which a shell would read so."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigurationError(f"{option} '{text}': {error}") from None
