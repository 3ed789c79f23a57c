"""README's ratios of time, compared with those stored for this kind of processor.

    bash scripts/test.sh --speed     # or: fairseq-plugins benchmark speed --out DIR

Run it after each change to code on a measured path. Each ratio is measured side by side in one
process, on one thread in processor time, in smaller batches than README's, so that all take five
minutes. It fails if a ratio is worse than the stored one by more than the larger spread of the two.
New figures for this kind of processor are stored: commit the file. Data are made up, and models
have random weights. CTranslate2 is measured if it is installed (`--extras test` does).
"""

import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import read_json, write_json
from fairseq_plugins.options.fields import REQUIRED, option, with_default
from fairseq_plugins.system import cpu

from . import generate, harness, machine, plots, prepared
from .harness import Report, Row

STORED = machine.ROOT / "examples" / "benchmarks" / "speed"
LEAST_SPREAD = 0.05  # of a ratio: medians of two runs differ by as much


@dataclass
class Speed(harness.Measurement):
    """The options of the subcommand."""

    out: Path = option(REQUIRED, "the folder to write", metavar="DIR")
    record: bool = option(False, "store all figures of this run, also worse ones")
    stored: Path = option(STORED, "the folder of the stored figures", metavar="DIR")
    only: Sequence[str] = option(
        (), "measure only these: " + ", ".join(prepared.SPEED), choices=list(prepared.SPEED),
        metavar="NAME",
    )  # fmt: skip
    clock: str = with_default(harness.Measurement, "clock", "processor")
    cpu: bool = with_default(harness.Measurement, "cpu", True)


def run(args: Speed) -> Report:
    """Measure all headlines, compare them with the stored ones and store missing ones.

    Raises:
        ConfigurationError: arguments are invalid.
    """
    device = harness.choose_device(args)
    _write_data(args.out / "data")
    wanted = args.only or list(prepared.SPEED)
    missing = _write_exports(args.out) if any("serving" in name for name in wanted) else set()
    path = args.stored / f"{slug(machine.cpu_kind())}.json"
    stored = (read_json(path) or {}).get("figures", {})
    where = machine.describe(device, args.threads)
    rows: list[Row] = []
    for number, name in enumerate(wanted, 1):
        print(f"[{number}/{len(wanted)}] {name}", file=sys.stderr, flush=True)
        load, rows_of_run = os.getloadavg()[0], _measure(name, args, missing)
        for headline in (each for each in prepared.HEADLINES if each["in"] == name):
            figure = ratio_of(headline, rows_of_run)
            if figure is not None:
                figure.update(load=round(load, 1), date=time.strftime("%Y-%m-%d"), machine=where)
            rows.append(compare(headline["what"], figure, stored.get(headline["what"])))
        record(path, rows, args.record)  # what was measured stays, should this be stopped
    worse = [f"{row['what']}: {row['verdict']}" for row in rows if row["worse"]]
    advice = "; make it fast again, or say that it is meant with --record"
    loads = [row["figure"]["load"] for row in rows if row["figure"]]
    shown = f"{min(loads)} to {max(loads)}" if loads else "unknown"
    return Report(
        rows,
        [
            ("what", harness.text("what")),
            ("time, ratio", harness.number("time_ratio")),
            ("quartiles", harness.quartiles("time_ratio_quartiles")),
            ("stored", harness.number("stored")),
            ("", harness.text("verdict")),
        ],
        [f"{machine.cpu_kind()}, stored in {path}; other load before it began: {shown}"],
        lambda plot: plots.bars(plot, [r for r in rows if r["time_ratio"]], "Ratio of time"),
        "; ".join(worse) + advice if worse and not args.record else "",
    )


def slug(kind: str) -> str:
    """The name of the file of a kind of processor."""
    return "_".join("".join(c if c.isalnum() else " " for c in kind.lower()).split())


