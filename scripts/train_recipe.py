#!/usr/bin/env python3
"""Train a recipe: fairseq-train with the settings of files, on whatever machine this is.

    python scripts/train_recipe.py DATA --name NAME --common FILE --options=... [options]
        [-- more options for fairseq-train]

The scripts of examples/ give NAME, their common settings and the options of the model; the rest is
the user's. What comes later wins: common settings, the model's options, --settings, what stands
behind --. They say what one process does: --max-tokens x --update-freq tokens an update. More
processes share exactly that. On a GPU training is in bf16, or fp16 where the GPU has no bf16;
without one on the CPU. Run again, it goes on from its last checkpoint.
"""

import argparse
import contextlib
import ctypes
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ROOT / "fairseq_plugins"
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import intact_checkpoint  # noqa: E402
import recipe_settings  # noqa: E402
import torch  # noqa: E402
from folder_lock import alone_in  # noqa: E402
from recipe_settings import SHARING, Batch  # noqa: E402
from training_progress import summarise  # noqa: E402

from fairseq_plugins.errors import ConfigurationError  # noqa: E402
from fairseq_plugins.preparation.files import written_whole  # noqa: E402

PRECISIONS = ("auto", "bf16", "fp16", "fp32")
LIBC = ctypes.CDLL(None)
OWN_OPTIONS = ("--save-dir", "--user-dir", "--local_rank")


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command line up to --, with what stands behind it in `extra`."""
    words = list(words)
    own, extra = words, []
    if "--" in words:
        own, extra = words[: words.index("--")], words[words.index("--") + 1 :]
    parser = argparse.ArgumentParser(
        usage="%(prog)s DATA [options] [-- more options for fairseq-train]",
        prog=os.environ.get("RECIPE"),
        description="Train this recipe on a folder that scripts/prepare_*.py made. Run it again "
        "after an interruption: it goes on from its last checkpoint.",
        allow_abbrev=False,
    )
    parser.add_argument("data", type=Path, metavar="DATA", help="the prepared folder")
    parser.add_argument("--name", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--common", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--options", default="", help=argparse.SUPPRESS)
    parser.add_argument(
        "--save-dir", type=Path, metavar="DIR", help="default: runs/NAME in the checkout"
    )
    parser.add_argument(
        "--settings", type=Path, action="append", default=[], metavar="FILE",
        help="more settings, which win over the recipe's; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--processes", type=int, metavar="N",
        help="processes on this machine (default: one for each GPU; 1 without)",
    )  # fmt: skip
    parser.add_argument(
        "--tokens-per-process", type=int, metavar="N",
        help="where memory is small: at most so many tokens at a time, the rest accumulated",
    )  # fmt: skip
    parser.add_argument(
        "--nodes", type=int, default=1, metavar="N",
        help="machines; give the same command on each, with --rendezvous",
    )  # fmt: skip
    parser.add_argument(
        "--rendezvous", metavar="HOST:PORT", help="one of the machines, and a free port there"
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="auto",
        help="default: bf16 on a GPU that has it, fp16 on another, fp32 on a CPU",
    )  # fmt: skip
    parser.add_argument("--cpu", action="store_true", help="do not use the GPUs")
    args = parser.parse_args(own)
    args.extra = extra
    return args


def check_data(data: Path) -> None:
    """Raise a ConfigurationError unless this is a prepared folder."""
    made_by = "scripts/prepare_*.py makes one"
    if not data.is_dir():
        unfinished = data.with_name(data.name + ".part").is_dir()
        advice = "its preparation was not finished: run it again" if unfinished else made_by
        raise ConfigurationError(f"DATA {data}: no such folder; {advice}")
    if not list(data.glob("dict.*.txt")):
        raise ConfigurationError(f"DATA {data} has no dictionaries (dict.*.txt); {made_by}")


def check_words(words: Sequence[str]) -> None:
    """Refuse options behind -- that this script sets itself."""
    for word in words:
        option = word.split("=")[0]
        if option in OWN_OPTIONS or option.startswith("--distributed-"):
            raise ConfigurationError(
                f"{option} cannot stand behind --: the recipe sets it (--save-dir, --processes, "
                "--nodes and --rendezvous come before --)"
            )


def check_shared_dictionary(data: Path) -> None:
    """Raise a ConfigurationError unless both languages have the same dictionary."""
    if len({path.read_bytes() for path in data.glob("dict.*.txt")}) > 1:
        raise ConfigurationError(
            f"--share-all-embeddings needs one dictionary for both languages, and {data} has two: "
            "prepare it with --joined-dictionary, or leave that setting out"
        )


def count_processes(asked: Optional[int], on_cpu: bool) -> int:
    gpus = 0 if on_cpu else torch.cuda.device_count()
    processes = (gpus or 1) if asked is None else asked
    if processes < 1:
        raise ConfigurationError(f"--processes {processes}: at least 1 is needed")
    if gpus and processes > gpus:
        raise ConfigurationError(
            f"--processes {processes}, but this machine has {gpus} GPU(s): give at most {gpus}, or "
            "--cpu"
        )
    return processes


def choose_precision(asked: str, given: argparse.Namespace, on_cpu: bool) -> List[str]:
    """The flags for fairseq-train, unless it was given one."""
    if given.fp16 or given.bf16 or given.amp:
        if asked != "auto":
            raise ConfigurationError(f"--precision {asked} and a flag behind --: give one of them")
        return []
    if asked == "fp16" and on_cpu:
        raise ConfigurationError("--precision fp16 needs a GPU: use bf16 or fp32 on a CPU")
    if asked == "auto":
        asked = "fp32" if on_cpu else "bf16" if gpus_have_bf16() else "fp16"
    return [] if asked == "fp32" else ["--" + asked]


def gpus_have_bf16() -> bool:
    """Whether all have it in hardware; torch.cuda.is_bf16_supported counts emulation as well."""
    if torch.version.hip is not None:
        return torch.cuda.is_bf16_supported()
    return all(
        torch.cuda.get_device_capability(gpu) >= (8, 0) for gpu in range(torch.cuda.device_count())
    )


def launcher(args: argparse.Namespace, processes: int) -> List[str]:
    """The command that starts the processes of this machine."""
    if processes * args.nodes == 1:
        return [sys.executable, "-m", "fairseq_cli.train"]
    # port 0 is any free one: --standalone took a fixed one in older releases
    place = args.rendezvous if args.nodes > 1 else "localhost:0"
    return [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", str(args.nodes),
        "--nproc_per_node", str(processes), "--rdzv_backend", "c10d", "--rdzv_endpoint", place,
        "--rdzv_id", args.name, "-m", "fairseq_cli.train",
    ]  # fmt: skip


def end_with_this_process() -> None:
    """Linux: a training does not outlive the script that was killed."""
    with contextlib.suppress(AttributeError):
        LIBC.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def copied(lines: Iterable[str], log: IO[str]) -> Iterator[str]:
    """The lines, written to the log as they pass; a batch that did not fit is told."""
    for line in lines:
        log.write(line)
        log.flush()
        if "OOM: Ran out of memory" in line:
            print(
                "  a batch did not fit into the GPU's memory, and fairseq leaves it out: stop this "
                "and give --tokens-per-process",
                flush=True,
            )
        yield line


def train(command: Sequence[str], log_path: Path, updates: int, lock: Optional[IO[str]]) -> int:
    """Run the command, its output into the log and in short onto the screen; its exit status."""
    with open(log_path, "a", encoding="utf-8") as log:
        log.write(f"\n# {time.strftime('%Y-%m-%d %H:%M:%S')} {platform.node()}\n# ")
        log.write(" ".join(shlex.quote(word) for word in command) + "\n")
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            preexec_fn=end_with_this_process,
            pass_fds=[lock.fileno()] if lock else [],
        ) as process:
            assert process.stdout is not None
            try:
                for line in summarise(copied(process.stdout, log), updates):
                    print(line, flush=True)
            except KeyboardInterrupt:
                process.terminate()
                raise
        return process.returncode


def why(log_path: Path) -> str:
    """The line of fairseq's last log that says why it failed, or its last ones."""
    lines: List[str] = []
    for line in log_path.read_text(encoding="utf-8", errors="replace").splitlines():
        lines = [] if line.startswith("# ") else [*lines, re.sub(r"^\[rank\d+\]: ?", "", line)]
    errors = [
        line
        for line in lines
        if re.match(r"error: |([A-Za-z_]+\.)*[A-Za-z_]*(Error|Exception)\b", line)
        and "ChildFailedError" not in line
    ]
    return errors[-1] if errors else "\n".join(lines[-3:])


