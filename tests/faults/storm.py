"""Random kills, random options and random damage, until the time is up.

    python -m tests.faults.storm [SECONDS] [SEED] [NUMBER OF THE FIRST TRIAL]
    bash scripts/test.sh --faults [SECONDS] [SEED]

Each trial depends on the seed and its number alone. A training with options drawn by chance is run
once without a fault, and once with faults:

    kill        SIGKILL to one of its processes, before an update or at any moment; started again
    full disk   checkpoints cannot be written any longer; then they can, and it is started again
    checkpoint  one or several are cut, emptied, zeroed or removed, or a bit is flipped
    data        a file of the prepared data is cut, emptied or removed

A fault is survived if the parameters and the optimizer's state at the end are those of the
training without a fault, to the bit, and each sentence was seen once an epoch. It is rejected if
training ends with an error of one line and all checkpoints are as before. All else is lost, and
reported with the command that repeats it.
"""

import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.conftest import OPTIMIZATION, TINY_TRANSFORMER, load, prepare_toy_data, updates
from tests.faults.training import (
    DAMAGE,
    Killed,
    Run,
    difference,
    flip,
    not_once,
    seen,
    train,
)

SENTENCES = {"train": 60, "valid": 6, "test": 5}
EPOCHS = 3

# one of each line
OPTIONS: list[list[list[Any]]] = [
    [
        ["--arch", "transformer"],
        ["--arch", "transformer_ftc", "--encoder-blocks", "1,1"],
        ["--arch", "fastformer_encoder"],
        ["--arch", "transformer", "--encoder-layerdrop", 0.3],
        ["--arch", "mscffn_transformer", "--mscffn-subspaces", 4],
    ],
    [["--task", "translation"], ["--task", "summarization"]],
    [[], [], ["--update-freq", 2], ["--update-freq", "2,1,3"]],
    [
        [],
        ["--lr-scheduler", "inverse_sqrt", "--warmup-updates", 5],
        ["--lr-scheduler", "fixed", "--lr", "0.003,0.001"],
        ["--lr-scheduler", "reduce_lr_on_plateau", "--lr-threshold", 0.5],
        ["--lr-scheduler", "reduce_lr_on_plateau", "--lr-threshold", 0.9, "--lr-patience", 1],
        ["--lr-scheduler", "polynomial_decay", "--total-num-update", 30],
        ["--lr-scheduler", "cosine", "--lr-period-updates", 7],
        ["--lr-scheduler", "triangular", "--max-lr", 0.02, "--lr-period-updates", 8],
    ],
    [
        [],
        ["--optimizer", "sgd", "--momentum", 0.9],
        ["--optimizer", "adafactor", "--lr", 0.01],
        ["--optimizer", "nag", "--lr", 0.01],
        ["--adam-betas", "(0.9, 0.98)", "--weight-decay", 0.01],
        ["--memory-efficient-bf16", "--fp16-scale-window", 8],
    ],
    [[], [], ["--bf16", "--fp16-scale-window", 8], ["--store-ema"]],
    [[], [], ["--curriculum", 1], ["--update-ordered-indices-seed"]],
    [["--disable-validation"], [], ["--patience", 2], ["--keep-best-checkpoints", 2]],
    [[], ["--no-epoch-checkpoints"], ["--keep-last-epochs", 2]],
    [
        ["--criterion", "label_smoothed_cross_entropy"],
        ["--criterion", "label_smoothed_cross_entropy_fused"],
        ["--criterion", "label_smoothed_cross_entropy_rdrop"],
    ],
    [["--dropout", 0.1], ["--dropout", 0.3, "--attention-dropout", 0.1]],
    [["--data-buffer-size", 0], ["--data-buffer-size", 10]],
]


class Lost(Exception):
    """A fault that lost data or changed the result."""


def refusal(run: Run) -> str:
    """The one line with which a training refused to start; empty if it did not."""
    lines = run.output.strip().splitlines()
    return lines[-1] if 1 in run.status and lines and lines[-1].startswith("error: ") else ""