def ratio_of(headline: Row, rows: list[Row] | None) -> Row | None:
    """The median of the ratios of two contenders, and their quartiles; None if one is missing."""
    places = headline["row"], headline.get("against", 0)
    if not rows or max(places) >= len(rows):
        return None
    own, base = (rows[place].get("seconds") for place in places)
    if not own or not base:
        return None
    spread = harness.spread(harness.ratios(own, base))
    return {"ratio": spread.median, "quartiles": [spread.low, spread.high]}


def spread_of(figure: Row) -> float:
    low, high = figure["quartiles"]
    return max(float(high - low), LEAST_SPREAD * float(figure["ratio"]))


def compare(what: str, figure: Row | None, stored: Row | None) -> Row:
    """A row of the table: a figure compared with the stored one. It is worse if "worse"."""
    row: Row = {"what": what, "contender": what, "figure": figure}
    row["stored"], row["time_ratio"] = (each and each["ratio"] for each in (stored, figure))
    row["time_ratio_quartiles"] = figure and figure["quartiles"]
    verdict = "recorded" if figure else "not measured"
    if figure and stored:
        more, spread = figure["ratio"] - stored["ratio"], max(map(spread_of, (figure, stored)))
        figures = f"{figure['ratio']:.3f}, stored {stored['ratio']:.3f}, spread {spread:.3f}"
        verdict = f"worse: {figures}" if more > 0 else f"better: {figures}; --record stores it"
        verdict = verdict if abs(more) > spread else "as stored"
    return {**row, "verdict": verdict, "worse": verdict.startswith("worse")}


def record(path: Path, rows: list[Row], everything: bool) -> None:
    """Store the figures that are not stored, or with `everything` all that were measured."""
    stored = (read_json(path) or {}).get("figures", {})
    measured = {row["what"]: row["figure"] for row in rows if row["figure"]}
    new = {what: figure for what, figure in measured.items() if everything or what not in stored}
    if new:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"kind": machine.cpu_kind(), "figures": {**stored, **new}})


def _write_data(folder: Path) -> None:
    """Pairs of made-up words, 10,000 types a side, with lengths like those of IWSLT'14."""
    if (folder / "dict.en.txt").is_file():
        return
    from fairseq_plugins.data.binary import binarise_words

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
    for side in words:
        texts = {split: text / f"{split}.{side}" for split in ("train", "test")}
        binarise_words(texts, f"{folder}/{{split}}.de-en.{side}", folder / f"dict.{side}.txt")


def _words(draw: random.Random) -> Iterator[str]:
    """Words in random order, each once before any comes again, so that train has them all."""
    types = 9996  # with fairseq's four symbols 10,000
    while True:
        yield from (f"w{number}" for number in draw.sample(range(types), types))


def _write_exports(out: Path) -> set[str]:
    """Write the folders of `prepared.EXPORTS` anew; returns those that cannot be written."""
    missing = set()
    for name, words in prepared.EXPORTS.items():
        print(f"exports {name}", file=sys.stderr, flush=True)
        try:
            generate.write_untrained(name.replace("FOLDER", str(out)), words, out / "data")
        except ConfigurationError as error:
            missing.add(name)
            print(f"{name} is skipped: {error}", file=sys.stderr, flush=True)
    return missing


def _measure(name: str, args: Speed, missing: set[str]) -> list[Row] | None:
    """The rows of a measurement, one per contender; empty for skipped contenders."""
    part = prepared.SPEED[name]
    possible = [
        words not in missing and (cpu.has_bf16() or "--bf16" not in words)
        for words in part.contenders
    ]
    chosen = [words for words, here in zip(part.contenders, possible) if here]
    path = args.out / f"{name}.json"
    more = ["--cpu", "--threads", str(args.threads), "--clock", args.clock]
    places = {"DATA": args.out / "data", "FOLDER": args.out}
    if not part._replace(contenders=chosen).measure(places, path, more):
        return None
    rows = iter(read_json(path)["rows"])
    return [next(rows) if here else {} for here in possible]


COMMANDS = {"speed": (Speed, run)}
