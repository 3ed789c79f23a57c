"""Report a training's progress as numbers, which fairseq only writes into its log."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fairseq.logging import progress_bar
from fairseq.trainer import Trainer

from fairseq_plugins.compat.patch import repair


class Reports:
    """What a training does; a subclass overrides what it wants to know."""

    def built(self, trainer: Trainer) -> None:
        """The trainer has its model."""

    def loaded(self, path: str, update: int) -> None:
        """A checkpoint was loaded: the training resumes after this update, 0 for a new one."""

    def trained(self, update: int, per_epoch: int, stats: Mapping[str, Any]) -> None:
        """Each --log-interval updates: the update, those of an epoch, and averages since."""

    def validated(self, update: int, subset: str, stats: Mapping[str, Any]) -> None:
        """A validation on this subset has ended."""

    def skipped(self) -> None:
        """A batch did not fit into memory."""


_reports = Reports()


@contextlib.contextmanager
def reported_to(reports: Reports) -> Iterator[None]:
    """Report the trainings of this block."""
    global _reports
    before, _reports = _reports, reports
    try:
        yield
    finally:
        _reports = before


class Bar(progress_bar.SimpleProgressBar):
    """fairseq's bar of --log-format simple, which also reports its numbers."""

    def log(self, stats: Any, tag: str | None = None, step: int | None = None) -> None:
        super().log(stats, tag, step)
        _reports.trained(step or 0, self.size or 0, stats)

    def print(self, stats: Any, tag: str | None = None, step: int | None = None) -> None:
        super().print(stats, tag, step)
        if tag not in (None, "train"):
            _reports.validated(step or 0, str(tag), stats)


@repair()
def report_progress() -> None:
    """Let `reported_to` see what happens in a training of fairseq."""
    progress_bar.SimpleProgressBar = Bar  # its wrappers for TensorBoard and others stay around it


@repair(Trainer, "__init__")
def _built(original: Callable, self: Trainer, *args: Any, **kwargs: Any) -> None:
    original(self, *args, **kwargs)
    _reports.built(self)


@repair(Trainer, "load_checkpoint")
def _loaded(original: Callable, self: Trainer, filename: str, *args: Any, **kwargs: Any) -> Any:
    state = original(self, filename, *args, **kwargs)
    if state is not None:
        _reports.loaded(filename, self.get_num_updates())
    return state


@repair(Trainer, "_log_oom")
def _skipped(original: Callable, self: Trainer, *args: Any) -> None:
    original(self, *args)
    _reports.skipped()
