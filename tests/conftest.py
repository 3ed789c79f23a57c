"""Fixtures shared by every test: a toy corpus, and fairseq's commands run inside this process.

Data, built once a session by fairseq-preprocess from generated sentences
    toy_data        a ToyData: `.bin` (the folder fairseq reads), `.raw` (train.src, ...), `.sizes`
                    ({"train": 203, "valid": 21, "test": 13}). The target is the source with every
                    word in capitals and the order reversed: a tiny model can learn it.
    make_toy_data   make_toy_data(folder, sizes, joined=False, seed=1) -> ToyData: other sizes, or
                    one dictionary for both sides.

Commands: the real `cli_main` of fairseq, in this process, so that a test takes seconds
    run_train(*args), and run_generate, run_validate, run_interactive, run_score, run_preprocess.
                    Arguments are the words of the command line (str, Path or number). Every command
                    but run_score gets `--user-dir fairseq_plugins` unless it is given, and all but
                    run_preprocess `--num-workers 0`. Returns a CliResult: `.output` is all that was
                    printed or logged. What the command raises comes through; the output so far is
                    the exception's `cli_output`.
                    `stdin="one line\\n"` is the standard input.
    run_process     run_process([word, ...], env=None, timeout=1200): a real process started in the
                    checkout with one thread; a subprocess.CompletedProcess, output in `.stdout`.
    train_args      words of a tiny `transformer`, its optimizer, criterion and batch size:
                    run_train(toy_data.bin, *train_args, "--save-dir", ...).
    reversed_copy   reversed_copy(prepared, folder): what prepare-translation made from German to
                    English, as if made from English to German.

Models
    build, parse, ... see tiny_models.py

Checkpoint
    tiny_checkpoint Path of checkpoint_last.pt: a tiny `transformer` after 6 updates on toy_data.
"""

import contextlib
import functools
import gc
import importlib
import io
import json
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is imported
# a job of a cluster is no launch of the trainings in these tests
for _name in [*os.environ]:
    if _name.startswith(("SLURM_", "MASTER_")) or _name.endswith(("RANK", "WORLD_SIZE")):
        del os.environ[_name]
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # fairseq starts a process for each GPU

import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)
# What earlier tests left may not end in a fork: onnxruntime's sessions would wait for threads that
# are not there.
os.register_at_fork(after_in_child=gc.freeze)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, by whomever
    # torch keeps each seed for a GPU to come, with the whole stack: more work than a small layer
    for _module in (torch.cuda.random, torch.xpu.random, torch.mtia):
        _module._lazy_call = lambda *args, **kwargs: None
if sys.version_info >= (3, 14):  # a test may not import fairseq first
    import fairseq_plugins  # noqa: F401

import tests.hydra_cache  # noqa: E402, F401

pytest_plugins = ["tests.tiny_models"]
ROOT = Path(__file__).resolve().parent.parent
USER_DIR = ROOT / "fairseq_plugins"

VOCABULARY = [f"{a}{b}" for a in "bdgklmnprst" for b in "aeiou"][:40]
SIZES = {"train": 203, "valid": 21, "test": 13}


class ToyData(NamedTuple):
    """A parallel corpus: `bin` binarised, `raw` as text, `sizes` sentences in each split."""

    bin: Path
    raw: Path
    sizes: dict[str, int]


class CliResult(NamedTuple):
    """What a command printed and logged, and its arguments."""

    output: str
    argv: list[str]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """A command that sets the number of torch's threads does so for the whole process."""
    yield
    torch.set_num_threads(1)


def forget_trainings() -> None:
    """fairseq keeps scores on its functions: forget them, as a new process would."""
    from fairseq import checkpoint_utils
    from fairseq_cli import train

    for function in (checkpoint_utils.save_checkpoint, train.should_stop_early):
        for name in ("best", "num_runs"):
            vars(function).pop(name, None)


def run_cli(command: str, *args: Any, stdin: str | None = None) -> CliResult:
    """Run `fairseq_cli.<command>` as if from the shell, in this process; see above."""
    argv = ["fairseq-" + command] + [str(arg) for arg in args]
    if command != "score" and "--user-dir" not in argv:
        argv += ["--user-dir", str(USER_DIR)]
    if command not in ("score", "preprocess") and "--num-workers" not in argv:
        # a data loader's process may outlive its run here, and torch waits 5 seconds for it
        argv += ["--num-workers", "0"]

    output = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGCHLD)}
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", argv))
        stack.enter_context(mock.patch.object(sys, "stdin", io.StringIO(stdin or "")))
        stack.enter_context(contextlib.redirect_stdout(output))
        stack.enter_context(contextlib.redirect_stderr(output))
        module = importlib.import_module("fairseq_cli." + command)
        handler = logging.StreamHandler(output)
        handler.setFormatter(logging.Formatter("%(levelname)s | %(name)s | %(message)s"))
        root.handlers[:] = [handler]
        root.setLevel(logging.INFO)
        own_handlers = module.logger.handlers[:] if hasattr(module, "logger") else None
        forget_trainings()
        try:
            module.cli_main()
        except BaseException as error:
            error.cli_output = output.getvalue()  # type: ignore[attr-defined]
            raise
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handle in signals.items():  # a training leaves its handlers
                    signal.signal(number, handle)
            root.handlers[:] = handlers
            root.setLevel(level)
            if own_handlers is not None:
                for handler in set(module.logger.handlers) - set(own_handlers):
                    handler.close()
                module.logger.handlers[:] = own_handlers
    return CliResult(output.getvalue(), argv)


