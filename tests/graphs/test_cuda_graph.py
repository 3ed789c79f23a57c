"""CUDA graphs of several threads, with stand-ins for what needs a GPU."""

import contextlib
import itertools
import threading
import time
from unittest import mock

import torch

from fairseq_plugins.graphs.cuda_graph import CudaGraph, graph_class


def test_owners_capture_one_after_the_other_and_share_no_memory(monkeypatch):
    """Their replays may overlap, and a capture cannot begin beside another one's."""
    pools, capturing, used = itertools.count(), [], set()

    @contextlib.contextmanager
    def graph(graph, pool, stream, capture_error_mode):
        assert not capturing
        capturing.append(pool)
        yield
        used.add((threading.get_ident(), pool, id(stream)))
        capturing.clear()

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(pools))
    monkeypatch.setattr(torch.cuda, "Stream", mock.Mock)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", mock.Mock)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    monkeypatch.setattr(torch.cuda, "current_stream", mock.Mock())
    monkeypatch.setattr(torch.cuda, "graph", graph)
    together, failed = threading.Barrier(3), []

    def work():
        try:
            new_graph = graph_class(torch.device("cuda"))
            for _ in range(5):
                graph = new_graph()
                together.wait(1200)
                with graph.warming_up():
                    pass
                with graph.capturing():
                    time.sleep(0.002)
        except Exception as error:
            failed.append(error)
            together.abort()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and not capturing
    assert all(len(set(column)) == 3 for column in zip(*used)) and len(used) == 3


def test_input_is_copied_beside_what_the_gpu_still_runs(monkeypatch):
    """By the stream of copies, from pinned memory; the graph's stream waits for it alone."""
    done = []

    class Stream:
        def __init__(self, name):
            self.name = name

        def wait_stream(self, other):
            done.append(f"{self.name} waits for {other.name}")

    copies, main = map(Stream, ("copies", "main"))
    current = [main]

    @contextlib.contextmanager
    def stream(new):
        current.append(new)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "current_stream", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "stream", stream)
    graph = CudaGraph.__new__(CudaGraph)
    graph.pool = mock.Mock(copies=copies)
    arrived, here, there = mock.Mock(), mock.Mock(), mock.Mock()
    there.to.side_effect = lambda device, non_blocking: (
        done.append(f"{current[-1].name} copies, waiting: {not non_blocking}") or arrived
    )
    arrived.record_stream.side_effect = lambda to: done.append(f"kept for {to.name}")
    here.copy_.side_effect = lambda x: done.append(f"{current[-1].name} reads {x is arrived}")
    graph.load(here, there)
    assert done == [
        "copies copies, waiting: False",
        "main waits for copies",
        "kept for main",
        "main reads True",
    ]
