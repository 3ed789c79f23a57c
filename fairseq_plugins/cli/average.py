"""Average checkpoints of a training.

    python -m fairseq_plugins average --inputs a.pt b.pt c.pt --output average.pt
    python -m fairseq_plugins average --inputs SAVE_DIR --last 5 --output average.pt
    python -m fairseq_plugins average --inputs SAVE_DIR --best 5 --output average.pt

`--last` takes the newest checkpoints of whole epochs. With `--by update`, or if training kept no
others, it takes those that `--save-interval-updates` wrote. `--best` takes those that
`--keep-best-checkpoints` kept.

One checkpoint is in memory at a time. Only parameters are averaged. Everything else is copied from
the newest checkpoint, from the best with `--best`, or from the last one that you name.
The optimizer's state is dropped, as it does not fit the average.
"""

from collections.abc import Sequence

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import output_file
from fairseq_plugins.options.arguments import add_number, add_path, parser_of
from fairseq_plugins.options.user_dirs import add_user_dir


def main(argv: Sequence[str]) -> int:
    parser = parser_of("average", __doc__)
    add_path(
        parser, "--inputs", "PATH", "checkpoints, or one folder of checkpoints with --last or "
        "--best", nargs="+", required=True,
    )  # fmt: skip
    add_path(parser, "--output", "FILE", "where to write the average", required=True)
    how_many = parser.add_mutually_exclusive_group()
    add_number(how_many, "--last", "average the newest K checkpoints of the folder", metavar="K")
    add_number(how_many, "--best", "average the best K checkpoints of the folder", metavar="K")
    parser.add_argument(
        "--by", choices=["epoch", "update"],
        help="what --last counts (default: epochs where training kept their checkpoints)",
    )  # fmt: skip
    add_user_dir(parser)
    args = parser.parse_args(argv)
    if args.by is not None and args.last is None:
        raise ConfigurationError(f"--by {args.by} only affects --last: add --last K")
    needs_fairseq("average", args.user_dir)
    from fairseq_plugins.evaluate import averages

    paths = averages.choose(args.inputs, args.last, args.best, args.by)
    output = output_file("--output", args.output)
    if output in [path.resolve() for path in paths]:
        raise ConfigurationError(f"--output {args.output} is one of the checkpoints to average")
    averages.save(averages.average(paths), output)
    print(f"wrote the average of {len(paths)} checkpoints to {args.output}")
    return 0
