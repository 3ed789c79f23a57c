"""The prepared runs for a GPU, the most useful first: `lab.gpu_report --list` shows them.

Each run takes at most 8 minutes and consists of parts, each a command of this package with a limit
of its own. A new measurement is a `Part` here. `TOYS` has the toy size of each command, to try it
on a CPU.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.json_files import read_json

from . import machine
from .goals import DEEP, FUSED, LOSS, PLAIN, SIZES, TRANSFORMER

GRAPHS = "--cuda-graphs"
MINUTES = 8.0
UPDATES = 28000
# placeholders for data in the words of a part, and the option that gives each
DATA, SUMMARIES, MULTI30K, WORK = "DATA", "SUMMARIES", "MULTI30K", "WORK"


class Part(NamedTuple):
    """A command and how long it may take.

    Args:
        name: of its files.
        words: what follows `python -m fairseq_plugins`, or `pytest`. DATA, SUMMARIES and MULTI30K
            stand for prepared folders, WORK for a folder of the run.
        seconds: its time limit.
        contenders: words of models, for --arch or --contender.
        options: of all contenders.
        triton: FAIRSEQ_PLUGINS_TRITON, or None for the default.
        after: the part of the run whose result it reads.
    """

    name: str
    words: str
    seconds: float
    contenders: Sequence[str] = ()
    options: str = ""
    triton: bool | None = None
    after: str = ""

    @property
    def resumes(self) -> bool:
        """Whether it goes on where a time limit stopped it."""
        return self.words.startswith(
            ("train ", "reproduce ", "benchmark figure2", "benchmark table3")
        )

    @property
    def needs(self) -> list[str]:
        """Which prepared folders the part needs."""
        return [name for name in (DATA, SUMMARIES, MULTI30K) if name in self.words.split()]

    def command(self, places: dict[str, Any], toy: bool) -> list[str]:
        """The words of the command line.

        Args:
            places: what DATA, WORK and so on stand for.
            toy: the toy size, on a CPU.
        """
        first = self.words.split()
        kind = " ".join(first[:2]) if first[0] == "benchmark" else first[0]
        own, behind, extra = self.words.partition(" -- ")
        words = shlex.split(own)
        option = "--contender" if kind in ("benchmark layer", "benchmark generate") else "--arch"
        for contender in self.contenders:
            words += [option, contender]
        if self.options:
            words += ["--options", self.options]
        more = shlex.split(extra)
        if toy:
            before, _, after = TOYS[kind].partition(" -- ")
            words += shlex.split(before)
            more += shlex.split(after)
        words += ["--", *more] if more else []
        return [_filled(word, places) for word in words]


def _filled(word: str, places: dict[str, Any]) -> str:
    head, slash, tail = word.partition("/")
    return str(places[head]) + slash + tail if head in places else word


class Run(NamedTuple):
    """Parts that belong together, at most 8 minutes.

    Args:
        name: of the option --run.
        what: one line.
        parts: in the order in which they run.
        tests: whether a model is tested, which needs the text of the data.
    """

    name: str
    what: str
    parts: Sequence[Part]
    tests: bool = False


def both(*contenders: str) -> list[str]:
    """Each contender eagerly and recorded."""
    return [words + more for words in contenders for more in ("", f" {GRAPHS}")]


_STEP = "benchmark train-step DATA --dtype bf16 --warmup 3 --leave-out-failing --max-tokens {}"
_STEPS = both(TRANSFORMER, FUSED)
_NO_DROPOUT = "--share-decoder-input-output-embed --dropout 0"
_EQUAL = "benchmark gpu-part equality DATA --dtype bf16 --max-tokens 4096"
_LAYER = "benchmark layer --dim 768 --tokens 4096 --lengths 128 --warmup 3 --rounds 25 --dtype bf16"
_PARTS = _LAYER.replace("--dim 768", "--dim 512")
_READ = (
    "benchmark layer --dim 1024 --heads 16 --tokens 262144 --lengths 2048 --what forward --warmup 3"
    " --rounds 25 --dtype bf16"
)
_DOCUMENTS = (
    "--task summarization --truncate-source --max-source-positions 2048 --max-target-positions 4096"
    " --share-all-embeddings"
)
_COPYING = (
    "fastformer_tc_cnn_dm --copy-attention --copy-next"
    " --criterion label_smoothed_cross_entropy_fused"
)
READS_DOCUMENTS = "transformer_cnn_dm"
_TESTS = f"--rootdir {machine.ROOT} {machine.ROOT / 'tests'}"
MSCFFN, FASTFORMER = "mscffn_transformer_iwslt_de_en", "fastformer_encoder_iwslt_de_en"


def _training(recipe: str, seed: int) -> list[Part]:
    """A training and its test. Validation is rare and greedy, as the training is timed."""
    words = (
        f"train {recipe} DATA --save-dir WORK/model --precision bf16 -- --seed {seed}"
        f" --max-update {UPDATES} --validate-interval 20 --save-interval 4 --max-tokens-valid 16384"
        f" --eval-bleu-args '{{\"beam\": 1}}' {GRAPHS}"
    )
    if recipe != "transformer":
        words += " --criterion label_smoothed_cross_entropy_fused"
    test = "evaluate DATA WORK/model --last 5 --max-tokens 16384"
    return [Part("training", words, 400), Part("test", test, 75, after="training")]


RUNS: list[Run] = [
    Run(
        "1",
        "launches, flash attention, recorded steps against eager fairseq",
        [
            Part("launch", "benchmark gpu-part launch DATA", 30),
            Part(
                "baseline",
                "benchmark gpu-part profile DATA --dtype bf16",
                40,
                [TRANSFORMER, FUSED],
                SIZES,
            ),
            Part("flash", "benchmark gpu-part flash DATA", 30),
            Part("equal_transformer", _EQUAL, 70, both(TRANSFORMER), _NO_DROPOUT),
            Part("equal_ftc", _EQUAL, 70, both(FUSED), _NO_DROPOUT),
            Part("step_4096", _STEP.format(4096), 120, _STEPS, SIZES),
            Part("step_32768", _STEP.format(32768) + " --batches 3", 60, _STEPS, SIZES),
            Part("step_512", _STEP.format(512), 60, _STEPS, SIZES),
        ],
    ),
    Run(
        "1b",
        "an epoch, and profiles of recorded steps",
        [
            Part("epoch", "benchmark gpu-part updates DATA --dtype bf16", 120, both(FUSED), SIZES),
            Part(
                "profile",
                "benchmark gpu-part profile DATA --dtype bf16",
                60,
                [f"{TRANSFORMER} {GRAPHS}", f"{FUSED} {GRAPHS}"],
                SIZES,
            ),
            Part(
                "profile_32768",
                "benchmark gpu-part profile DATA --dtype bf16 --max-tokens 32768",
                60,
                # the second shows what the loss costs
                [f"{TRANSFORMER} {GRAPHS}", f"{TRANSFORMER} {LOSS} {GRAPHS}", f"{FUSED} {GRAPHS}"],
                SIZES,
            ),
        ],
    ),
    Run(
        "2",
        "both at the paper's size, 2,200 updates of 12,288 tokens, and their tests",
        [
            Part(
                "short",
                "reproduce translation DATA --out WORK/table --rows transformer ftc --seeds 1"
                " --settings few_pairs_gpu --time log --average 5 --minutes 7 --"
                " --save-interval 2 --keep-last-epochs 5",
                450,
            )
        ],
        True,
    ),
    Run(
        "2a",
        "the Transformer at the paper's size, 28,000 updates",
        _training("transformer", 1),
        True,
    ),
    Run("2b", "FTC at the paper's size, 28,000 updates", _training("transformer_ftc", 1), True),
    Run(
        "3a",
        "kernels of MSCFFN and Fastformer, then whole steps",
        [
            Part("mscffn", _LAYER, 40, ["ffn", "mscffn"]),
            Part("summaries", _READ, 40, ["copy", "summaries"]),
            Part("residual", _PARTS + " --dropout 0.3", 30, ["residual-plain", "residual"]),
            Part("projections", _PARTS, 30, ["projections-plain", "projections"]),
            Part("mscffn_plain", _LAYER, 40, ["ffn", "mscffn"], triton=False),
            Part("summaries_plain", _READ, 40, ["copy", "summaries"], triton=False),
            Part(
                "step_parts",
                _STEP.format(4096),
                120,
                [TRANSFORMER, *both(MSCFFN, FASTFORMER)],
                SIZES,
            ),
        ],
    ),
    Run(
        "3t",
        "the tests for a GPU",
        [Part("tests", f'pytest -q -n 4 -p no:cacheprovider {_TESTS} -m "gpu and not slow"', 180)],
    ),
    Run(
        "3b",
        "Fastformer's figure 2 and MSCFFN's table 3 at the papers' sizes",
        [
            Part("figure2", "benchmark figure2 --dtype bf16 --budget 8 --longest-step 5", 240),
            Part("table3", "benchmark table3 --dtype bf16 --budget 8 --longest-step 5", 220),
        ],
    ),
    Run(
        "3c",
        "other block sizes of the kernels",
        [
            Part(name, f"benchmark blocks --dtype bf16 --kernel {name}", 80)
            for name in (
                *("products-inner", "products-weights", "products-forward"),
                *("summaries-backward", "summaries-forward", "residual"),
            )
        ],
    ),
    *(
        Run(
            name,
            f"{title} as in runs 2a and 2b, seed {seed}",
            _training(recipe, seed),
            True,
        )
        for name, title, recipe, seed in (
            ("4a", "the Transformer", "transformer", 2),
            ("4b", "FTC", "transformer_ftc", 2),
            ("4c", "the Transformer", "transformer", 3),
            ("4d", "FTC", "transformer_ftc", 3),
        )
    ),
    Run(
        "4e",
        "the best recipe for few pairs at full size",
        [
            Part(
                "few_pairs",
                "reproduce low-resource DATA --out WORK/table --rows transformer_both ftc_both"
                " --seeds 1 --settings few_pairs_gpu --parallel 2 --average 5 --minutes 7",
                460,
            )
        ],
        True,
    ),
    Run(
        "4f",
        "the rows of Multi30k",
        [
            Part(
                "multi30k",
                "reproduce multi30k MULTI30K --out WORK/table --parallel 4 --minutes 7",
                460,
            )
        ],
    ),
    Run(
        "5",
        "search; steps of summarizers of CNN/DailyMail's size",
        [
            Part(
                "generation",
                "benchmark generate DATA --batch-size 32 --dtype bf16",
                90,
                [PLAIN, TRANSFORMER, DEEP, f"{DEEP} --recorded"],
                SIZES,
            ),
            Part(
                "generation_128",
                "benchmark generate DATA --batch-size 128 --dtype bf16",
                90,
                [PLAIN, TRANSFORMER, DEEP, f"{DEEP} --recorded"],
                SIZES,
            ),
            Part(
                "step_documents",
                "benchmark train-step SUMMARIES --dtype bf16 --warmup 3 --leave-out-failing"
                " --max-tokens 65536 --batches 3",
                150,
                [READS_DOCUMENTS, *both(_COPYING)],
                _DOCUMENTS,
            ),
        ],
    ),
]

_SMALL = (
    "--encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2"
    " --decoder-embed-dim 16 --decoder-ffn-embed-dim 32 --decoder-attention-heads 2"
)  # layers are not among them: rows of `reproduce` set theirs
_FEW = "--cpu --dtype fp32 --max-tokens 200"
_OPTIONS = f"--options '--share-decoder-input-output-embed {_SMALL}'"
_ONCE = "--batches 1 --rounds 1 --warmup 0"
# for each command the words that make it take seconds on a CPU; later ones win
TOYS = {
    "benchmark gpu-part": f"{_FEW} {_OPTIONS} --updates 2",
    "benchmark train-step": f"{_FEW} {_OPTIONS} {_ONCE}",
    "benchmark generate": f"--cpu --dtype fp32 --batch-size 2 --beam 2 {_OPTIONS} {_ONCE}",
    "benchmark layer": "--cpu --dtype fp32 --dim 48 --tokens 32 --lengths 16 --rounds 1 --warmup 0",
    "benchmark blocks": "--cpu --dtype fp32 --part 128 --rounds 1 --warmup 0",
    "benchmark figure2": "--cpu --dtype fp32 --values 16 --tokens 32 --rounds 1 --what forward",
    "benchmark table3": "--cpu --dtype fp32 --values 16 --sentences 1 --rounds 1 --options"
    " '--encoder-layers 1 --encoder-embed-dim 48 --encoder-ffn-embed-dim 96'",
    "train": f"--cpu --precision fp32 -- {_SMALL} --max-update 2 --save-interval-updates 1"
    " --max-tokens 200 --max-tokens-valid 2000",
    "evaluate": "--cpu --beam 1 --last 1 --by update",
    "reproduce": f"--cpu --precision fp32 --max-update 2 -- {_SMALL} --max-tokens 200",
    "pytest": "--collect-only -q",
}


class Goal(NamedTuple):
    """A ratio of times, and its upper limit.

    Args:
        what: what is measured.
        part: its name.
        row: the contender; its ratio to the first one of the part is judged. Of a training the
            run, and BLEU must not be below that of run 2a.
        limit: the largest ratio that reaches the goal.
        moonshot: the same, or None.
        before: the ratio on an H200 before --cuda-graphs, or None.
    """

    what: str
    part: str
    row: str
    limit: float
    moonshot: float | None = None
    before: float | None = None


_RECORDED, _RECORDED_FTC = f"{TRANSFORMER} {GRAPHS}", f"{FUSED} {GRAPHS}"
# all in bf16, against eager fairseq or the part that is replaced, in the same run
GOALS = [
    Goal("FTC 2x3 step, 4,096 tokens", "step_4096", _RECORDED_FTC, 0.30, 0.20, 1.07),
    Goal("fairseq's transformer, recorded, 4,096", "step_4096", _RECORDED, 0.35, 0.24, 1.0),
    Goal("FTC 2x3 step, 512 tokens", "step_512", _RECORDED_FTC, 0.15, 0.10, 1.01),
    Goal("FTC 2x3 step, 32,768 tokens", "step_32768", _RECORDED_FTC, 0.60, 0.45),
    Goal("MSCFFN 768/3072, by default", "mscffn", "mscffn", 0.50, 0.40, 1.98),
    Goal("Fastformer's summaries, by default", "summaries", "summaries", 0.83, None, 1.43),
    Goal(
        "step of fastformer_copy_cnn_dm, 2,048 positions",
        "step_documents",
        f"{_COPYING} {GRAPHS}",
        0.6,
        0.4,
    ),
    Goal("beam 5, batch 32, FTC 6,6 + 1", "generation", f"{DEEP} --recorded", 0.25, 0.15, 0.437),
    Goal("FTC on 48,880 pairs at the paper's size, converged", "training", "2b", 0.8),
]


def find(name: str) -> Run:
    """The run of this name.

    Raises:
        ConfigurationError: there is none.
    """
    for run in RUNS:
        if run.name == name:
            return run
    raise ConfigurationError(
        f"--run {name} is unknown: give one of {', '.join(run.name for run in RUNS)}"
    )


def judge(folder: Path) -> list[dict[str, Any]]:
    """The goals, from the figures in a folder: RUN/PART.json of each part that was measured."""

    def rows(run: str, part: str) -> list[dict[str, Any]]:
        return (read_json(folder / run / f"{part}.json") or {"rows": []})["rows"]

    judged = []
    for goal in GOALS:
        bleu: list[float] = []
        if goal.part == "training":
            name, pair = f"2a and {goal.row}", ("2a", goal.row)
            seconds = [row["seconds"] for run in pair for row in rows(run, "training")]
            bleu = [row["bleu"] for run in pair for row in rows(run, "test")]
            complete = len(seconds) == len(bleu) == 2 and seconds[0] > 0
            ratio = seconds[1] / seconds[0] if complete else None
        else:
            (name,) = (run.name for run in RUNS if goal.part in [part.name for part in run.parts])
            found = [row for row in rows(name, goal.part) if row["contender"] == goal.row]
            ratio = found[0].get("time_ratio") if found else None
        state = "not measured yet"
        if ratio is not None:
            state = "reached" if ratio <= goal.limit else f"missed by {ratio - goal.limit:.3f}"
            if bleu and bleu[1] < bleu[0]:
                state = f"missed: BLEU {bleu[1]:.2f} is below {bleu[0]:.2f}"
        judged.append({**goal._asdict(), "run": name, "time_ratio": ratio, "state": state})
    return judged
