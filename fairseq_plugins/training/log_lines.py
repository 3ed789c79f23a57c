"""fairseq's training log (--log-format simple) as one short line per report."""

import re
import time
from collections.abc import Callable

RESUMED = re.compile(r"Loaded checkpoint (?P<path>.*) \(epoch .* @ (?P<update>\d+) updates")
RECOVERED = re.compile(r"\S+ is (?:missing|damaged).*: resuming from the newest intact one.*")
REPORT = re.compile(r"train_inner .* num_updates=(\d+)")
EPOCH = re.compile(r"epoch \d+: +\d+ / (\d+) ")
PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
VALID = re.compile(r"valid on '(?P<subset>[^']+)' subset.* num_updates (?P<update>\d+)")
SLOW = re.compile(r"--bf16 is slow here.*")
NOTHING_LEFT = re.compile(r"nothing left to train.*")
SKIPPED = (
    "a batch did not fit into the GPU's memory, and fairseq skipped it: stop training and give "
    "--tokens-per-process"
)
SCORE = re.compile(r"\b(?:bleu|accuracy|rouge1|rougeLsum) [\d.]+")


class Progress:
    """Reports the update, the loss and the estimated time left.

    Args:
        say: called with each line of the report.
        updates: the last update of the training; 0 if unknown.
        hours: the time limit of the training; 0 for no limit.
        seconds: the shortest time between two lines about training steps.
    """

    def __init__(
        self, say: Callable[[str], None], updates: int, hours: float = 0, seconds: float = 0
    ):
        self.say, self.updates, self.seconds = say, updates, seconds
        self.until = time.monotonic() + 3600 * hours if hours else float("inf")
        self.first: tuple[float, int] | None = None
        self.said = -float("inf")
        self.goal = f"/{updates:,}" if updates else ""

    def line(self, text: str) -> None:
        """Process a line of the log."""
        report, valid, resumed = REPORT.search(text), VALID.search(text), RESUMED.search(text)
        parameters = PARAMETERS.search(text)
        told = RECOVERED.search(text) or NOTHING_LEFT.search(text) or SLOW.search(text)
        if report:
            done, now = int(report.group(1)), time.monotonic()
            if self.first is None or done <= self.first[1]:
                self.first = now, done
            if now - self.said >= self.seconds:
                self.said = now
                self.say(f"update {done:,}{self.goal}  train {_loss(text)}{self._left(now, done)}")
        elif parameters:
            self.say(f"parameters: {parameters[1]}")
        elif valid:
            scores = "".join(f"  {score}" for score in SCORE.findall(text))
            done = int(valid["update"])
            self.say(f"update {done:,}{self.goal}  {valid['subset']} {_loss(text)}{scores}")
        elif resumed:
            update = int(resumed["update"])
            if update:
                self.until = float("inf")  # the log does not show how much time was used
                self.say(f"resumed from update {update:,}")
            else:  # a model from another training, with a new optimizer
                self.say(f"starts from {resumed['path']}")
        elif told:
            self.say(told.group())
        elif "OOM: Ran out of memory" in text:
            self.say(SKIPPED)

    def _left(self, now: float, done: int) -> str:
        assert self.first is not None
        left = self.until - now
        begun, before = self.first
        if done > before and self.updates:
            left = min(left, (now - begun) / (done - before) * (self.updates - done))
        return f"  about {in_words(left)} left" if left < float("inf") else ""


def in_words(seconds: float) -> str:
    """A duration in words."""
    if seconds < 120:
        return f"{max(0, seconds):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 120 else f"{minutes} min"


def _loss(report: str) -> str:
    """The negative log-likelihood; criterions without label smoothing call it loss.

    A classifier's is "loss": its nll_loss is divided by the tokens of the texts.
    """
    if re.search(r"\baccuracy\b", report):
        found = re.search(r"\bloss[= ](\S+)", report)
        return f"loss {found.group(1).rstrip(',')}" if found else "loss ?"
    found = re.search(r"\bnll_loss[= ]([\d.]+)", report) or re.search(r"\bloss[= ](\S+)", report)
    return f"nll {found.group(1).rstrip(',') if found else '?'}"
