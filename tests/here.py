"""Trainings and translations in this process, which has imported fairseq already."""

import contextlib
import importlib
import signal
import sys
import threading
from unittest import mock

from fairseq import checkpoint_utils

from fairseq_plugins.evaluate import hypotheses
from fairseq_plugins.train import launch
from fairseq_plugins.train.jobs import Jobs


class Here(Jobs):
    """Jobs that start no process for the hypotheses of an evaluation."""

    def run(self, command, log, on_line, lock=None, threads=None):
        _, _, module, *words = command
        assert module == hypotheses.__name__
        with open(log, "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
            with mock.patch.object(sys, "argv", [module]):
                hypotheses.main(words)
        return 0


def as_in_a_new_process(work):
    """A function of `launch`, without what fairseq keeps of an earlier training."""

    def run(*args):
        before = signal.getsignal(signal.SIGTERM)
        train = importlib.import_module("fairseq_cli.train")
        for function in (checkpoint_utils.save_checkpoint, train.should_stop_early):
            for name in ("best", "num_runs"):
                vars(function).pop(name, None)
        try:
            return work(*args)
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)

    return run


train, rehearse = as_in_a_new_process(launch.train), as_in_a_new_process(launch.rehearse)
