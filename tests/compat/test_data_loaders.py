"""How the processes of data loaders are started."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch
from fairseq.data import FairseqDataset, iterators

from fairseq_plugins import compat

compat.apply()


class Parents(FairseqDataset):
    """Answers with the parent of the process that reads."""

    def __getitem__(self, index):
        return os.getppid()

    def __len__(self):
        return 4


@pytest.mark.parametrize("workers", [0, 1])
def test_they_are_forked_where_python_would_start_them_anew(workers, monkeypatch):
    """A forked worker is a child of this process; one of Python 3.14's is a child of a server."""
    default = multiprocessing.get_context("forkserver")
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["forkserver", "fork"])
    # a lock sets it, and fairseq makes one when it is imported
    monkeypatch.setattr(multiprocessing.context._default_context, "_actual_context", default)
    batches = [[0, 1], [2, 3]]
    iterator = iterators.EpochBatchIterator(Parents(), list, batches, num_workers=workers)
    parents = {parent for batch in iterator.next_epoch_itr() for parent in batch}
    assert parents == {os.getpid() if workers else os.getppid()}


def test_a_choice_of_the_user_counts(monkeypatch):
    chosen = multiprocessing.get_context("spawn")
    monkeypatch.setattr(multiprocessing.context._default_context, "_actual_context", chosen)
    loader = iterators.torch.utils.data.DataLoader(Parents(), num_workers=1)
    assert loader.multiprocessing_context is None  # it asks Python for the one that was chosen


def test_workers_that_are_started_anew_ignore_the_sigterm_of_others():
    """As of a scheduler, which signals all processes of a job."""
    loader = iterators.torch.utils.data.DataLoader(
        Parents(), num_workers=1, multiprocessing_context="forkserver"
    )
    iterator = iter(loader)
    next(iterator)
    (worker,) = iterator._workers
    subprocess.run(["sh", "-c", f"kill -TERM {worker.pid}"], check=True)
    assert len(list(iterator)) == 3


class Tensors(Parents):
    """Its workers send tensors, whose memory they share over a socket."""

    def __getitem__(self, index):
        return torch.ones(3)


def test_workers_leave_no_sockets(tmp_path, monkeypatch):
    """Theirs are in the folder of this process, which Python removes at its end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delitem(multiprocessing.current_process()._config, "tempdir", raising=False)
    for _ in range(2):
        assert len(list(iterators.torch.utils.data.DataLoader(Tensors(), num_workers=2))) == 4
    assert list(tmp_path.glob("pymp-*")) == [Path(multiprocessing.util.get_temp_dir())]


class Stuck(Parents):
    """Writes to a pipe, and holds Python's lock for half an hour."""

    def __init__(self, pipe):
        self.pipe = pipe

    def __getitem__(self, index):
        os.write(self.pipe, b"x")
        ctypes.PyDLL(None).sleep(1800)


def test_a_worker_that_hangs_is_killed(monkeypatch):
    monkeypatch.setattr(iterators.torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 1.0)
    ours, theirs = os.pipe()
    iterator = iter(iterators.torch.utils.data.DataLoader(Stuck(theirs), num_workers=1))
    os.read(ours, 1)
    iterator._shutdown_workers()
    iterator._workers[0].join(60)  # torch does not wait after its last signal
    assert iterator._workers[0].exitcode == -signal.SIGKILL
