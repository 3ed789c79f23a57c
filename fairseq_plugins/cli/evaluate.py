"""Score a trained model: BLEU, chrF, ROUGE, accuracy; compare two models.

    fairseq-plugins evaluate DATA RUN --last 10
    fairseq-plugins evaluate DATA RUN --last 10 --compare RUN_B
    fairseq-plugins evaluate DATA RUN --last 10 --ensemble RUN_B RUN_C
    fairseq-plugins evaluate DATA RUN --settings generate_cnn_dm

DATA is the prepared folder, RUN the --save-dir of a training, or an export. Each score is printed
with its signature. Translation:

  tokenised BLEU  lower-case Moses tokens, not smoothed, as papers report it (multi-bleu.perl -lc);
                  not for text without spaces between words
  BLEU, chrF2     sacreBLEU's, on detokenised text, in the case the model was trained for

Summarization: ROUGE-1, 2, L and Lsum with Porter's stemmer and 95 % intervals. The ROUGE-L that
papers report is summary-level: compare it with ROUGE-Lsum.

Classification: accuracy and macro F1 in percent, with 95 % intervals of the bootstrap.

Without --last, --best or --checkpoint, checkpoint_best.pt is scored. Results are kept in
RUN/evaluation and computed again only if checkpoints, data or options differ. Rerun to resume.
"""

import hashlib
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate.request import EvaluationRequest, sides
from fairseq_plugins.files import write_json
from fairseq_plugins.options import recipes
from fairseq_plugins.options.arguments import command
from fairseq_plugins.options.user_dirs import user_dirs_of
from fairseq_plugins.system.quiet import only_warnings_of_fairseq


@command
@only_warnings_of_fairseq()
def main(request: EvaluationRequest) -> None:
    request.settings = [recipes.find(name) for name in request.settings]
    request.user_dir = user_dirs_of(request.settings, request.user_dir)
    needs_fairseq("evaluate", request.user_dir)
    from fairseq_plugins.evaluate.evaluate import Evaluation

    compared = request.compare
    requests = [request] if compared is None else sides(request, compared)
    say = partial(print, file=sys.stderr, flush=True)
    ours, *others = [Evaluation(each, say) for each in requests]  # fail before minutes of work
    for other in others:
        same = type(ours.test) is type(other.test)
        if not same or ours.test.references != other.test.references:
            raise ConfigurationError(
                f"--compare {compared} and {request.run} have different references: compare "
                "models of one task and direction"
            )
    ours.run()
    lines = [*ours.examples(request.examples), *ours.lines()]
    try:
        for other in others:
            other.run()
            found = ours.test.compare(ours.output, other.output)
            name = f"against-{_name(other.request.run, request.run)}.json"
            result = {"data": str(request.data), "baseline": other.name, "scores": found}
            write_json(ours.folder / name, result)
            lines += [*other.lines(), *_differences(ours.name, other.name, found)]
            lines += [f"written: {ours.folder}/scores.json, {name}"]
    finally:  # also if the baseline fails
        print("\n".join(lines))  # last, as the reader may go away, such as head
    name = "BLEU" if "BLEU" in ours.scores else next(iter(ours.scores))
    reached, least = ours.scores[name]["score"], request.at_least
    if least is not None and reached < least:
        raise ConfigurationError(f"{name} {reached:.2f} is below --at-least {least:g}")


def _differences(name: str, baseline: str, found: dict[str, dict[str, Any]]) -> list[str]:
    """The result of a comparison as lines of text for the terminal."""
    lines = [f"{name} against {baseline}"]
    for score, result in found.items():
        lines.append(
            f"  {score} {result['difference']:+.2f}, p = {result['p']:.4f}, {result['sides']}: "
            "{:.2f} ({:.2f} - {:.2f}) against {:.2f} ({:.2f} - {:.2f})  {}".format(
                result["score"],
                *result["interval"],
                result["baseline"],
                *result["baseline_interval"],
                result["signature"],
            )
        )
    return lines


def _name(other: Path, run: Path) -> str:
    """The name of a folder, plus a hash of its path if it is not beside `run`."""
    other = other.resolve()
    if other.parent == run.resolve().parent:
        return other.name
    return f"{other.name}-{hashlib.sha256(os.fsencode(other)).hexdigest()[:8]}"
