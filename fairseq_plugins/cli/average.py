"""Average checkpoints of a training.

    fairseq-plugins average --inputs a.pt b.pt c.pt --output average.pt
    fairseq-plugins average --inputs SAVE_DIR --last 5 --output average.pt
    fairseq-plugins average --inputs SAVE_DIR --best 5 --output average.pt

`--last` takes the newest checkpoints of whole epochs. With `--by update`, or if training kept no
others, it takes those that `--save-interval-updates` wrote. `--best` takes those that
`--keep-best-checkpoints` kept.

One checkpoint is in memory at a time. Only parameters are averaged. Everything else is copied from
the newest checkpoint, from the best with `--best`, or from the last one that you name.
The optimizer's state is dropped, as it does not fit the average.

`--num-epoch-checkpoints K` is `--last K --by epoch`, `--num-update-checkpoints K` is `--last K --by
update` and `--num-best-checkpoints K` is `--best K`, as in fairseq's average_checkpoints.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.errors import ConfigurationError, counted
from fairseq_plugins.files import output_file
from fairseq_plugins.options.arguments import command
from fairseq_plugins.options.fields import REQUIRED, option
from fairseq_plugins.options.groups import Averaging, UserDirs


def of_fairseq(ours: str) -> Any:
    """An option of fairseq's average_checkpoints.py."""
    return option(None, f"fairseq's name of {ours}", least=1, metavar="K", group="checkpoints")


@dataclass
class Average(UserDirs, Averaging):
    """The options of the command."""

    inputs: Sequence[Path] = option(
        REQUIRED, "the checkpoints, or one folder of checkpoints with --last or --best",
        metavar="PATH",
    )  # fmt: skip
    output: Path = option(REQUIRED, "the file to write", metavar="FILE")
    num_epoch_checkpoints: int | None = of_fairseq("--last K --by epoch")
    num_update_checkpoints: int | None = of_fairseq("--last K --by update")
    num_best_checkpoints: int | None = of_fairseq("--best K")

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind in ("epoch", "update"):
            count = getattr(self, f"num_{kind}_checkpoints")
            if count is not None:
                self.last, self.by = count, kind
        self.best = self.best or self.num_best_checkpoints


@command
def main(args: Average) -> None:
    needs_fairseq("average", args.user_dir)
    from fairseq_plugins.evaluate import averages

    paths = averages.choose(list(args.inputs), args.last, args.best, args.by)
    output = output_file("--output", args.output)
    if output in [path.resolve() for path in paths]:
        raise ConfigurationError(f"--output {args.output} is one of the checkpoints to average")
    averages.save(averages.average(paths), output)
    print(f"wrote the average of {counted(len(paths), 'checkpoints')} to {args.output}")
