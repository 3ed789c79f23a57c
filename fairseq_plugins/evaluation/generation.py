"""Read the output of fairseq-generate in the order of the test set."""

from pathlib import Path
from typing import Dict, List

from fairseq_plugins.errors import ConfigurationError


def read_output(log: Path, kind: str, total: int) -> List[str]:
    """Hypotheses or references, in the order of the test set.

    fairseq-generate writes ``D-<number> <TAB> score <TAB> text`` and ``T-<number> <TAB> text`` for
    each sentence, the longest sentences first. With --nbest a sentence has several D lines; the
    first one is the best, and is returned.

    Args:
        log: the output of fairseq-generate.
        kind: "D" for detokenised hypotheses, "T" for references.
        total: the number of sentences.

    Raises:
        ConfigurationError: sentences are missing.
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
