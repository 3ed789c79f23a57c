"""What is changed in fairseq while it is imported."""

import importlib
import importlib.util
import subprocess
import sys
from typing import Optional

import fairseq.dataclass

from fairseq_plugins.compat import importing


def test_a_function_imports_its_module(tmp_path, monkeypatch):
    (tmp_path / "slow_one").mkdir()
    (tmp_path / "slow_one" / "__init__.py").touch()
    (tmp_path / "slow_one" / "scores.py").write_text("def twice(x):\n    return 2 * x\n")
    (tmp_path / "user_of_it.py").write_text(
        "from slow_one import scores\nfrom slow_one.scores import twice\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(importing, "FILES", ("user_of_it",))
    monkeypatch.setattr(importing, "DEFERRED", ("slow_one", "slow_one.scores"))
    importing.watch_imports()
    importing.watch_imports()
    assert sys.meta_path.count(importing.Finder) == 1
    user = importlib.import_module("user_of_it")
    assert not {"slow_one", "slow_one.scores"} & set(sys.modules)
    assert user.twice(2) == 4 and user.scores.twice(x=3) == 6
    assert type(sys.modules["slow_one.scores"]) is type(sys)  # the module itself


def test_a_type_or_none_is_read_as_the_type():
    """Python 3.14 writes `Optional[int]` as `int | None`, and fairseq reads what is written."""
    spec = importing.Finder.find_spec(importing.OPTIONS, fairseq.dataclass.__path__)
    utils = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(utils)
    assert utils.interpret_dc_type(int | None) is int
    assert utils.interpret_dc_type(list[str] | None) == list[str]
    assert utils.interpret_dc_type(Optional[float]) is float  # noqa: UP045
    assert utils.interpret_dc_type(int | str) == int | str


def test_the_program_that_imports_the_package_stays_as_it_is(tmp_path):
    """In a process of its own, also while a bundled model translates.

    Exempt are, each for its reason:
    - functions and loggers of fairseq and torch themselves, which the package repairs;
    - what importing torch and numpy does without this package: they are imported before;
    - `importing.Finder` in sys.meta_path, without which Python 3.14 cannot import fairseq;
    - garbage collection and warnings while the import lasts, which are as before after it;
    - a thread of onnxruntime as soon as a model is loaded.
    """
    code = """
import decimal, gc, locale, logging, multiprocessing, os, random, resource, signal, sys
import threading, warnings
import numpy, torch

def host():
    root = logging.getLogger()
    loggers = {
        name: (each.level, each.handlers, each.filters, each.propagate, each.disabled)
        for name, each in root.manager.loggerDict.items()
        if isinstance(each, logging.Logger) and name.split(".")[0] not in ("fairseq", "torch")
        and (each.level, each.handlers, each.filters, each.propagate) != (0, [], [], True)
    }
    numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    seed, state = numpy.random.get_state()[:2]
    return {
        "root logger": (root.level, root.handlers[:], root.filters[:], root.manager.disable),
        "loggers": str(loggers),
        "last resort": (logging.lastResort, logging.raiseExceptions, logging.getLoggerClass()),
        "warnings": (warnings.filters[:], warnings.showwarning, warnings.formatwarning),
        "signals": {n: signal.getsignal(n) for n in numbers},
        "blocked signals": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "environment": dict(os.environ),
        "random state": (random.getstate(), seed, state.tolist(), torch.get_rng_state().tolist()),
        "threads": threading.enumerate(),
        "threads of the system": len(os.listdir("/proc/self/task")),
        "threads of torch": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "dtype": (torch.get_default_dtype(), torch.get_default_device()),
        "modes of torch": (
            torch.is_grad_enabled(), torch.is_anomaly_enabled(),
            torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(),
            torch.backends.cudnn.benchmark, torch.multiprocessing.get_sharing_strategy(),
        ),
        "modes of numpy": (numpy.geterr(), numpy.get_printoptions(), str(decimal.getcontext())),
        "locale": (locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding()),
        "sys.path": (sys.path[:], sys.path_hooks[:]),
        "sys.meta_path": [each for each in sys.meta_path if "importing.Finder" not in str(each)],
        "collection": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), gc.callbacks[:]),
        "hooks": (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.displayhook),
        "tracing": (sys.gettrace(), sys.getprofile(), sys.getrecursionlimit()),
        "streams": (sys.stdin, sys.stdout, sys.stderr, sys.argv[:]),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "processes": multiprocessing.active_children(),
        "folders": (os.getcwd(), os.listdir()),
        "limits": [resource.getrlimit(n) for n in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)],
    }

before = host()
import fairseq_plugins
imported = host()
fairseq_plugins.Translator("tatoeba-de-en", beam=1).translate(["Guten Morgen!"])
for what, after in (("import", imported), ("use", host())):
    if what == "use":
        del before["threads of the system"]
    changed = {n: (before[n], after[n]) for n in before if before[n] != after[n]}
    assert not changed, f"{what} changed {changed}"
multiprocessing.set_start_method("spawn")  # raises an error if it was set
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.stderr, done.stdout, done.returncode) == ("", "", 0)


def test_only_programs_of_this_package_and_of_fairseq_print_errors_in_one_line(tmp_path):
    code = """
import os, sys
import fairseq_cli.train  # once for all programs

for program in ("fairseq-plugins", "fairseq-generate", "app.py"):
    if os.fork() == 0:
        sys.argv = [program]
        import fairseq_plugins
        raise fairseq_plugins.ConfigurationError("wrong")
    os.wait()
"""
    words = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.startswith("error: wrong\n" * 2 + "Traceback")
    assert done.stderr.count("wrong") == 3
