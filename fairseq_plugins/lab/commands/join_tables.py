"""Join tables of `reproduce` with the same rows, and print their mean.

    fairseq-plugins join-tables runs/reproduce_mscffn-* > table1.md

Each OUT is a folder of `reproduce`. The tables become columns in the order given. A row without a
result has a dash, and no mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import read_json
from fairseq_plugins.lab.reproduction.joined import joined
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import argument


@dataclass
class JoinTables(Command):
    """The options of the command."""

    out: Sequence[Path] = argument("the folders that reproduce wrote", "OUT")


@command
def main(args: JoinTables) -> None:
    tables = []
    for folder in args.out:
        results = read_json(folder / "results.json")
        if not isinstance(results, dict) or not {"table", "rows", "metrics"} <= set(results):
            raise ConfigurationError(f"OUT {folder} has no results.json of reproduce")
        tables.append(results)
    print(joined(tables), end="")
