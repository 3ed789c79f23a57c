"""What a training reports to its user: one short line per report."""

import logging
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fairseq.logging.progress_bar import format_stat
from fairseq.trainer import Trainer

from fairseq_plugins.compat.progress import Reports
from fairseq_plugins.errors import ConfigurationError, counted
from fairseq_plugins.train import history

SKIPPED = (
    "a batch did not fit into the GPU's memory, and fairseq skipped it: stop training and give "
    "--tokens-per-process"
)
SCORES = ("bleu", "accuracy", "rouge1", "rougeLsum")
# a dry run makes this many updates, or fewer if they take longer than this many seconds,
# and ignores the first ones
UPDATES, SECONDS, FIRST = 43, 20.0, 3
CAPTURED = 143  # updates with --cuda-graphs: most of them have a shape that was captured before


class Progress(Reports, logging.Handler):
    """Reports the update, the loss and the estimated time left; as a handler, also warnings.

    The master also keeps the numbers in the folder of the run (`history`).

    Args:
        say: called with each line of the report.
        master: whether this process reports for all that train together; the others only warn.
    """

    def __init__(self, say: Callable[[str], None], master: bool = True):
        logging.Handler.__init__(self, logging.WARNING)
        self.say, self.master = say, master
        self.updates, self.goal, self.until = 0, "", float("inf")
        self.first: tuple[float, int] | None = None
        self.resumed, self.before = 0, -1  # updates: of the checkpoint, and of the last report

    def emit(self, record: logging.LogRecord) -> None:
        self.say(record.getMessage())

    def built(self, trainer: Trainer) -> None:
        self.trainer, self.folder = trainer, Path(trainer.cfg.checkpoint.save_dir)
        end = trainer.cfg.optimization
        self.updates = end.max_update
        self.goal = f"/{self.updates:,}" if self.updates else ""
        if end.stop_time_hours:
            self.until = time.monotonic() + 3600 * end.stop_time_hours
        if self.master:
            count = sum(parameter.numel() for parameter in trainer.model.parameters())
            self.say(f"parameters: {count:,}")

    def loaded(self, path: str, update: int) -> None:
        self.resumed = update
        if update:
            self.until = float("inf")  # it is not known how much time was used
        if self.master:
            # without an update: a model from another training, with a new optimizer
            self.say(f"resumed from update {update:,}" if update else f"starts from {path}")

    def trained(self, update: int, per_epoch: int, stats: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first = now, update
            self._keep(resumed=self.resumed)
        # no time if a validation or the end of an epoch came since the last report
        epochs = {(number - 1) // max(1, per_epoch) for number in (self.before, update)}
        alone = self.before >= 0 and len(epochs) == 1
        seconds = stats["wpb"] / stats["wps"] if alone and stats.get("wps") else None
        losses = {name: stats[name] for name in ("loss", "nll_loss") if name in stats}
        self._keep(update=update, seconds=seconds, stats=losses)
        self.before = update
        if self.master:
            loss, left = _loss(stats), self._left(now, update)
            self.say(f"update {update:,}{self.goal}  train {loss}{left}")

    def validated(self, update: int, subset: str, stats: Mapping[str, Any]) -> None:
        self.before = -1
        self._keep(update=update, subset=subset, stats=stats)
        if self.master:
            scores = (f"  {name} {format_stat(stats[name])}" for name in SCORES if name in stats)
            self.say(f"update {update:,}{self.goal}  {subset} {_loss(stats)}{''.join(scores)}")

    def skipped(self) -> None:
        self.say(SKIPPED)

    def ended(self) -> None:
        """The training is over."""
        self._keep(update=self.trainer.get_num_updates())

    def _keep(self, **report: Any) -> None:
        if "stats" in report:
            hours = round(float(self.trainer.cumulative_training_time()) / 3600, 5)
            known = {n: v for n, v in report["stats"].items() if isinstance(v, (int, float))}
            report.update(stats=known, hours=hours)
        if self.master:
            history.add(self.folder, **report)

    def _left(self, now: float, update: int) -> str:
        assert self.first is not None
        left = self.until - now
        since, before = self.first
        if update > before and self.updates:
            left = min(left, (now - since) / (update - before) * (self.updates - update))
        return f"  about {in_words(left)} left" if left < float("inf") else ""


class Measured(Exception):
    """Raised when a dry run has measured enough updates."""


class Rehearsal(Progress):
    """A dry run: what `Progress` reports, once, without updates, and an estimate of the time.

    Raises:
        Measured: there were enough updates.
        ConfigurationError: none of the first batches fits into memory.
    """

    def __init__(self, say: Callable[[str], None], master: bool = True):
        super().__init__(self._once, master)
        self.tell, self.told = say, list[str]()
        self.most, self.captured = UPDATES, False
        self.times: list[tuple[float, int]] = []  # of each update, in seconds, and its number
        self.per_epoch = 0

    def _once(self, line: str) -> None:
        if line not in self.told:
            self.tell(line)
        self.told.append(line)

    def built(self, trainer: Trainer) -> None:
        super().built(trainer)
        self.end = trainer.cfg.optimization
        self.captured = bool(getattr(trainer.cfg.model, "cuda_graphs", False))
        self.most = CAPTURED if self.captured else UPDATES

    def trained(self, update: int, per_epoch: int, stats: Mapping[str, Any]) -> None:
        self.per_epoch = per_epoch
        self.times.append((time.monotonic(), update))
        times = self.times[FIRST - 1 :]
        enough = len(times) > 1 and times[-1][0] - times[0][0] > SECONDS
        if self.master and (enough or len(self.times) >= self.most):
            raise Measured

    def _keep(self, **report: Any) -> None:
        """A dry run keeps nothing."""

    def skipped(self) -> None:
        super().skipped()
        if self.told.count(SKIPPED) >= self.most and not self.times:
            raise ConfigurationError(
                f"none of {self.most} batches fits into the GPU's memory: give a small "
                "--tokens-per-process"
            )

    def estimate(self) -> str:
        """The estimated time of all updates, or why there is no estimate."""
        times = self.times[FIRST - 1 :]
        if len(times) < 2:
            return f"time: not estimated, as training ends within {FIRST} updates"
        (start, first), (end, last) = times[0], times[-1]
        each = (end - start) / (last - first)
        if self.captured:  # the median leaves out the updates that capture a shape
            each = statistics.median(
                (later - time) / (number - before)
                for (time, before), (later, number) in zip(times, times[1:])
            )
        limits = [self.end.max_update, self.end.max_epoch * self.per_epoch]
        limits.append(int(3600 * self.end.stop_time_hours / each))
        updates = min((limit for limit in limits if limit > 0), default=0)
        how = f"{each:.2g} s per update, measured over {last - first}"
        if not updates:
            return f"time: not estimated, as no option sets the number of updates ({how})"
        return (
            f"time: about {in_words(each * updates)} for {counted(updates, 'updates')}, without "
            f"validation and checkpoints ({how}; an epoch has {self.per_epoch:,})"
        )


def in_words(seconds: float) -> str:
    """A duration in words."""
    if seconds < 120:
        return f"{max(0, seconds):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 120 else f"{minutes} min"


def _loss(stats: Mapping[str, Any]) -> str:
    """The negative log-likelihood; criterions without label smoothing call it loss.

    A classifier's is "loss": its nll_loss is divided by the tokens of the texts.
    """
    classifies = "accuracy" in stats
    name = "loss" if classifies or "nll_loss" not in stats else "nll_loss"
    return f"{'loss' if classifies else 'nll'} {format_stat(stats.get(name))}"
