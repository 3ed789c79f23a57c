#!/usr/bin/env python3
"""Train, test and time all rows of tables 1 and 2 of the TransformerFTC paper.

    python scripts/reproduce_ftc.py DATA                        # all rows, on one GPU
    python scripts/reproduce_ftc.py DATA --parallel 4 --seeds 1 2 3 -- --bf16
    python scripts/reproduce_ftc.py DATA --settings examples/translation/reduced_cpu.args
    python scripts/reproduce_ftc.py --report-only --out DIR     # table and plot again

DATA is a prepared folder, such as scripts/prepare_iwslt14.py makes. Hyper-parameters are those of
the paper (examples/translation/iwslt14_de_en.args), then what --settings files change, then what
stands behind --. The paper does not say how long it trained: a run ends after the 50,000 updates of
that file unless other settings, --max-update or --max-minutes say otherwise.

Killed and run again, finished rows are kept and the others go on from their last checkpoint. With
more --max-update the same runs are trained on. In the folder of --out: table.md beside the paper's
figures, bleu_against_time.svg and .png, results.json with everything, and the runs with their logs.
"""

import argparse
import contextlib
import difflib
import fcntl
import hashlib
import importlib.metadata
import io
import json
import logging
import os
import platform
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "fairseq_plugins"
SCRIPTS = ROOT / "scripts"
for folder in (ROOT, SCRIPTS):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import intact_checkpoint  # noqa: E402
import reproduce_ftc_report as report  # noqa: E402
import score_generation  # noqa: E402
from recipe_settings import read_settings  # noqa: E402

from fairseq_plugins.errors import ConfigurationError  # noqa: E402
from fairseq_plugins.preparation.files import written_whole  # noqa: E402
from scripts.benchmarks import machine  # noqa: E402

PAPER_SETTINGS = ROOT / "examples" / "translation" / "iwslt14_de_en.args"
# what the settings, and then the words behind --, may change
DEFAULTS = (
    "--no-epoch-checkpoints --save-interval-updates 1000 --log-interval 50 "
    "--distributed-world-size 1"
).split()
# what makes the rows comparable, and what this script sets or reads itself
FIXED = (
    "--arch -a --encoder-layers --encoder-blocks --time-window --feature-window --time-pooling "
    "--feature-pooling --encoder-token-mixer --encoder-ffn --decoder-ffn --user-dir --save-dir "
    "--log-format --log-file --seed --cpu"
).split()
SECONDS_BETWEEN_LINES = 20.0
SECONDS_TO_DIE = 8.0  # the data loader of a training that was killed notices after 5
LAST_LINES = 5
BATCHES = 8


class Row(NamedTuple):
    """A row of the paper's tables, and the words of fairseq-train that make it."""

    name: str
    model: str
    blocks: str
    pooling: str
    words: str
    bleu: float
    epoch_seconds: int


FC, TC, FTC = (f"--arch transformer_{kind}_iwslt_de_en" for kind in ("fc", "tc", "ftc"))
ROWS = [
    Row("transformer", "Transformer", "1x6", "-", "--arch transformer_iwslt_de_en", 34.9, 216),
    Row("fc-2x3", "Feature", "2x3", "2", f"{FC} --encoder-blocks 3,3", 34.8, 195),
    Row("fc-2x4", "Feature", "2x4", "2", f"{FC} --encoder-blocks 4,4", 35.1, 202),
    Row("fc-3x3", "Feature", "3x3", "2", f"{FC} --encoder-blocks 3,3,3", 34.7, 232),
    Row("fc-4x4", "Feature", "4x4", "2", f"{FC} --encoder-blocks 4,4,4,4", 35.2, 380),
    Row("fc-6x4", "Feature", "6x4", "2", f"{FC} --encoder-blocks 4,4,4,4,4,4", 34.9, 440),
    Row("tc-2x3", "Time", "2x3", "2", f"{TC} --encoder-blocks 3,3", 35.0, 196),
    Row("tc-2x4", "Time", "2x4", "2", f"{TC} --encoder-blocks 4,4", 35.1, 207),
    Row("ftc-2x3", "Feature+Time", "2x3", "2", f"{FTC} --encoder-blocks 3,3", 35.1, 163),
    Row("ftc-2x4", "Feature+Time", "2x4", "2", f"{FTC} --encoder-blocks 4,4", 35.0, 181),
    Row(
        "fc-2x3-window4", "Feature", "2x3", "4",
        f"{FC} --encoder-blocks 3,3 --feature-window 4", 35.2, 186,
    ),
    Row(
        "fc-3x3-window4", "Feature", "3x3", "4",
        f"{FC} --encoder-blocks 3,3,3 --feature-window 4", 35.1, 212,
    ),
    Row(
        "fc-2x3-linear", "Feature", "2x3", "2 (linear)",
        f"{FC} --encoder-blocks 3,3 --feature-pooling linear", 35.1, 204,
    ),
]  # fmt: skip


