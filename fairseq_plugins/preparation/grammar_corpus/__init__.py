"""A small German-English corpus, drawn from a synchronous grammar, for a first training.

Each pair is one structure spelled out twice. The grammar is small but holds what makes this pair
more than a word-by-word task: verb-second, verb-first and verb-last clauses, separable verbs,
modals, perfect and future, agreement in case, gender and number, objects in front, negation against
do-support, questions, subordinate and relative clauses, purposes, pronouns that follow the German
gender, and compounds.
"""

from pathlib import Path
from typing import Dict, List, Set

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import write_lines
from fairseq_plugins.preparation.grammar_corpus.grammar import Grammar, Pair

SHORTEST, LONGEST = 4, 22  # words on a side


def draw(seed: int, sizes: Dict[str, int]) -> Dict[str, List[Pair]]:
    """Draw pairs until every split has its size; the same arguments give the same pairs.

    No German sentence occurs twice, and no sentence, German or English, occurs in two splits.

    Raises:
        ConfigurationError: the grammar does not hold that many different pairs.
    """
    grammar = Grammar(seed)
    elsewhere: Set[str] = set()
    corpus: Dict[str, List[Pair]] = {}
    # held-out splits come first: the size of train does not change them
    for split in sorted(sizes, key=lambda name: (name == "train", name)):
        pairs: Dict[str, Pair] = {}
        misses = 0
        while len(pairs) < sizes[split]:
            pair = grammar.pair()
            lengths = [len(text.split()) for text in pair]
            fits = SHORTEST <= min(lengths) and max(lengths) <= LONGEST
            if fits and pair.german not in pairs and not elsewhere & set(pair):
                pairs[pair.german] = pair
                continue
            misses += 1
            if misses > 1000 + 20 * sizes[split]:
                raise ConfigurationError(
                    f"the grammar has too few sentences for {sizes[split]:,} pairs of {split}"
                )
        elsewhere.update(text for pair in pairs.values() for text in pair)
        corpus[split] = list(pairs.values())
    return corpus


def write(folder: Path, corpus: Dict[str, List[Pair]]) -> None:
    """Write `train.de`, `train.en` and so on, each whole or not at all."""
    for split, pairs in corpus.items():
        write_lines(Path(folder) / f"{split}.de", (pair.german for pair in pairs))
        write_lines(Path(folder) / f"{split}.en", (pair.english for pair in pairs))
