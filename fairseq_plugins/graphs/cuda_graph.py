"""CUDA graphs: capture work on a GPU once, and launch all of it at once later."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch


class CudaGraph:
    """A CUDA graph.

    Those of a thread share one memory pool, as no result in it outlives a replay, and one stream.
    """

    shared = threading.local()
    lock = threading.Lock()  # a capture waits for all streams first, also for capturing ones

    def __init__(self) -> None:
        if not hasattr(self.shared, "pool"):
            self.shared.pool = torch.cuda.graph_pool_handle()
            self.shared.stream = torch.cuda.Stream()
        self.graph = torch.cuda.CUDAGraph()

    @contextlib.contextmanager
    def warming_up(self) -> Iterator[None]:
        """Context in which libraries allocate and choose kernels, outside a capture."""
        stream = self.shared.stream
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield
        torch.cuda.current_stream().wait_stream(stream)

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        """Context that captures launches without running them."""
        # the thread that pins batches keeps calling CUDA; a context of our own, as torch's leaves
        # its stream current when a capture fails
        pool, stream = self.shared.pool, self.shared.stream
        with (
            self.lock,
            torch.cuda.stream(stream),
            torch.cuda.graph(
                self.graph, pool=pool, stream=stream, capture_error_mode="thread_local"
            ),
        ):
            yield

    def replay(self) -> None:
        self.graph.replay()

    @classmethod
    def recover(cls) -> None:
        """Make torch forget a capture that CUDA aborted.

        Before torch 2.13, its random generator would stay in capturing state, and the next dropout
        would fail. A short successful capture resets it, in a new pool, as the old one may still
        be marked as capturing.
        """
        torch.cuda.empty_cache()
        with contextlib.suppress(RuntimeError):  # it has ended already
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), cls.shared.pool)
        cls.shared.pool = torch.cuda.graph_pool_handle()
        number = torch.zeros((), device="cuda")
        with contextlib.suppress(RuntimeError), cls().capturing():
            number.add_(1)


def graph_class(device: torch.device) -> Callable[[], Any] | None:
    """What captures on a device: a class with the methods of `CudaGraph`, or None."""
    return CudaGraph if device.type == "cuda" else None