class Plan(NamedTuple):
    """What is to be run, and all that is known of it before."""

    command: List[str]
    save_dir: Path
    summary: List[str]
    settings: Dict[str, Any]  # what the training depends on
    end: Dict[str, Any]  # where it ends
    threads: Optional[int]  # of each process; None leaves it to torch


def plan(args: argparse.Namespace) -> Plan:
    """Work out the command for this machine.

    Raises:
        ConfigurationError: the data, an option or their combination cannot work.
    """
    check_data(args.data)
    check_words(args.extra)
    if args.nodes < 1 or (args.nodes > 1) != (args.rendezvous is not None):
        raise ConfigurationError(
            f"--nodes {args.nodes}: several machines need --rendezvous HOST:PORT, one must not "
            "have it"
        )
    save_dir = args.save_dir or ROOT / "runs" / args.name

    words = [str(args.data), *recipe_settings.read_settings(args.common)]
    words += shlex.split(args.options)
    for path in args.settings:
        words += recipe_settings.read_settings(path)
    words += args.extra
    given = recipe_settings.parse(words)
    on_cpu = args.cpu or given.cpu or not torch.cuda.is_available()
    if getattr(given, "share_all_embeddings", False):
        check_shared_dictionary(args.data)

    processes = count_processes(args.processes, on_cpu)
    if len(given.update_freq) != 1:
        raise ConfigurationError("--update-freq: give one number, the same for all epochs")
    whole = Batch(given.max_tokens, given.batch_size, given.update_freq[0])
    total = processes * args.nodes
    batch = recipe_settings.share(whole, total, args.tokens_per_process)
    subsets = [given.train_subset, *given.valid_subset.split(",")]
    longest = recipe_settings.longest_sentences(args.data, subsets)
    limited = args.tokens_per_process is not None
    recipe_settings.check_longest(batch, whole, total, limited, longest)

    precision = choose_precision(args.precision, given, on_cpu)
    words += [*precision, "--update-freq", str(batch.update_freq)]
    for name in ("max_tokens", "batch_size"):
        if getattr(batch, name) is not None:
            option = "--" + name.replace("_", "-")
            words += [option, str(getattr(batch, name))]
            if getattr(given, name + "_valid") == getattr(given, name):
                words += [option + "-valid", str(getattr(batch, name))]
    if on_cpu:
        words += ["--cpu"]
    if total == 1:
        words += ["--distributed-world-size", "1"]  # not one process for each GPU
    words += ["--user-dir", str(PLUGIN), "--save-dir", str(save_dir)]
    logging = ["--log-format", "simple", "--log-interval", "50"]
    device = "CPU" if on_cpu else torch.cuda.get_device_name()
    return Plan(
        command=[*launcher(args, processes), words[0], *logging, *words[1:]],
        save_dir=save_dir,
        summary=[
            f"{args.name}: {given.arch} on {args.data}, into {save_dir}",
            f"an update: {batch.describe(total)}; {' '.join([device, *precision])}",
        ],
        settings={
            **recipe_settings.settled(given, whole, args.data),
            SHARING: batch.describe(total),
        },
        end=recipe_settings.end_of(given),
        threads=max(1, (os.cpu_count() or 1) // processes) if on_cpu else None,
    )


def main(argv: Optional[Sequence[str]] = None) -> int:
    args = read_arguments(sys.argv[1:] if argv is None else argv)
    todo = plan(args)
    save_dir = todo.save_dir
    save_dir.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        # on a file system that machines share, the lock of one would keep the others out
        lock = stack.enter_context(alone_in(save_dir, "training")) if args.nodes == 1 else None
        before = recipe_settings.check_same(save_dir, todo.settings)
        print("\n".join(todo.summary), flush=True)
        if recipe_settings.reached(save_dir, todo.end):
            print("kept: it is trained already; a larger --max-update (behind --) goes on")
            return 0
        if before.get(SHARING, todo.settings[SHARING]) != todo.settings[SHARING]:
            print(
                f"before it was {before[SHARING]}. fairseq goes on in an epoch by the number of "
                "batches: some sentences of this one are seen twice, or not at all",
                flush=True,
            )
        recipe_settings.store(save_dir, todo.settings)
        mended = intact_checkpoint.mend(save_dir) if args.nodes == 1 else None
        if mended:
            print(mended, flush=True)
        if todo.threads is not None:
            os.environ.setdefault("OMP_NUM_THREADS", str(todo.threads))
        log = save_dir / ("train.log" if args.nodes == 1 else f"train.{platform.node()}.log")
        started = time.monotonic()
        status = train(todo.command, log, int(todo.end["max_update"]), lock)
        if status != 0:
            print(why(log), file=sys.stderr)
            print(f"{args.name}: training failed; its log is {log}", file=sys.stderr)
            return 1
        with written_whole(save_dir / "finished") as file:
            json.dump(todo.end, file)
    print(f"trained in {time.monotonic() - started:.0f} s; the log is {log}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; run it again and it goes on from its last checkpoint")
