"""CUDA graphs of several threads, with stand-ins for what needs a GPU."""

import contextlib
import itertools
import threading
import time
from unittest import mock

import torch

from fairseq_plugins.graphs.cuda_graph import graph_class


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
