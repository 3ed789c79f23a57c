"""README's ratios of time, compared with those stored for this kind of processor.

    bash scripts/test.sh --speed     # or: python -m fairseq_plugins benchmark speed --out DIR

Run it after each change to code on a measured path. Each ratio is measured side by side in one
process, on one thread in processor time, in smaller batches than README's, so that all take five
minutes. It fails if a ratio is worse than the stored one by more than the larger spread of the two.
New figures for this kind of processor are stored: commit the file. Data are made up, and models
have random weights. CTranslate2 is measured if it is installed.
"""

import argparse
import os
import random
import shlex
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins import cpu
from fairseq_plugins.arguments import add_flag, add_path
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.json_files import read_json, write_json

from . import exports, goals, machine, plots, results, timing
from .goals import DEEP, FUSED, PLAIN, SIZES, TRANSFORMER, Measurement

STORED = machine.ROOT / "examples" / "benchmarks" / "speed"
LEAST_SPREAD = 0.05  # of a ratio: medians of two runs differ by as much

SMALL = (
    "--encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4"
    " --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-attention-heads 4"
    " --encoder-normalize-before --decoder-normalize-before"
    " --share-decoder-input-output-embed --dropout 0.1"
)
LAYERS = "transformer_ftc_iwslt_de_en --encoder-blocks {} --decoder-layers {} "
ORDINARY = "--time-window 1 --feature-window 1 "
# models with random weights; FOLDER stands for a place in --out
EXPORTS = {
    "export:FOLDER/full": f"{DEEP} {SIZES}",
    "ctranslate2:FOLDER/full_12_1": LAYERS.format(12, 1) + ORDINARY + SIZES,
    "export:FOLDER/small": LAYERS.format("2,2", 4) + SMALL,
    "ctranslate2:FOLDER/small_4_4": LAYERS.format(4, 4) + ORDINARY + SMALL,
}
SERVING = "generate DATA --batch-size {} --batches {} --rounds {}"
SERVED = [DEEP + " --int8", *EXPORTS]
STEP = "train-step DATA --max-tokens {} --batches 2 --rounds 3"
PLAIN_PATH = "_iwslt_de_en --decoder-layers 3 --training-path plain"

MEASUREMENTS: dict[str, Measurement] = {
    "training_step": Measurement(STEP.format(1000), [TRANSFORMER, FUSED, FUSED + " --bf16"], SIZES),
    "search_32": Measurement(
        "generate DATA --batch-size 32 --batches 1 --rounds 4", [PLAIN, DEEP], SIZES
    ),
    "search_1": Measurement(
        "generate DATA --batch-size 1 --batches 8 --rounds 2", [PLAIN, DEEP + " --int8"], SIZES
    ),
    "fastformer": goals.MEASUREMENTS["fastformer_8192"].shorter(2),
    "mscffn": goals.MEASUREMENTS["mscffn_768"].shorter(9),
    "training_step_small": Measurement(
        STEP.format(2048),
        [
            TRANSFORMER + " --decoder-layers 3",
            "fastformer_encoder" + PLAIN_PATH,
            "mscffn_transformer" + PLAIN_PATH,
        ],
        SMALL,
    ),
    "serving_1": Measurement(SERVING.format(1, 24, 2), SERVED, SIZES),
    "serving_8": Measurement(SERVING.format(8, 6, 2), SERVED, SIZES),
    "serving_32": Measurement(SERVING.format(32, 3, 2), SERVED, SIZES),
}


class Headline(NamedTuple):
    """A ratio of times in README.

    Args:
        what: as README says it.
        measurement: the key in `MEASUREMENTS`.
        row, against: places in its contenders.
    """

    what: str
    measurement: str
    row: int
    against: int = 0


