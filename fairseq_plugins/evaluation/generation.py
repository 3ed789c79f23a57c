"""Read the output of `hypotheses` (in earlier releases fairseq-generate) for a test set."""

from pathlib import Path
from typing import Dict, List

from fairseq_plugins.errors import ConfigurationError


def read_output(log: Path, total: int) -> List[str]:
    """Hypotheses, in the order of the test set.

    Each sentence has a line ``D-<number> <TAB> score <TAB> text``; fairseq-generate writes the
    longest sentences first. With --nbest a sentence has several lines, the best one first.

    Args:
        log: the output.
        total: the number of sentences.

    Raises:
        ConfigurationError: sentences are missing.
    """
    found: Dict[int, str] = {}
    with open(log, encoding="utf-8", newline="\n") as lines:
        for line in lines:
            if line.startswith("D-"):
                number, _, text = line[2:].rstrip("\n").split("\t", 2)
                found.setdefault(int(number), text)
    if sorted(found) != list(range(total)):
        raise ConfigurationError(f"{log} has {len(found)} of {total} sentences: a score needs all")
    return [found[number] for number in range(total)]
