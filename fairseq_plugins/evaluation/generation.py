"""What fairseq-generate writes, in the order of the test set."""

from pathlib import Path
from typing import Dict, List

from fairseq_plugins.errors import ConfigurationError


def read_output(log: Path, kind: str, total: int) -> List[str]:
    """The texts of a kind of line, in the order of the test set.

    fairseq-generate writes ``D-<number> <TAB> score <TAB> text`` for each sentence, the longest
    sentences first, several with --nbest, the best one first; and ``T-<number> <TAB> text``.

    Args:
        log: what fairseq-generate wrote.
        kind: "D" for hypotheses, detokenised; "T" for references.
        total: how many sentences there are.

    Raises:
        ConfigurationError: some are missing.
    """
    found: Dict[int, str] = {}
    with open(log, encoding="utf-8", newline="\n") as lines:
        for line in lines:
            if line.startswith(kind + "-"):
                number, *_, text = line[2:].rstrip("\n").split("\t", 2 if kind == "D" else 1)
                found.setdefault(int(number), text)
    if sorted(found) != list(range(total)):
        raise ConfigurationError(
            f"{log} has {len(found)} of {total} sentences: all are needed for a score"
        )
    return [found[number] for number in range(total)]
