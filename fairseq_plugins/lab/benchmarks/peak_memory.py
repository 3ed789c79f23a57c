"""Peak memory, within a limit. On a CPU each figure comes from a fresh process.

On a CPU two peaks are measured over one run: the growth of the resident set (getrusage's ru_maxrss,
reset before the run), which counts everything, and the peak of torch's allocations, which does not
depend on the C library. On a GPU both are torch.cuda.max_memory_allocated, which needs no fresh
process: starting one would take longer than most measurements.

"kept" is the memory that forward keeps for backward: the storages that
torch.autograd.graph.saved_tensors_hooks reports, each once, without parameters. It does not count
tensors that an autograd function stores outside save_for_backward.
"""

import contextlib
import ctypes
import multiprocessing
import os
import resource
from typing import Any, NamedTuple

import torch

from fairseq_plugins.errors import ConfigurationError

from . import harness, workloads

# the first use of an optimizer imports the compiler in newer releases of torch
PRELOAD = ["torch._dynamo", "fairseq.trainer", "fairseq_plugins.lab.benchmarks.workloads"]
MIB = 2**20
GIB = 2**30
NO_MEMORY = ("can't allocate memory", "out of memory", "bad_alloc", "Cannot allocate memory")


class Peak(NamedTuple):
    """Memory of one run, in bytes; None for what was not measured.

    Args:
        peak_bytes: growth of the process during the run (on a GPU: of torch's allocations).
        allocated_bytes: growth of torch's allocations during the run.
        kept_bytes: memory that forward keeps for backward; None without a backward pass.
        parameters: number of parameters.
        seconds: duration of the run in that process.
        problem: why there is no figure; otherwise "".
    """

    peak_bytes: int | None = None
    allocated_bytes: int | None = None
    kept_bytes: int | None = None
    parameters: int | None = None
    seconds: float | None = None
    problem: str = ""


def measure(
    words: str,
    setting: workloads.Setting,
    limit: int,
    patience: float,
    clock: str = "wall",
    details: bool = False,
) -> Peak:
    """Run a contender once, on a CPU in a fresh process.

    Args:
        words, setting: the contender and its workload.
        limit: bytes that the run may use. Exceeding the limit is not an error: `Peak.problem` says
            "does not fit".
        patience: seconds until the process is stopped; on a GPU nothing is.
        clock: the clock of `Peak.seconds`, see `harness.seconds`.
        details: also measure `allocated_bytes` and `kept_bytes`, in two further runs.

    Raises:
        ConfigurationError: the contender cannot be built.
    """
    if setting.device == "cuda":
        answer = _answer(words, setting, limit, clock, details)
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    else:
        answer = _answer_of_a_process(patience, words, setting, limit, clock, details)
    if isinstance(answer, ConfigurationError):
        raise answer
    return answer


def _answer_of_a_process(patience: float, *given: Any) -> Peak | ConfigurationError:
    # a server process imports these modules once; each measuring process is a fork of the server
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(theirs, *given), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(patience):
            process.terminate()
            return Peak(problem=f"not finished in {patience:.0f} s")
        return ours.recv()
    except EOFError:
        process.join()
        return Peak(problem=f"the process was killed ({process.exitcode}), probably for memory")
    except BaseException:  # such as Ctrl-C: the process need not go on
        process.terminate()
        raise
    finally:
        process.join()
        ours.close()


def _child(pipe: Any, *given: Any) -> None:
    with open(os.devnull, "w") as nowhere:  # the pipe reports errors
        os.dup2(nowhere.fileno(), 2)
    pipe.send(_answer(*given))
    pipe.close()


def _answer(
    words: str, setting: workloads.Setting, limit: int, clock: str, details: bool
) -> Peak | ConfigurationError:
    """The peak, or what is wrong with the words."""
    try:
        return _measure_here(words, setting, limit, clock, details)
    except ConfigurationError as error:
        return error
    except Exception as error:
        if isinstance(error, MemoryError) or any(text in str(error) for text in NO_MEMORY):
            return Peak(problem=f"does not fit in {limit / GIB:.3g} GiB")
        return Peak(problem=f"failed: {type(error).__name__}: {harness.one_line(error)}")


def _measure_here(
    words: str, setting: workloads.Setting, limit: int, clock: str, details: bool
) -> Peak:
    on_gpu = setting.device == "cuda"
    if on_gpu:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total))
    else:
        _give_freed_memory_back()
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    workload = workloads.build(words, setting)
    before = _start(on_gpu)
    took = harness.seconds(workload.step, torch.device(setting.device), clock)
    peak = _peak(on_gpu) - before
    allocated = peak if on_gpu else allocated_peak(workload.step) if details else None
    kept = kept_for_backward(workload) if details and setting.what == "training" else None
    return Peak(peak, allocated, kept, workload.parameters(), took)


def _give_freed_memory_back() -> None:
    """Make the C library return freed memory at once; its caches would distort the peak."""
    with contextlib.suppress(OSError, AttributeError):
        c_library = ctypes.CDLL(None)
        c_library.mallopt(-3, 64 * 1024)  # M_MMAP_THRESHOLD
        c_library.mallopt(-1, 64 * 1024)  # M_TRIM_THRESHOLD


def _start(on_gpu: bool) -> int:
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    with contextlib.suppress(OSError):  # without the reset, an earlier peak may hide a smaller one
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _peak(on_gpu: bool) -> int:
    if on_gpu:
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def allocated_peak(work: Any) -> int:
    """Peak bytes of torch's CPU allocator during a run, minus the bytes held before the run."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    now = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


def kept_for_backward(workload: workloads.Workload) -> int:
    """Bytes that one forward pass saves for its backward pass, without parameters."""
    parameters = {p.untyped_storage().data_ptr() for p in workload.module.parameters()}
    kept: dict[int, int] = {}
    held: list[torch.Tensor] = []  # keeps tensors alive, so that no address is reused

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
            held.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        workload.loss()
    return sum(kept.values())