HEADLINES = [
    Headline("training step, `transformer_ftc_iwslt_de_en`, fused loss", "training_step", 1),
    Headline("the same in bf16, on a CPU with bf16 instructions", "training_step", 2),
    Headline("beam-5 search, batch 32, `transformer_ftc_deep_iwslt_de_en`", "search_32", 1),
    Headline("the same with `--int8`, one sentence at a time", "search_1", 1),
    Headline("Fastformer's attention, 8,192 tokens, d 512, training", "fastformer", 1),
    Headline("MSCFFN 768/3072, training", "mscffn", 1),
    Headline("training step, d 128, plain path, Fastformer", "training_step_small", 1),
    Headline("training step, d 128, plain path, MSCFFN", "training_step_small", 2),
]
for batch in (1, 8, 32):
    HEADLINES += [
        Headline(f"8-bit export, 6,6 + 1 layers, batch {batch}", f"serving_{batch}", 1, 2),
        Headline(f"8-bit export, d 128, batch {batch}", f"serving_{batch}", 3, 4),
        Headline(f"8-bit export, batch {batch}, against torch in 8 bits", f"serving_{batch}", 1),
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_path(parser, "--out", "DIR", "output folder", required=True)
    add_flag(parser, "--record", "store all figures of this run, also worse ones")
    add_path(
        parser, "--stored", "DIR", "the stored figures, a file for each kind of processor "
        "(default: %(default)s)", default=STORED,
    )  # fmt: skip
    parser.add_argument(
        "--only", nargs="+", choices=list(MEASUREMENTS), metavar="NAME",
        help="measure only these: " + ", ".join(MEASUREMENTS),
    )  # fmt: skip
    machine.add_arguments(parser, argparse.SUPPRESS)
    parser.set_defaults(clock="processor", cpu=True)


def run(args: argparse.Namespace) -> results.Report:
    """Measure all headlines, compare them with the stored ones and store missing ones.

    Raises:
        ConfigurationError: arguments are invalid.
    """
    device = machine.choose_device(args)
    args.data = args.out / "data"
    _write_data(args.data)
    wanted = args.only or list(MEASUREMENTS)
    problems = _write_exports(args) if any("serving" in name for name in wanted) else {}
    path = args.stored / f"{slug(machine.cpu_kind())}.json"
    stored = (read_json(path) or {}).get("figures", {})
    where = machine.describe(device, args.threads)
    rows: list[dict[str, Any]] = []
    for number, name in enumerate(wanted, 1):
        print(f"[{number}/{len(wanted)}] {name}", file=sys.stderr, flush=True)
        load, found = os.getloadavg()[0], _measure(name, args, problems)
        for headline in (each for each in HEADLINES if each.measurement == name):
            figure = ratio_of(headline, found)
            if figure is not None:
                figure.update(load=round(load, 1), date=time.strftime("%Y-%m-%d"), machine=where)
            rows.append(compare(headline.what, figure, stored.get(headline.what)))
        record(path, rows, args.record)  # what was measured stays, should this be stopped
    worse = [f"{row['what']}: {row['verdict']}" for row in rows if row["worse"]]
    advice = "; make it fast again, or say that it is meant with --record"
    return results.Report(
        rows,
        [
            ("what", results.text("what")),
            ("time, ratio", results.number("time_ratio")),
            ("quartiles", results.quartiles("time_ratio_quartiles")),
            ("stored", results.number("stored")),
            ("", results.text("verdict")),
        ],
        [f"{machine.cpu_kind()}, stored in {path}; other load before it began: {_loads(rows)}"],
        lambda plot: plots.bars(plot, [r for r in rows if r["time_ratio"]], "Ratio of time"),
        "; ".join(worse) + advice if worse and not args.record else "",
    )


def slug(kind: str) -> str:
    """The name of the file of a kind of processor."""
    return "_".join("".join(c if c.isalnum() else " " for c in kind.lower()).split())


def ratio_of(headline: Headline, found: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    """The median of the ratios of two contenders, and their quartiles; None if one is missing."""
    if not found or max(headline.row, headline.against) >= len(found):
        return None
    own, base = (found[place].get("seconds") for place in (headline.row, headline.against))
    if not own or not base:
        return None
    spread = timing.spread(timing.ratios(own, base))
    return {"ratio": spread.median, "quartiles": [spread.low, spread.high]}


def spread_of(figure: dict[str, Any]) -> float:
    low, high = figure["quartiles"]
    return max(float(high - low), LEAST_SPREAD * float(figure["ratio"]))


def compare(
    what: str, figure: dict[str, Any] | None, stored: dict[str, Any] | None
) -> dict[str, Any]:
    """A row of the table: a figure compared with the stored one. It is worse if "worse"."""
    row = {"what": what, "contender": what, "figure": figure, "worse": False, "time_ratio": None}
    row.update(stored=stored and stored["ratio"], time_ratio_quartiles=None)
    if figure is None:
        return {**row, "verdict": "not measured"}
    row.update(time_ratio=figure["ratio"], time_ratio_quartiles=figure["quartiles"])
    if stored is None:
        return {**row, "verdict": "recorded"}
    more, spread = figure["ratio"] - stored["ratio"], max(spread_of(figure), spread_of(stored))
    if abs(more) <= spread:
        return {**row, "verdict": "as stored"}
    figures = f"{figure['ratio']:.3f}, stored {stored['ratio']:.3f}, spread {spread:.3f}"
    if more > 0:
        return {**row, "verdict": f"worse: {figures}", "worse": True}
    return {**row, "verdict": f"better: {figures}; --record stores it"}


def record(path: Path, rows: list[dict[str, Any]], everything: bool) -> None:
    """Store the figures that are not stored, or with `everything` all that were measured."""
    stored = (read_json(path) or {}).get("figures", {})
    found = {row["what"]: row["figure"] for row in rows if row["figure"]}
    new = {what: figure for what, figure in found.items() if everything or what not in stored}
    if new:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"kind": machine.cpu_kind(), "figures": {**stored, **new}})


