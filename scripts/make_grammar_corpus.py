#!/usr/bin/env python3
"""Write a small German-English parallel corpus, drawn from a synchronous grammar.

Every sentence pair is generated from one structure that is spelled out twice, once by German
rules and once by English ones. The grammar is small, but it holds what makes this language pair
more than a word-by-word task: verb-second and verb-final clauses, separable verbs, modals,
perfect, passive, case and gender agreement, fronted phrases with inversion, negation against
do-support, questions, relative clauses, pronouns that follow the German gender, plurals, numbers,
the order of time, manner and place, and compounds.

    python scripts/make_grammar_corpus.py OUT_DIR [--pairs 10000] [--seed 1]

writes ``train.de train.en valid.de valid.en test.de test.en``. No German sentence occurs twice,
and no sentence of a split, German or English, occurs in another split. The same arguments give
the same bytes on every Python from 3.8 on.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Dict, List, Set

sys.path.insert(0, str(Path(__file__).resolve().parent))

from grammar_corpus.clause import Pair  # noqa: E402
from grammar_corpus.grammar import Grammar  # noqa: E402


def splits(
    seed: int, sizes: Dict[str, int], shortest: int = 5, longest: int = 22
) -> Dict[str, List[Pair]]:
    """Draw pairs until every split has its size.

    No German sentence occurs twice, and no sentence, German or English, occurs in two splits.
    Pairs with less than ``shortest`` or more than ``longest`` words on a side are left out.

    Raises:
        ValueError: the grammar does not hold that many different pairs.
    """
    grammar = Grammar(seed)
    used: Set[str] = set()
    corpus: Dict[str, List[Pair]] = {}
    # The held-out splits come first: a longer train split then leaves them as they are
    for split in sorted(sizes, key=lambda name: (name == "train", name)):
        pairs: List[Pair] = []
        english: Set[str] = set()
        german: Set[str] = set()
        misses = 0
        while len(pairs) < sizes[split]:
            pair = grammar.pair()
            words = [len(text.split()) for text in pair]
            if (
                min(words) < shortest
                or max(words) > longest
                or pair.german in german
                or used & set(pair)
            ):
                misses += 1
                if misses > 1000 + 20 * sizes[split]:
                    raise ValueError(
                        f"the grammar has too few different sentences for {sizes[split]} pairs "
                        f"of {split}: ask for fewer with --pairs"
                    )
                continue
            pairs.append(pair)
            german.add(pair.german)
            english.add(pair.english)
        used |= german | english
        corpus[split] = pairs
    return corpus


def write(folder: str, corpus: Dict[str, List[Pair]]) -> None:
    """Write the six files; each appears under its name only when it is complete."""
    os.makedirs(folder, exist_ok=True)
    for split, pairs in corpus.items():
        for index, language in enumerate(("de", "en")):
            path = os.path.join(folder, f"{split}.{language}")
            with open(path + ".tmp", "w", encoding="utf-8", newline="\n") as lines:
                lines.writelines(pair[index] + "\n" for pair in pairs)
            os.replace(path + ".tmp", path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", metavar="OUT_DIR", help="where to write train.de ... test.en")
    parser.add_argument("--pairs", type=int, default=10000, help="training pairs (default 10000)")
    parser.add_argument(
        "--held-out", type=int, default=500, help="pairs of valid and of test, each (default 500)"
    )
    parser.add_argument("--seed", type=int, default=1, help="another seed, another corpus")
    args = parser.parse_args()
    for name, value in (("--pairs", args.pairs), ("--held-out", args.held_out)):
        if value < 1:
            parser.error(f"{name} {value}: give at least 1")
    sizes = {"train": args.pairs, "valid": args.held_out, "test": args.held_out}
    try:
        corpus = splits(args.seed, sizes)
        write(args.folder, corpus)
    except (OSError, ValueError) as error:
        sys.exit(f"make_grammar_corpus.py: {error}")
    counts = ", ".join(f"{len(corpus[split])} {split}" for split in ("train", "valid", "test"))
    print(f"wrote {counts} sentence pairs to {args.folder}")


if __name__ == "__main__":
    main()
