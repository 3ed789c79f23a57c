"""CUDA graphs: capture work on a GPU once, and launch all of it at once later."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor


class Pool:
    """Memory and streams that the graphs of one owner share.

    They can share memory because none of their results is read after the next replay.
    """

    def __init__(self) -> None:
        self.handle, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        self.copies = torch.cuda.Stream()


class CudaGraph:
    """A CUDA graph. Graphs of one pool must not be replayed at the same time."""

    lock = threading.Lock()  # a capture waits for all streams first, also for capturing ones

    def __init__(self, pool: Pool) -> None:
        self.pool, self.graph = pool, torch.cuda.CUDAGraph()

    @contextlib.contextmanager
    def warming_up(self) -> Iterator[None]:
        """Context in which libraries allocate and choose kernels, outside a capture."""
        stream = self.pool.stream
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield
        torch.cuda.current_stream().wait_stream(stream)

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        """Context that captures launches without running them."""
        # the thread that pins batches keeps calling CUDA; a context of our own, as torch's leaves
        # its stream current when a capture fails
        handle, stream = self.pool.handle, self.pool.stream
        with (
            self.lock,
            torch.cuda.stream(stream),
            torch.cuda.graph(
                self.graph, pool=handle, stream=stream, capture_error_mode="thread_local"
            ),
        ):
            yield

    def load(self, here: Tensor, there: Tensor) -> None:
        """Copy pinned memory of the host to a tensor on the GPU, beside what the GPU still runs."""
        current, copies = torch.cuda.current_stream(), self.pool.copies
        with torch.cuda.stream(copies):
            arrived = there.to(here.device, non_blocking=True)
        current.wait_stream(copies)
        arrived.record_stream(current)  # its memory is not reused before `current` has read it
        here.copy_(arrived)

    def replay(self) -> None:
        self.graph.replay()

    def recover(self) -> None:
        """Make torch forget a capture that CUDA aborted.

        Before torch 2.13, its random generator would stay in capturing state, and the next dropout
        would fail. A short successful capture resets it, in a new pool, as the old one may still
        be marked as capturing.
        """
        torch.cuda.empty_cache()
        with contextlib.suppress(RuntimeError):  # it has ended already
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), self.pool.handle)
        self.pool.handle = torch.cuda.graph_pool_handle()
        number = torch.zeros((), device="cuda")
        with contextlib.suppress(RuntimeError), CudaGraph(self.pool).capturing():
            number.add_(1)


def graph_class(device: torch.device) -> Callable[[], Any] | None:
    """What makes graphs on a device, with the methods of `CudaGraph` and one pool; or None."""
    return functools.partial(CudaGraph, Pool()) if device.type == "cuda" else None


def capture(new_graph: Callable[[], Any], work: Callable[[], Any]) -> Any:
    """A graph of the work, which is done once before.

    Raises:
        RuntimeError: it cannot be captured.
    """
    graph = new_graph()
    try:
        for context in (graph.warming_up(), graph.capturing()):
            with context:
                work()
    except RuntimeError:
        graph.recover()
        raise
    return graph