def _loads(rows: list[dict[str, Any]]) -> str:
    loads = [row["figure"]["load"] for row in rows if row["figure"]]
    return f"{min(loads)} to {max(loads)}" if loads else "unknown"


def _write_data(folder: Path) -> None:
    """Pairs of made-up words, 10,000 types a side, with lengths like those of IWSLT'14."""
    if (folder / "dict.en.txt").is_file():
        return
    from fairseq_plugins.preparation.binarise import binarise

    text, draw = folder / "text", random.Random(1)
    text.mkdir(parents=True, exist_ok=True)
    words = {side: _words(draw) for side in ("de", "en")}
    for split, pairs in (("train", 2000), ("test", 400)):
        sides: dict[str, list[str]] = {side: [] for side in words}
        for _ in range(pairs):
            length = min(100, max(2, draw.lognormvariate(2.85, 0.65)))
            for side, lines in sides.items():
                count = max(1, round(length * draw.uniform(0.85, 1.15)))
                lines.append(" ".join(islice(words[side], count)))
        for side, lines in sides.items():
            content = "\n".join(lines) + "\n"
            (text / f"{split}.{side}").write_text(content, encoding="utf-8")
    binarise(text, ["train", "test"], ["de", "en"], folder)


def _words(draw: random.Random) -> Iterator[str]:
    """Words in random order, each once before any comes again, so that train has them all."""
    types = 9996  # with fairseq's four symbols 10,000
    while True:
        yield from (f"w{number}" for number in draw.sample(range(types), types))


def _placed(contender: str, args: argparse.Namespace) -> str:
    return contender.replace("FOLDER", shlex.quote(str(args.out)))


def _write_exports(args: argparse.Namespace) -> dict[str, str]:
    """Write the folders of `EXPORTS` anew; those that cannot be written, and why."""
    problems = {}
    for name, words in EXPORTS.items():
        print(f"exports {name}", file=sys.stderr, flush=True)
        try:
            exports.write_untrained(_placed(name, args), words, args.data)
        except ConfigurationError as error:
            problems[name] = str(error)
            print(f"{name} is left out: {error}", file=sys.stderr, flush=True)
    return problems


def _measure(
    name: str, args: argparse.Namespace, problems: dict[str, str]
) -> list[dict[str, Any]] | None:
    """The rows of a measurement, one per contender; empty for skipped contenders."""
    measurement = MEASUREMENTS[name]
    possible = [
        words not in problems and (cpu.has_bf16() or "--bf16" not in words)
        for words in measurement.contenders
    ]
    chosen = [_placed(words, args) for words, here in zip(measurement.contenders, possible) if here]
    path = args.out / f"{name}.json"
    if not goals.measure(measurement._replace(contenders=chosen), path, args, "cpu"):
        print(f"{name} failed, see above", file=sys.stderr, flush=True)
        return None
    rows = iter(read_json(path)["rows"])
    return [next(rows) if here else {} for here in possible]
