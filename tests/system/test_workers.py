"""Several processes: the order of lines, and what happens when one is killed."""

import os
import signal
import subprocess
import sys
import time

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.system import workers


@pytest.mark.parametrize("processes", [1, 3])
def test_lines_keep_their_order(processes):
    lines = [str(number) for number in range(40000)]
    assert list(workers.map_lines(lambda line: line + "!", lines, processes, "test")) == [
        line + "!" for line in lines
    ]


def _die(line):
    if line == "700":
        os.kill(os.getpid(), signal.SIGKILL)
    return line


def test_workers_do_not_collect_what_their_parent_left(run_process):
    """In a process without this test's own care for forks (conftest.py)."""
    script = """
import gc, os, sys
sys.argv = ["fairseq-plugins"]  # which leaves torch and fairseq out
from fairseq_plugins.system import workers

parent = os.getpid()

class Garbage:
    def __del__(self):
        if os.getpid() != parent:
            os._exit(3)

def collect(line):
    gc.collect()
    return line

gc.disable()
it = Garbage()
it.itself = it
del it
print(*workers.map_lines(collect, "abc", 2, "lines", show=False))
"""
    assert run_process([sys.executable, "-c", script]).stdout.strip() == "a b c"


def test_a_killed_worker_ends_the_run():
    lines = (str(number) for number in range(5000))
    with pytest.raises(ConfigurationError, match=r"^one of 2 processes was killed \(test\)"):
        list(workers.map_lines(_die, lines, 2, "test"))


@pytest.mark.parametrize("use", ["map_lines", "map_batches"])
@pytest.mark.parametrize("left", [True, False])
def test_an_error_does_not_wait_for_the_workers(monkeypatch, use, left):
    """Neither an error in later input, nor a caller that wants no more results."""
    begun, begins = os.pipe()

    def first_only(item):
        if item != "0":
            os.write(begins, b"x")
            time.sleep(1800)
        return item

    def items():
        yield from map(str, range(20 if left else 3))
        os.read(begun, 1)
        raise ConfigurationError("the next line is wrong")

    monkeypatch.setattr(workers, "LINES_PER_CHUNK", 1)
    found = {
        "map_lines": lambda: workers.map_lines(first_only, items(), 2, "test"),
        "map_batches": lambda: workers.map_batches(lambda: first_only, items(), 2),
    }[use]()
    if left:
        assert next(found) == "0"
        os.read(begun, 1)
        found.close()
    else:
        with pytest.raises(ConfigurationError, match="the next line is wrong"):
            list(found)


@pytest.mark.parametrize("processes", [1, 2])
def test_no_batch_is_read_for_a_model_that_cannot_be_loaded(processes):
    def begin():
        raise ConfigurationError("no model")

    batches = iter(["a"])
    with pytest.raises(ConfigurationError, match="no model"):
        list(workers.map_batches(begin, batches, processes))
    assert list(batches) == ["a"]


def test_workers_end_with_a_killed_run():
    """Otherwise they would hold the lock of the folder."""
    code = (
        "import os, sys, time\n"
        "sys.argv = ['fairseq-plugins']\n"  # which leaves torch and fairseq out
        "from fairseq_plugins.system import workers\n"
        "def slow(line):\n"
        "    os.write(1, b'%d\\n' % os.getpid())\n"  # one write: print may need two
        "    time.sleep(1800)\n"
        "list(workers.map_lines(slow, (str(n) for n in range(5000)), 2, 'test'))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    for _ in range(2):
        assert int(process.stdout.readline())  # both have begun
    process.kill()
    with process.stdout as output:
        assert output.read() == b""  # which waits for all that could write to it
    process.wait()


def test_a_closed_terminal_spares_the_tracker_of_semaphores():
    """It sends SIGHUP to the group; a tracker that died leaves a traceback for each of them."""
    code = """
import os, signal, sys, time
sys.argv = ["fairseq-plugins"]  # which leaves torch and fairseq out
from fairseq_plugins.system.workers import spawn_context
value = spawn_context().Value("i")
signal.signal(signal.SIGHUP, lambda number, frame: None)
os.killpg(0, signal.SIGHUP)
time.sleep(0.5)
"""
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, start_new_session=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
