"""Trainings in this process, which has imported fairseq already."""

import importlib
import signal
import threading

from fairseq import checkpoint_utils

from fairseq_plugins.train import launch


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