# --- the command line -----------------------------------------------------------------------------


def at_least(least: float, kind: Callable[[str], Any] = int) -> Callable[[str], Any]:
    """An argparse type: a number of that kind, not below `least`."""

    def convert(text: str) -> Any:
        try:
            number = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
        if not number >= least:
            raise argparse.ArgumentTypeError(f"{text}: give at least {least}")
        return number

    return convert


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments; `.extra` holds what stands behind the first ``--``."""
    own, extra = list(argv), []
    if "--" in own:
        own, extra = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s DATA [options] [-- more options for fairseq-train]",
        allow_abbrev=False,
    )
    parser.add_argument("data", nargs="?", type=Path, metavar="DATA", help="the prepared folder")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "runs" / "reproduce_ftc", metavar="DIR",
        help="where to work (default: runs/reproduce_ftc in the checkout)",
    )  # fmt: skip
    parser.add_argument(
        "--rows", nargs="+", default=[row.name for row in ROWS], metavar="ROW",
        help="which of: " + " ".join(row.name for row in ROWS) + " (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", nargs="+", type=at_least(0), default=[1], metavar="N", help="(default: 1)"
    )
    parser.add_argument(
        "--settings", type=Path, action="append", default=[], metavar="FILE",
        help="options of fairseq-train that replace the paper's, one a line; repeatable",
    )  # fmt: skip
    parser.add_argument("--max-update", type=at_least(1), metavar="N", help="end each run there")
    parser.add_argument(
        "--max-minutes", type=at_least(0.01, float), metavar="M",
        help="end each run after so much training, those before a restart counted",
    )  # fmt: skip
    parser.add_argument(
        "--parallel", type=at_least(1), default=1, metavar="N",
        help="runs side by side on the one device (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--average", type=at_least(1), metavar="K",
        help="test the average of the last K checkpoints that --save-interval-updates (1000) "
        "wrote (default: the best on valid, by --best-checkpoint-metric)",
    )  # fmt: skip
    parser.add_argument(
        "--generate", default="", metavar="WORDS",
        help='more options for fairseq-generate, in one word: "--lenpen 0.6"',
    )  # fmt: skip
    parser.add_argument(
        "--time", choices=["interleaved", "log"], default="interleaved",
        help="the time ratio: interleaved times training steps of all rows in turn after the "
        "runs (default); log compares the seconds per epoch of the runs",
    )  # fmt: skip
    parser.add_argument(
        "--time-rounds", type=at_least(1), default=5, metavar="N",
        help=f"interleaved: how often each of {BATCHES} batches is timed (default: 5)",
    )  # fmt: skip
    parser.add_argument(
        "--timing-skip", type=at_least(0), default=100, metavar="N",
        help="warm-up: updates after each start that are not timed (default: 100)",
    )  # fmt: skip
    parser.add_argument(
        "--threads", type=at_least(1), metavar="N",
        help="processor threads of a run (default: all cores / --parallel)",
    )  # fmt: skip
    parser.add_argument("--cpu", action="store_true", help="leave the GPU alone")
    parser.add_argument(
        "--report-only", action="store_true",
        help="make table and plot again from results.json, and do nothing else",
    )  # fmt: skip
    args = parser.parse_args(own)
    args.extra = extra
    args.seeds = report.distinct(args.seeds)
    args.threads = args.threads or max(1, len(os.sched_getaffinity(0)) // args.parallel)
    return args


def choose_rows(names: Sequence[str]) -> List[Row]:
    """The rows of these names, in the order of the tables; commas separate names, too."""
    known = {row.name: row for row in ROWS}
    wanted = [word for name in names for word in name.split(",") if word]
    for name in wanted:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3) or list(known)
            raise ConfigurationError(f"--rows {name} is no row: nearest are {', '.join(close)}")
    return [row for row in ROWS if row.name in wanted]


def refuse_fixed(words: Iterable[str], where: str) -> None:
    """ConfigurationError if options are among the words that the rows or this script set."""
    for word in words:
        option = word.split("=")[0]
        if option in FIXED:
            instead = {"--seed": "use --seeds", "--cpu": "put --cpu before --"}
            raise ConfigurationError(
                f"{option} in {where}: " + instead.get(option, "the rows or this script set it")
            )


# --- programs that run ----------------------------------------------------------------------------


class Stopped(Exception):
    """A signal asked for the end."""


class Failed(Exception):
    """A run that could not be finished; the others go on."""

    def __init__(self, message: str, log: Path):
        super().__init__(message)
        self.log = log


class Children:
    """The programs that run now. A signal, or the death of this process, ends them all."""

    def __init__(self, environment: Dict[str, str], lock: int):
        self.environment = environment
        self.lock = lock  # inherited, so that none outlives this process unnoticed
        self.running: Set["subprocess.Popen[str]"] = set()
        self.guard = threading.Lock()
        self.stopping = False
        self.along = ["setpriv", "--pdeathsig", "KILL"]
        if not shutil.which("setpriv") or subprocess.call([*self.along, "true"]):
            self.along = []

    def run(self, words: Sequence[str], on_line: Callable[[str], None]) -> int:
        """Run a program, give each line that it prints to `on_line`, return its exit status."""
        with self.guard:
            if self.stopping:
                raise Stopped
            process = subprocess.Popen(
                [*self.along, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                env=self.environment,
                pass_fds=[self.lock],
                start_new_session=True,
            )
            self.running.add(process)
        assert process.stdout is not None
        try:
            with process.stdout:
                for line in process.stdout:
                    on_line(line)
            status = process.wait()
        except BaseException:
            self.end(process, signal.SIGKILL)
            process.wait()
            raise
        finally:
            with self.guard:
                self.running.discard(process)
        if self.stopping:
            raise Stopped
        return status

    @staticmethod
    def end(process: "subprocess.Popen[str]", how: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)

    def stop(self, patience: float = 5.0) -> None:
        """End all, and start no more."""
        with self.guard:
            self.stopping = True
            running = list(self.running)
        for process in running:
            self.end(process, signal.SIGTERM)
        until = time.monotonic() + patience
        while any(p.poll() is None for p in running) and time.monotonic() < until:
            time.sleep(0.05)
        for process in running:
            self.end(process, signal.SIGKILL)  # its data loader, too


# --- the training log -----------------------------------------------------------------------------
# Each line is kept as fairseq-train printed it, after the time of its arrival in seconds, because
# fairseq's own times are whole seconds.

START = "== fairseq-train"
LOADED = re.compile(r"Loaded checkpoint .* @ (\d+) updates")
REPORT = re.compile(r"epoch (\d+): +(\d+) / (\d+) .*\bnll_loss=([\d.]+).*\bnum_updates=(\d+)")
VALID = re.compile(r"\| valid on .*\bnll_loss ([\d.]+) .*\bnum_updates (\d+)")
UPDATES = re.compile(r"\bnum_updates:?[ =](\d+)")
PAUSE = re.compile(r"begin validation|Preparing to save checkpoint|end of epoch \d")


class Timing(NamedTuple):
    """What a training log tells of time."""

    step_seconds: List[float]  # of an update, one value for each two reports in a row
    updates_per_epoch: Optional[int]
    updates: int  # done in the end


def read_timing(lines: Iterable[str], skip: int) -> Timing:
    """Time of an update, from reports with no validation, saving or end of an epoch between them.

    Args:
        lines: of the training log; several starts may follow each other.
        skip: updates after each start that are not timed.
    """
    seconds: List[float] = []
    per_epoch, updates, begun = None, 0, 0
    last: Optional[Tuple[float, int]] = None
    for line in lines:
        stamp, _, text = line.partition(" ")
        loaded, report_ = LOADED.search(text), REPORT.search(text)
        if text.startswith(START):
            last, begun = None, 0
        elif loaded:
            begun = int(loaded.group(1))
        elif PAUSE.search(text):
            last = None
        elif report_:
            per_epoch = int(report_.group(3))
            now = float(stamp), int(report_.group(5))
            if last is not None and last[1] >= begun + skip and now[1] > last[1]:
                seconds.append((now[0] - last[0]) / (now[1] - last[1]))
            last = now
        done = UPDATES.search(text)
        if done:
            updates = int(done.group(1))
    return Timing(seconds, per_epoch, updates)


def last_lines(log: Path) -> List[str]:
    """What a program that failed said last, without warnings and the marks of this script."""
    if not log.is_file():
        return []
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [re.sub(r"^\d+\.\d{3} ", "", line).rstrip() for line in lines]
    told = [line for line in lines if line and not re.search(r"Warning\b|^\s+warnings\.", line)]
    return told[-LAST_LINES:]


class Progress:
    """Short lines about one training: where it is and how long it will take."""

    def __init__(self, say: Callable[[str], None], limit: float, seconds: float):
        self.say, self.limit, self.seconds = say, limit, seconds
        self.first: Optional[Tuple[float, int]] = None
        self.said = -SECONDS_BETWEEN_LINES

    def line(self, text: str) -> None:
        loaded, valid, step = LOADED.search(text), VALID.search(text), REPORT.search(text)
        if loaded:
            self.say(f"goes on from update {int(loaded.group(1)):,}")
        elif valid:
            self.say(f"update {int(valid.group(2)):,}, valid nll {valid.group(1)}")
        elif step and time.monotonic() - self.said >= SECONDS_BETWEEN_LINES:
            self.said = time.monotonic()
            goal = f"/{self.limit:,.0f}" if self.limit < float("inf") else ""
            self.say(
                f"update {int(step.group(5)):,}{goal}, epoch {int(step.group(1))}, "
                f"train nll {step.group(4)}{self.left(int(step.group(5)))}"
            )

    def left(self, updates: int) -> str:
        now = time.monotonic()
        if self.first is None:
            self.first = now, updates
        left = self.first[0] + self.seconds - now
        if updates > self.first[1]:
            rate = (now - self.first[0]) / (updates - self.first[1])
            left = min(left, rate * (self.limit - updates))
        if left == float("inf"):
            return ""
        minutes = max(0.0, left) / 60
        return f", about {minutes:.0f} min left" if minutes >= 2 else f", about {left:.0f} s left"


# --- facts ----------------------------------------------------------------------------------------


def describe_machine(cpu: bool, threads: int) -> Dict[str, Any]:
    import torch

    versions = []
    for package in ("fairseq-fixed", "fairseq"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{package} {importlib.metadata.version(package)}")
    return {
        "gpu": None if cpu else torch.cuda.get_device_name(0),
        "cpu": machine.processor_name(),
        "cores": os.cpu_count(),
        "threads": threads,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fairseq": " ".join(versions) or "fairseq",
    }


def check_data(folder: Optional[Path]) -> Dict[str, Any]:
    """What the prepared folder holds; ConfigurationError if it cannot be trained and tested on."""
    advice = "prepare it with scripts/prepare_iwslt14.py or prepare_translation.py"
    if folder is None:
        raise ConfigurationError(f"DATA is missing: name a prepared folder; {advice}")
    if not folder.is_dir():
        raise ConfigurationError(f"{folder}: no such folder; {advice}")
    if not os.access(str(folder), os.R_OK | os.X_OK):
        raise ConfigurationError(f"{folder} cannot be read: ask for permission")
    found = sorted(folder.glob("train.*-*.*.idx"))
    if not found:
        raise ConfigurationError(f"{folder} holds no data of fairseq (train.*.idx): {advice}")
    pair = found[0].name.split(".")[1]
    source, target = pair.split("-")
    needed = [f"dict.{language}.txt" for language in (source, target)]
    for split in ("train", "valid", "test"):
        for language in (source, target):
            needed += [f"{split}.{pair}.{language}.{kind}" for kind in ("idx", "bin")]
    digest = hashlib.sha256()
    for name in needed:
        try:
            with open(folder / name, "rb") as file:
                if not name.endswith(".bin"):
                    digest.update(file.read())
        except OSError as error:
            raise ConfigurationError(f"{folder / name}: {error.strerror}; {advice}") from None
    return {
        "folder": str(folder.resolve()),
        "name": folder.resolve().name,
        "languages": [source, target],
        "fingerprint": digest.hexdigest(),
        **reading_of_text(folder, target),
    }


def reading_of_text(folder: Path, target: str) -> Dict[str, Any]:
    """How subwords of the target are joined, and how the words then are found for BLEU."""
    text = (folder / f"dict.{target}.txt").read_text(encoding="utf-8")
    pieces = [line.split(" ")[0] for line in text.splitlines()]
    if any(piece.startswith("\u2581") for piece in pieces):
        join = ["--remove-bpe", "sentencepiece"]
    elif any(piece.endswith("@@") for piece in pieces):
        join = ["--remove-bpe", "subword_nmt"]
    else:
        join = []
    tokenize = "none"
    with contextlib.suppress(OSError, ValueError, KeyError):
        prepared = json.loads((folder / "preparation.json").read_text(encoding="utf-8"))
        if prepared["settings"]["tokenizer"] == "none":  # the text was never tokenised
            tokenize = "13a"
    return {"join": join, "tokenize": tokenize}


class Built(NamedTuple):
    """What fairseq makes of a row's options."""

    parameters: int
    max_update: float
    end: List[float]
    max_tokens: Optional[int]
    kept: int
    splits: Dict[str, int]


