"""The command that times the training steps of several rows in turn, `benchmark train-step`."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.lab.reproduction.request import ReproductionRequest
from fairseq_plugins.lab.reproduction.tables import BASELINE, Row
from fairseq_plugins.train import planning, recipes


def command(
    request: ReproductionRequest,
    files: Sequence[Path],
    rows: Sequence[Row],
    plans: Sequence[planning.Plan],
    batches: int,
    cpu: bool,
) -> list[str]:
    """The command, without where the figures go.

    What all rows have is given once: the options of the baseline's recipe, of `files` and of the
    user. Each row adds its architecture and what its recipe and its last words have of their own.

    Args:
        request: the options of the reproduction.
        files: the settings of all rows.
        rows: the rows; one of them is the baseline.
        plans: their trainings.
        batches: of each row.
        cpu: whether to time on the CPU.
    """
    baseline = recipes.read(recipes.find(BASELINE))
    given_to_all = {**recipes.merge(files), **recipes.by_name(request.words)}
    common = _for_timing({**baseline, **given_to_all})
    words = [sys.executable, "-m", "fairseq_plugins", "benchmark", "train-step"]
    words += [str(request.data.resolve()), "--options=" + shlex.join(common)]
    for plan, row in zip(plans, rows):
        recipe = recipes.read(recipes.find(row.recipe)).items()
        own = {n: v for n, v in recipe if n != "arch" and baseline.get(n) != v}
        own = {n: v for n, v in own.items() if n not in given_to_all}
        own_words = [plan.given.arch, *recipes.words(own), *shlex.split(row.last_words)]
        words += ["--arch=" + shlex.join(own_words)]
    half = [name for name in ("bf16", "fp16") if "--" + name in plans[0].command]
    words += ["--dtype", *half] if half else []
    words += ["--batches", str(batches), "--rounds", str(request.time_rounds)]
    words += ["--threads", str(request.threads)]
    max_tokens = plans[0].given.max_tokens
    words += ["--max-tokens", str(max_tokens)] if max_tokens else []
    return [*words, "--cpu"] if cpu else words


def _for_timing(options: dict[str, Any]) -> list[str]:
    """Options as words, without the architecture and what only validation reads."""
    return recipes.words(
        {n: v for n, v in options.items() if n != "arch" and not n.startswith("eval_")}
    )
