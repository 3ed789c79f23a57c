"""How fairseq's data loaders start and end their processes."""

import functools
import multiprocessing
import multiprocessing.util
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from fairseq.data import iterators

from fairseq_plugins.compat.patch import Overlay, overlay, repair


@repair()
def start_data_loaders() -> None:
    """Fork the workers of data loaders, and pin memory only if there is a GPU.

    Since Python 3.14, each worker starts a new interpreter. It would import fairseq in every epoch,
    which takes seconds, and run without these repairs. Another method than Python's default is the
    user's choice, and stays. Without a GPU, torch warns about pinning.

    Only their training ends workers with SIGTERM (on Linux). A scheduler signals all processes of a
    job; without workers the training would fail before it saves its state (`stopping`).

    Each worker would leave a folder with a socket in TMPDIR, because torch kills it. All use the
    folder of their training, which Python removes when the training ends.
    """
    data = Overlay(torch.utils.data, DataLoader=_DataLoader)
    overlay(iterators, "torch", utils=Overlay(torch.utils, data=data))


class _DataLoader(torch.utils.data.DataLoader):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        method = multiprocessing.get_start_method(allow_none=True)  # set by a lock of fairseq's
        unset = method in (None, multiprocessing.get_all_start_methods()[0])
        if sys.platform == "linux" and kwargs.get("num_workers", 0) > 0:
            if unset:
                kwargs.setdefault("multiprocessing_context", "fork")
            own = kwargs.get("worker_init_fn")
            kwargs["worker_init_fn"] = functools.partial(_begin, own, os.getpid())
        if not torch.accelerator.is_available():
            kwargs["pin_memory"] = False
        super().__init__(*args, **kwargs)

    def __iter__(self) -> Any:
        if sys.platform != "linux":
            return super().__iter__()
        if self.num_workers > 0:
            multiprocessing.util.get_temp_dir()  # forked workers inherit it
        # forked workers inherit it, so that no signal comes before they wait for it
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            iterator = super().__iter__()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for worker in getattr(iterator, "_workers", ()):
            worker.terminate = worker.kill  # torch waits 5 s before; one may hold Python's lock
        return iterator


def _begin(own: Callable[[int], None] | None, training: int, worker: int) -> None:
    """Begin the work of a worker of the training with this process id."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # a new interpreter takes it
    wait = (training, os.getppid())
    threading.Thread(target=_wait_for_the_end, args=wait, daemon=True).start()
    if own is not None:
        own(worker)


def _wait_for_the_end(training: int, parent: int) -> None:
    """End this process at a SIGTERM from its training, or when its parent is gone."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != training and os.getppid() == parent:
        pass
    os._exit(0)