def build_once(words: Sequence[str], count_pairs: bool) -> Built:
    """Read a command line of fairseq-train and build its model, to find mistakes early.

    Raises:
        ConfigurationError: an option or a size that cannot work.
    """
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    import fairseq_plugins  # noqa: F401  (registers the architectures)

    said = io.StringIO()
    try:
        with mock.patch.object(sys, "argv", ["fairseq-train"]), contextlib.redirect_stderr(said):
            parser = options.get_training_parser()
            cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, list(words)))
        task = tasks.setup_task(cfg.task)
        model = task.build_model(cfg.model)
        splits = {}
        for split in ("train", "valid", "test") if count_pairs else ():
            task.load_dataset(split)
            splits[split] = len(task.dataset(split))
    except SystemExit:
        told = said.getvalue().strip().split("\n")[-1]
        raise ConfigurationError(re.sub(r"^.*?error: ", "", told)) from None
    except Exception as error:  # fairseq checks with assertions, KeyErrors and more
        raise ConfigurationError(f"{error}" or type(error).__name__) from None
    optimization = cfg.optimization
    return Built(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        max_update=optimization.max_update or float("inf"),
        end=[optimization.max_update, optimization.max_epoch, optimization.stop_time_hours],
        max_tokens=cfg.dataset.max_tokens,
        kept=cfg.checkpoint.keep_interval_updates,
        splits=splits,
    )


