"""The options of the search: the one place that defines and checks them."""

import difflib
import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from fairseq_plugins.errors import ConfigurationError, check_number, flag

LARGEST_PENALTY = 10  # fairseq's float32 holds lengths up to 7,000 to this power
FAIRSEQ_NAMES = {"no_repeat_ngram": "no_repeat_ngram_size"}  # of options with another name there
# the least and the largest value of each number, and its type
RANGES: dict[str, tuple[float, float, Any]] = {
    "beam": (1, math.inf, numbers.Integral),
    "nbest": (1, math.inf, numbers.Integral),
    "lenpen": (-LARGEST_PENALTY, LARGEST_PENALTY, numbers.Real),
    "min_len": (0, math.inf, numbers.Integral),
    "no_repeat_ngram": (0, math.inf, numbers.Integral),
    "sampling_topk": (0, math.inf, numbers.Integral),
    "temperature": (0, math.inf, numbers.Real),
    "seed": (0, 2**63 - 1, numbers.Integral),  # torch overflows beyond 64 bits
}


@dataclass(frozen=True)
class Options:
    """Options of the search, named as in fairseq-generate.

    Attributes:
        beam: number of hypotheses per sentence.
        nbest: number of hypotheses that `Translator.hypotheses` returns, at most `beam`.
        lenpen: scores are sums of log-probabilities over length to this power.
        min_len: the fewest tokens of a hypothesis, without the end symbol.
        no_repeat_ngram: no sequence of this many tokens occurs twice; 0 allows repetition.
        sampling: draw `beam` hypotheses instead of searching for the best.
        sampling_topk: draw among this many best tokens; 0 for all.
        temperature: divisor of the logits when sampling.
        seed: seed of sampling. With an exported model, a sentence's draws depend only on it and on
            the sentence's number; with torch, also on the other sentences.
    """

    beam: int = 5
    nbest: int = 1
    lenpen: float = 1.0
    min_len: int = 1
    no_repeat_ngram: int = 0
    sampling: bool = False
    sampling_topk: int = 0
    temperature: float = 1.0
    seed: int = 1

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Options":
        """The options with these names and values.

        Raises:
            ConfigurationError: a name is unknown, or a value cannot work.
        """
        check_names("options", given, (field.name for field in fields(cls)))
        options = cls(**given)
        check(vars(options))
        for name, off in (("sampling_topk", 0), ("temperature", 1.0)):
            value = getattr(options, name)
            if value != off and not options.sampling:
                raise ConfigurationError(
                    f"{flag(name)} {value} needs --sampling: add it, or remove this"
                )
        return options


def check_names(option: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise a ConfigurationError for a name that is not `known`, such as in `--eval-bleu-args`."""
    known = list(known)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            advice = f": did you mean {close[0]}?" if close else ""
            raise ConfigurationError(f"{option}: {name} is not an option of the search{advice}")


def check(values: Mapping[str, Any]) -> None:
    """Raise a ConfigurationError for a value that no search can have.

    Args:
        values: by our names or fairseq's; those that are missing are not checked.
    """
    for name, (least, most, kind) in RANGES.items():
        name = name if name in values else FAIRSEQ_NAMES.get(name, name)
        if name not in values or (name, values[name]) == ("sampling_topk", -1):  # off in fairseq
            continue
        value: Any = values[name]
        check_number(name, value, least, most, kind)
        if name == "temperature" and not 0 < float(value) < math.inf:
            raise ConfigurationError(f"--temperature {value}: must be above 0")
    if not isinstance(values.get("sampling", False), bool):
        raise ConfigurationError(f"--sampling {values['sampling']!r}: must be True or False")
    beam, nbest = (values.get(name, getattr(Options, name)) for name in ("beam", "nbest"))
    if nbest > beam:
        raise ConfigurationError(f"--nbest {nbest} is above --beam {beam}")
