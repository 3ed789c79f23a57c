"""Write synthetic pairs of texts for the Long-Range Arena's Retrieval.

    fairseq-plugins make-retrieval DIR --train 4000 --held-out 500 --words 20
    fairseq-plugins prepare-retrieval DATA DIR

The label says whether both texts are of one field, whose words have syllables of their own. It is
not the benchmark's corpus: results do not compare with published ones. The same arguments give the
same bytes. Files that exist are not replaced.
"""

from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.lab.corpora import Seeded, check_new, retrieval, sizes_of
from fairseq_plugins.options.arguments import command
from fairseq_plugins.options.fields import argument, option


@dataclass
class MakeRetrieval(Seeded):
    """The options of the command."""

    folder: Path = argument("the folder to write", "DIR")
    train: int = option(147086, "the number of training pairs", least=2)
    held_out: int = option(17437, "the number of validation pairs, and of test pairs", least=2)
    words: int = option(1000, "the number of words of each text", least=1)


@command
def main(args: MakeRetrieval) -> None:
    check_new(args.folder, retrieval.NAMES.values())
    retrieval.write_made_up(args.folder, sizes_of(args), args.words, args.seed)
    print(f"wrote {args.train:,} / {args.held_out:,} / {args.held_out:,} pairs to {args.folder}")