# --- the work -------------------------------------------------------------------------------------


def read_json(path: Path) -> Any:
    """What a JSON file holds; None if there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read ({error}): remove it") from None


def write_json(path: Path, content: Any) -> None:
    with written_whole(path) as file:
        json.dump(content, file, indent=2, ensure_ascii=False)
        file.write("\n")


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[int]:
    """Make the results' folder and hold its lock: two calls there would spoil each other's runs.

    Raises:
        ConfigurationError: the folder cannot be written, or another call is at work there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / "lock", "w")
    except OSError as error:
        raise ConfigurationError(
            f"--out {folder} cannot be written: {error.strerror}; name another folder"
        ) from None
    with lock:
        until = time.monotonic() + SECONDS_TO_DIE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > until:
                    raise ConfigurationError(
                        f"--out {folder}: another run is at work there; wait for it, or stop it"
                    ) from None
                time.sleep(0.2)
        yield lock.fileno()


class Reproduction:
    """All rows on one data folder, in one folder of results.

    Args:
        args: of the command line.
        lock: the descriptor that holds the lock of the results' folder.

    Raises:
        ConfigurationError: whatever cannot work, before any row trains.
    """

    def __init__(self, args: argparse.Namespace, lock: int):
        self.args = args
        self.rows = choose_rows(args.rows)
        self.settings = [*DEFAULTS, *read_settings(PAPER_SETTINGS)]
        refuse_fixed(args.extra, "the options behind --")
        for path in args.settings:
            words = read_settings(path)
            refuse_fixed(words, f"--settings {path}")
            self.settings += words
        self.generate = shlex.split(args.generate)
        self.data = check_data(args.data)
        self.failures: List[Dict[str, str]] = []
        self.writing = threading.Lock()
        self.out = args.out.resolve()
        self.cpu = self.device_is_cpu()
        self.check_same_settings()
        self.built = self.check_rows()
        self.check_space()
        self.machine = describe_machine(self.cpu, args.threads)
        self.commit = machine.commit() or "unknown"
        write_json(self.out / "settings.json", self.shared_settings())
        environment = dict(os.environ, OMP_NUM_THREADS=str(args.threads), PYTHONUNBUFFERED="1")
        # threads that wait actively steal the processor from each other
        environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        self.children = Children(environment, lock)

    def device_is_cpu(self) -> bool:
        import torch

        return self.args.cpu or not torch.cuda.is_available()

    def shared_settings(self) -> Dict[str, Any]:
        return {
            "words": self.settings,
            "extra": self.args.extra,
            "cpu": self.cpu,
            "data": self.data["fingerprint"],
        }

    def check_same_settings(self) -> None:
        """Runs of other settings must not get into one table."""
        before, now = read_json(self.out / "settings.json"), self.shared_settings()
        if before is None or before == now:
            return
        changed = [name for name in now if before.get(name) != now[name]]
        names = {"words": "--settings", "extra": "the options behind --"}
        names.update(cpu="the device", data="the data")
        raise ConfigurationError(
            f"--out {self.out} holds runs that differ in "
            f"{' and '.join(names[name] for name in changed)}: name another folder, or go back"
        )

    def train_words(self, row: Row, seed: int) -> List[str]:
        """The command line of a run; fairseq takes the last of two values."""
        words = [self.data["folder"], "--keep-interval-updates", str(self.args.average or 1)]
        words += [*self.settings, *shlex.split(row.words)]
        words += ["--seed", str(seed), "--save-dir", str(self.folder(row, seed))]
        words += ["--log-format", "simple", *(["--cpu"] if self.cpu else [])]
        return [*words, *self.ending(), *self.args.extra]

    def ending(self) -> List[str]:
        """When this call ends each run; another call may train the same runs on."""
        words = []
        if self.args.max_update:
            words += ["--max-update", str(self.args.max_update)]
        if self.args.max_minutes:
            words += ["--stop-time-hours", f"{self.args.max_minutes / 60:.6g}"]
        return words

    def folder(self, row: Row, seed: int) -> Path:
        return self.out / "runs" / f"{row.name}-seed{seed}"

    def check_rows(self) -> Dict[str, Built]:
        """Build every row's model once, before any is trained."""
        built: Dict[str, Built] = {}
        for number, row in enumerate(self.rows, 1):
            self.say(f"checking row {number}/{len(self.rows)}: {row.name}")
            try:
                built[row.name] = build_once(self.train_words(row, 1), count_pairs=not built)
            except ConfigurationError as error:
                raise ConfigurationError(
                    f"row {row.name} ({row.words}) cannot be built: {error}"
                ) from None
        first = next(iter(built.values()))
        self.data["pairs"] = first.splits
        if self.args.average and 0 <= first.kept < self.args.average:
            raise ConfigurationError(
                f"--average {self.args.average}: only --keep-interval-updates {first.kept} "
                "checkpoints are kept: raise it, or leave it out"
            )
        return built

    def check_space(self) -> None:
        """The disk must hold the checkpoints of all runs: the best, the last, those kept."""
        needed = 0
        for row in self.rows:
            built = self.built[row.name]
            size = 3 * 4 * built.parameters  # with the two moments of Adam
            for seed in self.args.seeds:
                if not (self.folder(row, seed) / "checkpoint_last.pt").exists():
                    needed += size * (2 + max(1, built.kept))
        free = shutil.disk_usage(str(self.out)).free
        if needed > free:
            raise ConfigurationError(
                f"--out {self.out}: the checkpoints need about {needed / 1e9:.1f} GB, and "
                f"{free / 1e9:.1f} GB are free: name a folder on another disk, or fewer --rows"
            )

    def say(self, text: str) -> None:
        print(text, flush=True)

    # --- one run

    def finish(self, row: Row, seed: int, label: str) -> None:
        """Train and test one run, as far as that is not done; raises Failed."""
        folder = self.folder(row, seed)
        folder.mkdir(parents=True, exist_ok=True)
        record = read_json(folder / "result.json") or {"row": row.name, "seed": seed}

        def say(text: str) -> None:
            self.say(f"{label} {row.name} seed {seed}: {text}")

        if self.is_trained(row, record.get("training")):
            say(f"kept, {record['training']['updates']:,} updates")
        else:
            record = {"row": row.name, "seed": seed, "training": self.train(row, seed, say)}
            write_json(folder / "result.json", record)
        wanted = [self.args.average, self.generate]
        if (record.get("scoring") or {}).get("wanted") != wanted:
            record["scoring"] = dict(self.test(folder, say), wanted=wanted)
            write_json(folder / "result.json", record)
            say(f"BLEU {record['scoring']['bleu']:.2f} {record['scoring']['signature']}")

    def is_trained(self, row: Row, training: Optional[Dict[str, Any]]) -> bool:
        if training is None:
            return False
        built = self.built[row.name]
        return training["end"] == built.end or training["updates"] >= built.max_update

    def train(self, row: Row, seed: int, say: Callable[[str], None]) -> Dict[str, Any]:
        folder, log = self.folder(row, seed), self.folder(row, seed) / "train.log"
        mended = intact_checkpoint.mend(folder)
        if mended:
            say(mended)
        words = self.train_words(row, seed)
        limit = self.built[row.name].max_update
        seconds = 60 * self.args.max_minutes if self.args.max_minutes else float("inf")
        progress = Progress(say, limit, seconds)
        say("training")
        with open(log, "a", encoding="utf-8") as file:

            def on_line(line: str) -> None:
                file.write(f"{time.time():.3f} {line}")
                file.flush()
                progress.line(line)

            file.write(f"{time.time():.3f} {START} {' '.join(map(shlex.quote, words))}\n")
            command = [sys.executable, "-m", "fairseq_cli.train", *words]
            status = self.children.run([*command, "--user-dir", str(PLUGIN)], on_line)
        if status != 0:
            raise Failed(f"training ended with status {status}", log)
        with open(log, encoding="utf-8") as file:
            timing = read_timing(file, self.args.timing_skip)
        step = statistics.median(timing.step_seconds) if timing.step_seconds else None
        return {
            "command": words,
            "end": self.built[row.name].end,
            "parameters": self.built[row.name].parameters,
            "updates": timing.updates,
            "updates_per_epoch": timing.updates_per_epoch,
            "step_seconds": timing.step_seconds,
            "epoch_seconds": step * timing.updates_per_epoch
            if step and timing.updates_per_epoch else None,
            "timing_skip": self.args.timing_skip,
            "parallel": self.args.parallel,
            "machine": self.machine,
            "commit": self.commit,
        }  # fmt: skip

    def test(self, folder: Path, say: Callable[[str], None]) -> Dict[str, Any]:
        checkpoint, name = folder / "checkpoint_best.pt", "the best checkpoint on valid"
        if self.args.average:
            checkpoint, name = self.average(folder, say)
        words = [self.data["folder"], "--user-dir", str(PLUGIN), "--path", str(checkpoint)]
        words += ["--gen-subset", "test", "--beam", "5", "--max-tokens", "4096"]
        words += ["--log-format", "none", *self.data["join"], *(["--cpu"] if self.cpu else [])]
        total, done, said = self.data["pairs"]["test"], 0, time.monotonic()
        part, log = folder / "generate.log.part", folder / "generate.log"
        say(f"translating {total:,} test sentences with {name}")
        with open(part, "w", encoding="utf-8") as file:

            def on_line(line: str) -> None:
                nonlocal done, said
                file.write(line)
                done += line.startswith("D-")
                if time.monotonic() - said >= SECONDS_BETWEEN_LINES:
                    said = time.monotonic()
                    say(f"translated {done:,}/{total:,}")

            command = [sys.executable, "-m", "fairseq_cli.generate", *words, *self.generate]
            status = self.children.run(command, on_line)
        if status != 0:
            raise Failed(f"fairseq-generate ended with status {status}", part)
        os.replace(part, log)
        return dict(self.score(log), checkpoint=name)

    def average(self, folder: Path, say: Callable[[str], None]) -> Tuple[Path, str]:
        """Average the last checkpoints of updates; raises Failed if there are too few."""
        found = sum(intact_checkpoint.updates(path) >= 0 for path in folder.iterdir())
        count, log = self.args.average, folder / "average.log"
        if found < count:
            raise Failed(
                f"--average {count}: --save-interval-updates left only {found} checkpoint(s); "
                "train longer, average fewer, or leave it out", folder / "train.log",
            )  # fmt: skip
        say(f"averaging {count} checkpoints")
        output = folder / "checkpoint_average.pt"
        words = [sys.executable, str(SCRIPTS / "average_checkpoints.py"), "--inputs", str(folder)]
        words += ["--last", str(count), "--by", "update", "--output", str(output)]
        with open(log, "w", encoding="utf-8") as file:
            status = self.children.run(words, lambda line: void(file.write(line)))
        if status != 0:
            raise Failed(f"averaging ended with status {status}", log)
        return output, f"the average of the last {count} checkpoints"

    def score(self, log: Path) -> Dict[str, Any]:
        """BLEU of the translations against the test set's target, subwords joined in both."""
        from sacrebleu.metrics import BLEU

        try:
            translations = score_generation.read_translations(log)
        except SystemExit as error:
            raise Failed(str(error), log) from None
        references = {}
        with open(log, encoding="utf-8", newline="\n") as lines:
            for line in lines:
                if line.startswith("T-"):
                    number, _, text = line[2:].rstrip("\n").partition("\t")
                    references[int(number)] = text
        total = self.data["pairs"]["test"]
        if not len(translations) == len(references) == total:
            raise Failed(f"{len(translations)} of {total} test sentences were translated", log)
        bleu = BLEU(tokenize=self.data["tokenize"], force=True)
        ordered = [references[number] for number in range(total)]
        score = bleu.corpus_score(translations, [ordered])
        return {
            "bleu": score.score,
            "signature": str(bleu.get_signature()),
            "sentences": total,
        }

    # --- all runs

    def finish_all(self) -> None:
        """Seed by seed, so that a whole table stands early."""
        plan = [(row, seed) for seed in self.args.seeds for row in self.rows]

        def work(number: int, row: Row, seed: int) -> None:
            name = f"{row.name} seed {seed}"
            try:
                self.finish(row, seed, f"[{number}/{len(plan)}]")
            except Failed as error:
                self.failed(name, str(error), error.log)
            except OSError as error:
                self.failed(name, str(error), self.folder(row, seed))
            self.write_results()

        with ThreadPoolExecutor(self.args.parallel) as pool:
            jobs = [pool.submit(work, number, *run) for number, run in enumerate(plan, 1)]
            try:
                finished, _ = wait(jobs, return_when=FIRST_EXCEPTION)
                for job in finished:
                    job.result()
            except BaseException:
                self.children.stop()
                for job in jobs:
                    job.cancel()
                raise

    def failed(self, run: str, message: str, log: Path) -> None:
        self.failures.append({"run": run, "message": message, "log": str(log)})
        told = "".join(f"\n    {line}" for line in last_lines(log))
        self.say(f"FAILED {run}: {message}{told}\n  its log is {log}")

    def measure_interleaved(self) -> None:
        """Training steps of all trained rows in turn, by scripts/benchmark.py."""
        rows = [row for row in ROWS if any(run["row"] == row.name for run in self.runs())]
        if report.BASELINE not in [row.name for row in rows] or len(rows) < 2:
            self.say(f"no time ratio: it needs the row {report.BASELINE} and another one")
            return
        built = next(iter(self.built.values()))
        words = [sys.executable, str(SCRIPTS / "benchmark.py"), "train-step", self.data["folder"]]
        common = [*self.settings, *self.args.extra]
        words += [f"--arch={row.words.partition(' ')[2]}" for row in rows]
        epochs = [run["training"]["updates_per_epoch"] for run in self.runs()]
        batches = min([BATCHES, *filter(None, epochs)])
        words += ["--model=" + " ".join(map(shlex.quote, common)), "--batches", str(batches)]
        words += ["--rounds", str(self.args.time_rounds), "--threads", str(self.args.threads)]
        words += ["--max-tokens", str(built.max_tokens)] if built.max_tokens else []
        words += ["--cpu"] if self.cpu else []
        wanted = {"command": words, "machine": self.machine}
        before = read_json(self.out / "interleaved.json")
        if before is not None and all(before[name] == wanted[name] for name in wanted):
            self.say("time ratio: kept")
            return
        self.say(
            f"time ratio: training steps of {len(rows)} rows in turn, {batches} batches x "
            f"{self.args.time_rounds} rounds"
        )
        figures, log = self.out / "benchmark.json", self.out / "benchmark.log"
        with open(log, "w", encoding="utf-8") as file:

            def on_line(line: str) -> None:
                file.write(line)
                if "training steps:" in line:  # its progress
                    self.say(f"time ratio: {line.strip()}")

            status = self.children.run([*words, "--json", str(figures)], on_line)
        if status != 0:
            self.failed("time ratio", f"scripts/benchmark.py ended with status {status}", log)
            return
        measured = read_json(figures)
        figures.unlink()
        write_json(
            self.out / "interleaved.json",
            {
                **wanted,
                "batches": batches,
                "rounds": self.args.time_rounds,
                "rows": {row.name: figure for row, figure in zip(rows, measured["rows"])},
                "commit": measured["machine"]["commit"],
            },
        )

    def runs(self) -> List[Dict[str, Any]]:
        """The records of all runs in the folder, those of earlier calls too."""
        found = (read_json(path) for path in sorted(self.out.glob("runs/*/result.json")))
        return [record for record in found if record and record.get("training")]

    def write_results(self) -> None:
        """results.json and the table, as far as they are known."""
        with self.writing:
            runs = self.runs()
            timed = read_json(self.out / "interleaved.json")
            results = {
                "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "data": self.data,
                "settings": dict(
                    self.shared_settings(), files=list(map(str, self.args.settings)),
                    shown=" ".join(
                        map(shlex.quote, [*self.settings, *self.ending(), *self.args.extra])
                    ),
                ),
                "rows": [
                    {
                        "name": row.name,
                        "model": row.model,
                        "blocks": row.blocks,
                        "pooling": row.pooling,
                        "words": row.words,
                        "paper": {"bleu": row.bleu, "epoch_seconds": row.epoch_seconds},
                        "runs": sorted(
                            (run for run in runs if run["row"] == row.name),
                            key=lambda run: run["seed"],
                        ),
                    }
                    for row in ROWS
                ],
                "interleaved": timed if self.args.time == "interleaved" else None,
                "failures": self.failures,
            }  # fmt: skip
            write_json(self.out / "results.json", results)
            report.write_table(results, self.out)


