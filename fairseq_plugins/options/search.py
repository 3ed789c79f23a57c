"""The options of the search: the one place that defines and checks them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fairseq_plugins.errors import ConfigurationError, check_known, flag
from fairseq_plugins.options.fields import check_option, checked_options, option

LARGEST_BEAM = 1024  # the memory of a search grows with it
LARGEST_PENALTY = 10  # fairseq's float32 holds lengths up to 7,000 to this power
FAIRSEQ_NAMES = {"no_repeat_ngram": "no_repeat_ngram_size"}  # of options with another name there
LARGEST_SEED = 2**63 - 1  # torch overflows beyond 64 bits
SMALLEST_TEMPERATURE = 1e-3
NOT_OF_SEARCH = "is not an option of the search"
OFF_IN_FAIRSEQ = ("sampling_topk", "sampling_topp", "diverse_beam_groups")  # -1 there, 0 here


@dataclass
class BeamSearch:
    """Options of beam search, named as in fairseq-generate.

    Attributes:
        beam: number of hypotheses per sentence.
        lenpen: scores are sums of log-probabilities over length to this power.
        min_len: the fewest tokens of a hypothesis, without the end symbol.
        no_repeat_ngram: no sequence of this many tokens occurs twice; 0 allows repetition.
    """

    beam: int = option(5, "the beam size", least=1, most=LARGEST_BEAM)
    lenpen: float = option(
        1.0, "the length penalty; a value above 1 favours long outputs", least=-LARGEST_PENALTY,
        most=LARGEST_PENALTY,
    )  # fmt: skip
    min_len: int = option(1, "the minimum length of an output in subwords", least=0)
    no_repeat_ngram: int = option(
        0, "no sequence of N subwords occurs twice in an output; 0 turns this off (default: 3 for "
        "summaries, 0 for translations)", least=0, name=FAIRSEQ_NAMES["no_repeat_ngram"],
    )  # fmt: skip


@dataclass
class Options(BeamSearch):
    """Options of the search, named as in fairseq-generate.

    Attributes:
        nbest: number of hypotheses that `Translator.hypotheses` returns, at most `beam`.
        sampling: draw `beam` hypotheses instead of searching for the best.
        sampling_topk: draw among this many best tokens; 0 for all.
        sampling_topp: draw among the fewest best tokens that have this probability; 0 for all.
        diverse_beam_groups: groups of hypotheses; each is penalised for the tokens of those before
            (fairseq's DiverseBeamSearch, Vijayakumar et al. 2018); 0 for ordinary beam search.
        diverse_beam_strength: what a token loses for each hypothesis of these groups that has it.
        temperature: divisor of the logits when sampling.
        seed: seed of sampling. With an exported model, a sentence's draws depend only on it and on
            the sentence's number; with torch, also on the other sentences.
    """

    nbest: int = option(1, "the number of outputs that --json writes, the best first", least=1)
    sampling: bool = option(False, "draw outputs at random instead of searching for the best")
    sampling_topk: int = option(
        0, "draw from the N most probable subwords; 0 allows all", least=0, needs="sampling"
    )
    sampling_topp: float = option(
        0.0,
        "draw from the most probable subwords that together have probability P; 0 allows all",
        least=0,
        most=1,
        metavar="P",
        needs="sampling",
    )
    diverse_beam_groups: int = option(
        0,
        "search in N groups of hypotheses, each penalised for the subwords of those before; 0 "
        "turns this off",
        least=0,
    )
    diverse_beam_strength: float = option(
        0.5, "the penalty of --diverse-beam-groups for each such subword", least=0, most=100,
        needs="diverse_beam_groups",
    )  # fmt: skip
    temperature: float = option(
        1.0, "a temperature below 1 makes probable subwords more probable when sampling",
        least=SMALLEST_TEMPERATURE, metavar="T", needs="sampling",
    )  # fmt: skip
    seed: int = option(1, "the random seed of --sampling", least=0, most=LARGEST_SEED)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Options":
        """The options with these names and values.

        Raises:
            ConfigurationError: a name is unknown, or a value cannot work.
        """
        check_known(given, (field.name for field in fields(cls)), "options: ", NOT_OF_SEARCH)
        options = cls(**given)
        check(vars(options))
        checked_options(cls, options)
        groups = options.diverse_beam_groups
        for name in ("sampling", "sampling_topk"):
            other = "diverse_beam_groups" if name == "sampling" else "sampling_topp"
            if getattr(options, name) and getattr(options, other):
                raise ConfigurationError(
                    f"{flag(name)} and {flag(other)} cannot be combined: remove one"
                )
        if groups and options.beam % groups:
            raise ConfigurationError(
                f"--diverse-beam-groups {groups} must divide --beam, which is {options.beam}"
            )
        return options


def check(values: Mapping[str, Any]) -> None:
    """Raise a ConfigurationError for a value that no search can have.

    Args:
        values: by our names or fairseq's; those that are missing are not checked.
    """
    for declared in fields(Options):
        name = declared.name
        name = name if name in values else FAIRSEQ_NAMES.get(name, name)
        if name in values and not (name in OFF_IN_FAIRSEQ and values[name] == -1):
            check_option(name, values[name], declared)
    beam, nbest = (values.get(name, getattr(Options, name)) for name in ("beam", "nbest"))
    if nbest > beam:
        raise ConfigurationError(f"--nbest {nbest} is above --beam {beam}")
