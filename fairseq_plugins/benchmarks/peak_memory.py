"""Peak memory, each figure from a fresh process that is not allowed more than a limit.

What is taken on a CPU: the growth of the resident set (getrusage's ru_maxrss, reset before) over
one run, which counts everything, and the peak of torch's own allocations over one run, which does
not depend on the C library. On a GPU both are torch.cuda.max_memory_allocated. "kept" is what the
forward pass leaves for backward: the storages that torch.autograd.graph.saved_tensors_hooks sees,
each once, without parameters; what an autograd function keeps elsewhere than in
save_for_backward is not in it.
"""

import contextlib
import ctypes
import multiprocessing
import os
import resource
from typing import Any, Dict, List, NamedTuple, Optional

import torch

from fairseq_plugins.errors import ConfigurationError

from . import timing, workloads

# the optimizers of newer releases of torch import its compiler when first used
PRELOAD = ["torch._dynamo", "fairseq.trainer", "fairseq_plugins.benchmarks.workloads"]
MIB = 2**20
GIB = 2**30
NO_MEMORY = ("can't allocate memory", "out of memory", "bad_alloc", "Cannot allocate memory")


class Peak(NamedTuple):
    """Bytes of one run; None where it was not measured, with the reason in `problem`.

    Args:
        resident: growth of the process over the run (on a GPU: of torch's allocations).
        allocated: the same of torch's allocations alone.
        kept: what forward keeps for backward; None without a backward pass.
        parameters: number of parameters of what was run.
        seconds: how long the run took in that process.
        problem: why there is no figure, "" if there is one.
    """

    resident: Optional[int] = None
    allocated: Optional[int] = None
    kept: Optional[int] = None
    parameters: Optional[int] = None
    seconds: Optional[float] = None
    problem: str = ""


def measure(
    words: str,
    setting: workloads.Setting,
    limit: int,
    patience: float,
    clock: str = "wall",
    details: bool = False,
) -> Peak:
    """Run a contender once in a fresh process.

    Args:
        words, setting: what to run.
        limit: bytes that the process may have; more is "does not fit", not an error.
        patience: seconds after which it is stopped.
        clock: of `Peak.seconds`, see `timing.seconds`.
        details: measure `allocated` and `kept` too, in two further runs.

    Raises:
        ConfigurationError: the contender cannot be built.
    """
    context = multiprocessing.get_context("forkserver")
    # imported once by a server that runs nothing itself; each process is forked from it
    context.set_forkserver_preload(PRELOAD)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(
        target=_child, args=(theirs, words, setting, limit, clock, details), daemon=True
    )
    process.start()
    theirs.close()
    try:
        if not ours.poll(patience):
            process.terminate()
            return Peak(problem=f"not finished in {patience:.0f} s")
        answer = ours.recv()
    except EOFError:
        process.join()
        return Peak(problem=f"the process was killed ({process.exitcode}), probably for memory")
    finally:
        process.join()
        ours.close()
    if "mistake" in answer:
        raise ConfigurationError(answer["mistake"])
    return Peak(**answer)


def _child(
    pipe: Any, words: str, setting: workloads.Setting, limit: int, clock: str, details: bool
) -> None:
    with open(os.devnull, "w") as nowhere:  # what goes wrong goes through the pipe
        os.dup2(nowhere.fileno(), 2)
    try:
        answer = _measure_here(words, setting, limit, clock, details)
    except ConfigurationError as error:
        answer = {"mistake": str(error)}
    except Exception as error:
        if isinstance(error, MemoryError) or any(text in str(error) for text in NO_MEMORY):
            answer = {"problem": f"does not fit in {limit / GIB:.3g} GiB"}
        else:
            reason = (str(error).splitlines() or [""])[0]
            answer = {"problem": f"failed: {type(error).__name__}: {reason}"}
    pipe.send(answer)
    pipe.close()


def _measure_here(
    words: str, setting: workloads.Setting, limit: int, clock: str, details: bool
) -> Dict[str, Any]:
    on_gpu = setting.device == "cuda"
    if on_gpu:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total))
    else:
        _give_freed_memory_back()
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    workload = workloads.build(words, setting)
    before = _start(on_gpu)
    took = timing.seconds(workload.step, torch.device(setting.device), clock)
    peak = _peak(on_gpu) - before
    answer = {
        "resident": peak,
        "seconds": took,
        "parameters": workload.parameters(),
    }
    if on_gpu:
        answer["allocated"] = peak
    if details:
        if not on_gpu:
            answer["allocated"] = allocated_peak(workload.step)
        if setting.what == "training":
            answer["kept"] = kept_for_backward(workload)
    return answer


def _give_freed_memory_back() -> None:
    """Let the C library return each freed tensor at once, else the peak is that of its caches."""
    with contextlib.suppress(OSError, AttributeError):
        c_library = ctypes.CDLL(None)
        c_library.mallopt(-3, 64 * 1024)  # M_MMAP_THRESHOLD
        c_library.mallopt(-1, 64 * 1024)  # M_TRIM_THRESHOLD


def _start(on_gpu: bool) -> int:
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    with contextlib.suppress(OSError):  # without it, earlier peaks may hide a small one
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
    """The most that torch's allocator for the CPU holds during a run, above what it held before."""
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
    """Bytes that one forward pass saves for its backward pass, parameters left out."""
    parameters = {_storage(p).data_ptr() for p in workload.module.parameters()}
    kept: Dict[int, int] = {}
    held: List[torch.Tensor] = []  # an address must not be used twice

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = _storage(tensor)
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
            held.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        workload.loss()
    return sum(kept.values())


def _storage(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