def void(_: Any) -> None:
    """What is written is not needed."""


def report_only(folder: Path) -> None:
    """Table and plot from results.json alone."""
    results = read_json(folder / "results.json")
    if results is None:
        raise ConfigurationError(f"--report-only: {folder} has no results.json; name it with --out")
    written = [folder / "results.json", report.write_table(results, folder)]
    print("\n" + report.table(results))
    try:
        written += report.plot(results, folder / "bleu_against_time")
    except ImportError:
        print("no plot: matplotlib is missing (pip install matplotlib, then --report-only)")
    print("written: " + " ".join(map(str, written)))


def main(argv: Optional[Sequence[str]] = None) -> int:
    args = read_arguments(sys.argv[1:] if argv is None else argv)
    if args.report_only:
        report_only(args.out)
        return 0

    signals = (signal.SIGINT, signal.SIGTERM)

    def stop(number: int, _: Any) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)  # one is enough, and ending takes a moment
        raise Stopped(signal.Signals(number).name)

    for number in signals:
        signal.signal(number, stop)
    reproduction = None
    try:
        check_data(args.data)  # before a folder is made
        with claimed(args.out) as lock:
            reproduction = Reproduction(args, lock)
            reproduction.finish_all()
            if args.time == "interleaved":
                reproduction.measure_interleaved()
            reproduction.write_results()
    except Stopped as error:
        if reproduction is not None:
            reproduction.children.stop()
        print(f"stopped by {error}: the same command goes on from here", file=sys.stderr)
        return 130
    report_only(reproduction.out)
    for failure in reproduction.failures:
        print(f"FAILED {failure['run']}: {failure['message']} ({failure['log']})", file=sys.stderr)
    return 1 if reproduction.failures else 0


if __name__ == "__main__":
    # fairseq and hydra tell much about what is only checked here
    logging.disable(logging.WARNING)
    sys.exit(main())