def _command(name: str):
    return pytest.fixture(
        lambda: functools.partial(run_cli, name), scope="session", name=f"run_{name}"
    )


run_train, run_generate, run_validate = map(_command, ("train", "generate", "validate"))
run_interactive, run_score, run_preprocess = map(_command, ("interactive", "score", "preprocess"))


def unpack(path, folder):
    """Unpack a tar file. Python 3.11.0 to 3.11.3 has no filters; newer ones warn without."""
    options = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(path) as archive:
        archive.extractall(folder, **options)


@pytest.fixture
def converse(monkeypatch, capsys):
    """converse(main, text, *words) -> what a command that reads the text prints, and its errors."""

    def run(main, text, *words):
        stdin = SimpleNamespace(buffer=io.BytesIO(text.encode("utf-8")))
        monkeypatch.setattr(sys, "stdin", stdin)
        assert main([str(word) for word in words]) == 0
        said = capsys.readouterr()
        return said.out, said.err

    return run


@pytest.fixture(scope="session")
def run_process():
    def run(cmd, env: dict[str, str] | None = None, timeout: float = 1200, **kwargs: Any):
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(ROOT)] + [p for p in [os.environ.get("PYTHONPATH")] if p]
        )
        environment.pop("HYDRA_FULL_ERROR", None)  # of the repairs in this process
        environment.update(env or {})
        words = [str(word) for word in cmd]
        process = subprocess.Popen(
            words,
            cwd=str(kwargs.pop("cwd", ROOT)),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            **kwargs,
        )
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            process.terminate()  # which ends what it started, too
            error.output, _ = process.communicate()
            raise AssertionError(f"{error}:\n{error.output}") from None
        return subprocess.CompletedProcess(words, process.returncode, output)

    return run


def load(folder: Path, name: str = "checkpoint_last.pt") -> dict[str, Any]:
    """A checkpoint, as fairseq's programs read it."""
    from fairseq import checkpoint_utils

    return checkpoint_utils.load_checkpoint_to_cpu(str(folder / name))


def updates(state: dict[str, Any]) -> int:
    return state["optimizer_history"][-1]["num_updates"]


def change_task(path: Path, changed: Path | None = None, **options: Any) -> None:
    """Change options of a checkpoint's task, in place or in a copy."""
    state = torch.load(path, weights_only=False)
    state["cfg"]["task"].update(options)
    torch.save(state, changed or path)


def find_free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def write_toy_text(folder: Path, sizes: dict[str, int], seed: int = 1) -> None:
    """Write `split.src` and `split.tgt`: random words, and the same translated in reverse order."""
    generator = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in sizes.items():
        sources, targets = [], []
        for _ in range(size):
            words = [generator.choice(VOCABULARY) for _ in range(generator.randint(1, 12))]
            sources.append(" ".join(words))
            targets.append(" ".join(word.upper() for word in reversed(words)))
        for language, lines in (("src", sources), ("tgt", targets)):
            (folder / f"{split}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")


def binarise(
    raw: Path, folder: Path, *more: Any, languages=("source", "target"), splits=("train", "valid")
) -> Path:
    """Run fairseq-preprocess on `split.language`."""
    words = ["--source-lang", languages[0], "--target-lang", languages[1], "--destdir", folder]
    words += [word for split in splits for word in (f"--{split}pref", raw / split)]
    run_cli("preprocess", *words, "--workers", 1, *more)
    return folder


def prepare_toy_data(
    folder: Path, sizes: dict[str, int], joined: bool = False, seed: int = 1
) -> ToyData:
    raw, binary = Path(folder) / "raw", Path(folder) / "bin"
    write_toy_text(raw, sizes, seed)
    more = ["--joined-dictionary"] * joined
    binarise(raw, binary, *more, languages=("src", "tgt"), splits=sizes)
    return ToyData(binary, raw, dict(sizes))


@pytest.fixture(scope="session")
def make_toy_data():
    return prepare_toy_data


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory, make_toy_data) -> ToyData:
    return make_toy_data(tmp_path_factory.mktemp("toy"), SIZES)


TINY_TRANSFORMER = (
    "--arch transformer --encoder-layers 2 --decoder-layers 1 --dropout 0.1"
    " --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2"
    " --decoder-embed-dim 16 --decoder-ffn-embed-dim 32 --decoder-attention-heads 2"
).split()

OPTIMIZATION = (
    "--optimizer adam --lr 0.003 --criterion label_smoothed_cross_entropy --label-smoothing 0.1"
    " --max-tokens 400 --seed 1 --no-progress-bar --log-interval 1"
).split()


def reversed_copy(prepared: Path, folder: Path) -> Path:
    """A prepared German-English folder as if it had been prepared for the other direction."""
    shutil.copytree(str(prepared), str(folder))
    for path in folder.glob("*.de-en.*"):
        path.rename(folder / path.name.replace(".de-en.", ".en-de."))
    settings = json.loads((folder / "preparation.json").read_text("utf-8"))
    settings["settings"].update(source_lang="en", target_lang="de")
    (folder / "preparation.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def train_args() -> list[str]:
    return TINY_TRANSFORMER + OPTIMIZATION


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory, toy_data, run_train, train_args) -> Path:
    save_dir = tmp_path_factory.mktemp("tiny")
    run_train(toy_data.bin, *train_args, "--save-dir", save_dir, "--max-update", 6)
    return save_dir / "checkpoint_last.pt"