class Trial:
    """A training without faults, and what the same one with faults is compared with."""

    def __init__(self, generator: random.Random, corpus: Path, folder: Path):
        self.generator, self.folder = generator, folder
        self.data = Path(shutil.copytree(corpus, folder / "data"))
        self.processes = generator.choice([1, 1, 2])
        self.words = [self.data, *TINY_TRANSFORMER, *OPTIMIZATION]
        for choices in OPTIONS:
            self.words += generator.choice(choices)
        self.words += ["--max-tokens", generator.choice([60, 100]), "--max-epoch", EPOCHS]
        interval, keep = generator.choice([2, 3, 5]), generator.choice([1, 2, -1])
        self.words += ["--save-interval-updates", interval, "--keep-interval-updates", keep]
        self.words += ["--seed", generator.randrange(1000)]
        self.records = folder / "record of the whole", folder / "record"
        for record in self.records:
            record.mkdir()
        self.save_dir = folder / "run"

    def without_a_fault(self) -> bool:
        """Whether the options train at all."""
        self.save_dir.mkdir()
        run = train(self.words, self.folder / "whole", self.processes, record=self.records[0])
        if refusal(run):
            return False
        if any(run.status):
            raise Lost(f"without a fault: {run.status} {run.output[-300:]}")
        self.expected = load(self.folder / "whole")
        self.sentences = seen(self.records[0])
        complete = range(1, max(self.sentences) if "--patience" in self.words else EPOCHS + 1)
        wrong = [not_once(self.sentences[epoch], SENTENCES["train"]) for epoch in complete]
        if any(wrong):
            raise Lost(f"without a fault, how often sentences were seen: {wrong}")
        return True

    def start(self, kill: Killed | None = None) -> Run:
        return train(self.words, self.save_dir, self.processes, kill, self.records[1])

    def killed(self) -> Run:
        """Started, and killed at some moment unless it ends before."""
        rank = self.generator.randrange(self.processes)
        if self.generator.random() < 0.5:
            return self.start(Killed(self.generator.randrange(updates(self.expected)), rank))
        return self.start(Killed(rank=rank, seconds=self.generator.uniform(0.1, 3)))

    def killed_late(self) -> None:
        """Started, and killed in the second half: there are checkpoints."""
        end = updates(self.expected)
        self.start(Killed(self.generator.randrange(max(3, end // 2), end)))

    def finish(self) -> str:
        """Train to the end: what became of the faults."""
        before = self.checkpoints()
        run = self.start()
        if refusal(run):
            if self.checkpoints() != before:
                raise Lost(f"rejected, but checkpoints changed: {refusal(run)}")
            return "rejected"
        if any(run.status):
            raise Lost(f"status {run.status}: {run.output[-300:]}")
        found = difference(load(self.save_dir), self.expected)
        if found:
            raise Lost(f"other {found}")
        if seen(self.records[1]) != self.sentences:
            raise Lost("other sentences were seen")
        return "survived"

    def checkpoints(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.save_dir.glob("*.pt")}


def kills(trial: Trial) -> Counter:
    count = trial.generator.randint(1, 4)
    for _ in range(count):
        run = trial.killed()
        if refusal(run) or 1 in run.status and 9 not in run.status:
            raise Lost(f"status {run.status}: {run.output[-300:]}")
    return Counter({trial.finish(): count})


def full_disk(trial: Trial) -> Counter:
    trial.killed_late()
    size = max((len(content) for content in trial.checkpoints().values()), default=10000)
    limit = trial.generator.randrange(size)
    train(trial.words, trial.save_dir, trial.processes, record=trial.records[1], file_size=limit)
    return Counter({trial.finish(): 1})


def damaged_checkpoints(trial: Trial) -> Counter:
    trial.killed_late()
    paths = sorted(trial.save_dir.glob("checkpoint*.pt"))
    last = trial.save_dir / "checkpoint_last.pt"
    damaged = set(trial.generator.sample(paths, trial.generator.randint(0, len(paths))))
    if last in paths:
        damaged.add(last)
    for path in sorted(damaged):
        how = trial.generator.choice([*DAMAGE.values(), flip])
        how(path, trial.generator)
    outcome = trial.finish()
    if outcome == "rejected" and damaged != set(paths):
        raise Lost("rejected, although an intact checkpoint was there")
    return Counter({outcome: len(damaged)})


def damaged_data(trial: Trial) -> Counter:
    trial.killed_late()
    names = ["train.*", "dict.*"] + ["valid.*"] * ("--disable-validation" not in trial.words)
    paths = sorted(path for name in names for path in trial.data.glob(name))
    path = trial.generator.choice(paths)
    kept = path.read_bytes()
    how = trial.generator.choice(["cut", "empty", "missing"])
    DAMAGE[how](path, trial.generator)
    outcome = trial.finish()
    if outcome == "rejected":
        path.write_bytes(kept)
        if trial.finish() != "survived":
            raise Lost("rejected although the data is whole again")
    return Counter({outcome: 1})


FAULTS: Sequence[Callable[[Trial], Counter]] = (
    kills, kills, kills, damaged_checkpoints, damaged_checkpoints, damaged_data, full_disk,
)  # fmt: skip


def storm(seconds: float, seed: int, first: int = 0, trials: int | None = None) -> Counter:
    """Run trials from number `first` on; returns how many faults were tried and what they did."""
    counts: Counter = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        corpus = prepare_toy_data(Path(temporary), SENTENCES).bin
        until = time.monotonic() + seconds
        number = first
        while time.monotonic() < until and (trials is None or number < first + trials):
            generator = random.Random(f"{seed} {number}")
            fault = generator.choice(FAULTS)
            folder = Path(temporary) / str(number)
            folder.mkdir()
            trial = Trial(generator, corpus, folder)
            try:
                found = fault(trial) if trial.without_a_fault() else Counter({"rejected": 1})
            except Lost as error:
                found = Counter({"lost": 1})
                words = " ".join(map(str, trial.words[1:]))
                print(f"lost in trial {number} of seed {seed}, {trial.processes} process(es), "
                      f"{words}: {error}", flush=True)  # fmt: skip
            outcome = ", ".join(f"{count} {what}" for what, count in found.items()) or "none"
            print(f"trial {number}, {fault.__name__}: {outcome}", flush=True)
            counts.update(found)
            counts[fault.__name__] += sum(found.values())
            counts["tried"] += sum(found.values())
            counts["trials"] += 1
            shutil.rmtree(folder)
            number += 1
    return counts


def main(argv: Sequence[str]) -> int:
    seconds = float(argv[0]) if argv else 600.0
    seed = int(argv[1]) if len(argv) > 1 else random.randrange(10**6)
    first = int(argv[2]) if len(argv) > 2 else 0
    logging.disable(logging.DEBUG)
    print(f"seed {seed}, {seconds:.0f} s", flush=True)
    counts = storm(seconds, seed, first)
    kinds = (f"{fault.__name__} {counts[fault.__name__]}" for fault in dict.fromkeys(FAULTS))
    print(f"seed {seed}, {counts['trials']} trainings; faults: {', '.join(kinds)}")
    outcomes = ("tried", "survived", "rejected", "lost")
    print(", ".join(f"{outcome} {counts[outcome]}" for outcome in outcomes))
    return 1 if counts["lost"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
