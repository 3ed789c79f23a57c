"""Trainings in this process, which has imported fairseq already."""

import signal
import threading

from fairseq_plugins.train import launch
from tests.conftest import forget_trainings


def as_in_a_new_process(work):
    """A function of `launch`, without what fairseq keeps of an earlier training."""

    def run(*args):
        before = signal.getsignal(signal.SIGTERM)
        forget_trainings()
        try:
            return work(*args)
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)

    return run


train, rehearse = as_in_a_new_process(launch.train), as_in_a_new_process(launch.rehearse)
