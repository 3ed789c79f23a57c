#!/usr/bin/env python3
"""Turn fairseq's log (--log-format simple), read from standard input, into a short line a step.

    fairseq-train ... 2>&1 | python scripts/training_progress.py --updates 1200

tells the step, the loss and about how long it will still take.
"""

import argparse
import re
import sys
import time
from typing import Iterable, Iterator, Optional, Sequence


def summarise(log: Iterable[str], updates: int) -> Iterator[str]:
    """A line for every training report, validation and resumed checkpoint in the log.

    `updates` is where training will end; 0 if that is not known.
    """
    first: Optional[int] = None
    begun = 0.0
    end = f"/{updates}" if updates else ""
    for line in log:
        report = re.search(r"train_inner .* num_updates=(\d+)", line)
        if report:
            done, now = int(report.group(1)), time.monotonic()
            if first is None or done <= first:
                first, begun = done, now
            left = ""
            if done > first and updates:
                seconds = (now - begun) / (done - first) * max(0, updates - done)
                left = "  about {:.0f} s left".format(seconds)
            yield "  update {}{}  train nll {}{}".format(done, end, _likelihood(line), left)
        valid = re.search(r"valid on .* num_updates (\d+)", line)
        if valid:
            yield "  update {}{}  valid nll {}".format(valid.group(1), end, _likelihood(line))
        resumed = re.search(r"Loaded checkpoint .* @ (\d+) updates", line)
        if resumed:
            yield "  going on from update {}".format(resumed.group(1))


def _likelihood(report: str) -> str:
    """The negative log-likelihood, which a criterion without label smoothing just calls loss."""
    found = re.search(r"\bnll_loss[= ]([\d.]+)", report) or re.search(r"\bloss[= ](\S+)", report)
    return found.group(1).rstrip(",") if found else "?"


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, required=True, help="where training will end")
    args = parser.parse_args(argv)
    for line in summarise(sys.stdin, args.updates):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
