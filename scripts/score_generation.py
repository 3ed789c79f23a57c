#!/usr/bin/env python3
"""BLEU and chrF of what fairseq-generate printed, against raw reference text.

    python scripts/score_generation.py GENERATE.log --source test.de --reference test.en

Translations are put back into the order of the file and counted: one that is missing is an error.
Scores are sacreBLEU's on detokenised text, each with its signature.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from sacrebleu.metrics import BLEU, CHRF


def read_translations(path: Path) -> List[str]:
    """The best translation of each sentence, in the order of the test set.

    fairseq-generate prints ``D-<number> <TAB> score <TAB> text`` for each, longest sentences first,
    and several for one sentence with --nbest, the best one first.

    Raises:
        SystemExit: numbers are missing, or there are none.
    """
    found: Dict[int, str] = {}
    with open(path, encoding="utf-8", newline="\n") as lines:
        for line in lines:
            if line.startswith("D-"):
                name, _, text = line.rstrip("\n").split("\t", 2)
                found.setdefault(int(name[2:]), text)
    missing = sorted(set(range(max(found, default=0) + 1)) - set(found))
    if missing:
        raise SystemExit(
            f"score_generation: {path} lacks {len(missing)} translation(s), the first is number "
            f"{missing[0]}: run fairseq-generate to its end"
        )
    return [found[number] for number in range(len(found))]


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("generated", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--examples", type=int, default=4, help="translations to show (default: 4)")
    parser.add_argument("--at-least", type=float, help="fail below this BLEU")
    parser.add_argument("--json", type=Path, help="write the scores there too")
    args = parser.parse_args(argv)

    translations = read_translations(args.generated)
    source, reference = (
        path.read_text(encoding="utf-8").rstrip("\n").split("\n")
        for path in (args.source, args.reference)
    )
    if len(translations) != len(reference):
        raise SystemExit(
            f"score_generation: {len(translations)} translations of {len(reference)} sentences in "
            f"{args.reference}: all must be there, in the same order"
        )
    shown = min(args.examples, len(reference))
    for number in (len(reference) * i // shown for i in range(shown)):
        print(f"  source      {source[number]}")
        print(f"  reference   {reference[number]}")
        print(f"  translation {translations[number]}\n")

    scores = {}
    for metric in (BLEU(), CHRF()):
        score = metric.corpus_score(translations, [reference])
        scores[score.name] = {"score": score.score, "signature": str(metric.get_signature())}
        print(f"{score.name} = {score.score:.2f}  {metric.get_signature()}")
    if args.json:
        args.json.write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
    if args.at_least is not None and scores["BLEU"]["score"] < args.at_least:
        print(f"score_generation: BLEU is below {args.at_least:g}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
