"""Plan the fairseq-train command for a recipe, a folder of data and this machine.

The settings are for one process: --max-tokens x --update-freq tokens per update. Several processes
share exactly this total. GPUs train in bf16, or in fp16 if they have no bf16; without a GPU the CPU
trains in float32, or with --precision fastest in bf16 if it has instructions for it. Later options
win: the recipe, then --settings files, then options after --.
"""

import argparse
import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

import torch

from fairseq_plugins.compat.training_options import check_ranges
from fairseq_plugins.data import lengths
from fairseq_plugins.data.prepared_folder import Prepared, Record, shards
from fairseq_plugins.errors import ConfigurationError, check_path, counted, flag
from fairseq_plugins.files import check_can_hold
from fairseq_plugins.options import fairseq_parser, recipes
from fairseq_plugins.tasks import bleu_of_valid
from fairseq_plugins.text.units import TASK
from fairseq_plugins.train import batch_size, precision, settings
from fairseq_plugins.train.batch_size import Batch
from fairseq_plugins.train.request import PLUGIN, Plan, TrainingRequest
from fairseq_plugins.train.run_folder import CAPTURED, END, PRECISION, SHARING, Run
from fairseq_plugins.train.supervise import threads_of

OWN_OPTIONS = ("--save-dir", "--user-dir", "--local_rank")
# values of --eval-bleu-remove-bpe, by the kind of subwords in the data
JOINED_BY = {"bpe": "@@ ", "sentencepiece": "sentencepiece"}
# tasks whose steps a GPU captures
CAPTURED_TASKS = ("translation", "translation_sampled", "summarization")
WORKERS = 2  # that load data for captured steps
RESTARTS = 3  # of the processes of several machines, after one was lost


def check_task(data: Path, task: str) -> None:
    """Raise a ConfigurationError if only one of the prepared folder and the task has labels."""
    prepared = Prepared(data)
    of_text = prepared.task in CAPTURED_TASKS
    if prepared.settings and (task in CAPTURED_TASKS and not of_text or task == TASK and of_text):
        raise ConfigurationError(
            f"DATA {data} was prepared for {prepared.task}, but --task {task} is trained: give "
            "data or a recipe of the same task"
        )


def check_words(words: Sequence[str], in_files: Sequence[str] = ()) -> None:
    """Refuse options that `plan` sets itself, in files or after --."""
    for place, given in (("in a recipe or --settings file", in_files), ("after --", words)):
        for option in (word.split("=")[0] for word in given):
            if option in OWN_OPTIONS or option.startswith("--distributed-"):
                raise ConfigurationError(
                    f"{option} is not allowed {place}: this command sets it (--save-dir, "
                    "--user-dir, --processes, --nodes and --rendezvous come before --)"
                )


def check_shared_dictionary(data: Path, option: str) -> None:
    """Raise a ConfigurationError unless both languages have the dictionary that an option needs."""
    if len({path.read_bytes() for path in data.glob("dict.*.txt")}) > 1:
        raise ConfigurationError(
            f"{option} needs one dictionary for both languages, but {data} has two: join them by "
            f"`fairseq-plugins join-dictionaries {data} {data}-joined` and train that folder, or "
            "remove that setting"
        )


def count_processes(asked: int | None, on_cpu: bool) -> int:
    gpus = 0 if on_cpu else torch.cuda.device_count()
    processes = (gpus or 1) if asked is None else asked
    if gpus and processes > gpus:
        raise ConfigurationError(
            f"--processes {processes}, but this machine has {counted(gpus, 'GPUs')}: give "
            f"at most {gpus}, or --cpu"
        )
    return processes


def share_batch(
    request: TrainingRequest, given: argparse.Namespace, whole: Batch, on_cpu: bool
) -> tuple[int, Batch, list[str]]:
    """The processes of this machine, and the batch of each.

    Without --processes, one per GPU; fewer if the batch cannot be shared by so many, or the longest
    sentence does not fit into one share.

    Returns:
        the number of processes, the batch of each, and lines if not all GPUs are used or pairs are
        skipped.

    Raises:
        ConfigurationError: no number of processes works, or not the requested one.
    """
    measured, skipped = measure(request.data, given)

    def batch_of(processes: int) -> Batch:
        least, most = request.machines
        total = processes * most
        batch = batch_size.share(whole, total, request.tokens_per_process)
        ways = ["start fewer processes"] if total > 1 else []
        ways += ["give a larger --tokens-per-process"] if request.tokens_per_process else []
        for nodes in range(least, most + 1):
            fewer = batch_size.for_fewer(batch, total, processes * nodes)
            check_lengths(given, measured, fewer, whole, ways)
        return batch

    most = count_processes(request.processes, on_cpu)
    try:
        return most, batch_of(most), skipped
    except ConfigurationError as error:
        for fewer in range(0 if request.processes else most - 1, 0, -1):
            with contextlib.suppress(ConfigurationError):
                idle = f"only {fewer} of {most} GPUs are used: {error}"
                return fewer, batch_of(fewer), [idle, *skipped]
        raise


def skips_too_long(given: argparse.Namespace) -> bool:
    """Whether pairs that are too long are skipped; other tasks reject or truncate texts."""
    return str(given.task).startswith(("translation", "summarization"))


def limits_of(given: argparse.Namespace) -> tuple[int, int] | None:
    """The longest source and target; None if no option limits them."""
    names = ("max_source_positions", "max_target_positions")
    if skips_too_long(given):
        default = lengths.DEFAULT_MAX_SOURCE_POSITIONS
        source, target = (getattr(given, name, default) for name in names)
        return source, target
    most = max(getattr(given, name, None) or 0 for name in ("max_positions", *names))
    return (most, most) if most else None


def measure(data: Path, given: argparse.Namespace) -> tuple[dict[str, int], list[str]]:
    """The longest sentence of each subset that a training reads, and lines on skipped pairs.

    Raises:
        ConfigurationError: all pairs of a subset are too long.
    """
    subsets = [given.train_subset]
    subsets += [] if given.disable_validation else given.valid_subset.split(",")
    limits = limits_of(given)
    longest, lines, skips = dict[str, int](), list[str](), skips_too_long(given)
    for number, subset in enumerate(subsets):
        too_long_is_skipped = skips or number and given.skip_invalid_size_inputs_valid_test
        kept = limits if too_long_is_skipped else None
        measured = lengths.measure(data, given, subset, kept)
        if measured is None:
            if given.task in (*CAPTURED_TASKS, TASK):
                raise ConfigurationError(
                    f"--{'valid' if number else 'train'}-subset {subset}: DATA {data} has no such "
                    "split, or not in these languages: give another, or prepare it"
                )
            continue
        longest[subset], too_long = measured
        if limits and too_long:
            options = "--max-source-positions {} or --max-target-positions {}".format(*limits)
            if not longest[subset]:
                raise ConfigurationError(
                    f"every pair of {subset} exceeds {options}: raise them after --, or shorten "
                    "the texts"
                )
            lines.append(f"skipped: {counted(too_long, 'pairs')} of {subset} over {options}")
    if lines and given.task == "summarization" and lengths.source_cut(given) is None:
        lines.append("to truncate long documents instead, give --truncate-source after --")
    return longest, lines


def check_lengths(
    given: argparse.Namespace,
    longest: dict[str, int],
    batch: Batch,
    whole: Batch,
    ways: Sequence[str],
) -> None:
    """Raise a ConfigurationError if a sentence of a subset does not fit into its batch.

    Args:
        given: all options.
        longest: tokens of the longest sentence of each subset.
        batch, whole: the batch of a process, and of a single one.
        ways: how a sentence that fits into the whole batch gets room.
    """
    of_valid = str(given.max_tokens_valid)  # a string in fairseq's parser
    for subset, size in longest.items():
        option, room, most = "--max-tokens", batch.max_tokens, whole.max_tokens or 0
        if subset != given.train_subset and of_valid != str(given.max_tokens):
            option, room, most = "--max-tokens-valid", int(of_valid), 0
        if room is not None and size > room:
            more = f"it needs room for {size}: {', or '.join(ways)}"
            advice = more if size <= most else f"give {option} {size} or more after --"
            raise ConfigurationError(
                f"the longest sentence of {subset} has {size} tokens, but a batch holds at most "
                f"{room}: {advice}"
            )


def resuming(words: Sequence[str], begin: str, run: Run) -> list[str]:
    """The words without options that would restart a training whose folder has checkpoints.

    fairseq reads a --restore-file of another folder at every start, which would restart on a rerun.
    """
    default = begin == "checkpoint_last.pt"  # fairseq looks only for this name in --save-dir
    elsewhere = not default and run.folder.resolve() not in Path(begin).resolve().parents
    if not elsewhere or not run.checkpoints():
        return list(words)
    kept = [word for word in words if not word.startswith("--reset-")]
    return [*kept, "--restore-file", "checkpoint_last.pt"]


def launcher(request: TrainingRequest, processes: int) -> list[str]:
    """The options of torchrun that start the processes of this machine."""
    _, most = request.machines
    if processes * most == 1:
        return []
    # port 0 means any free port; --standalone used a fixed one in older releases
    endpoint = request.rendezvous or "localhost:0"
    words = [
        "--nnodes", request.nodes, "--nproc_per_node", str(processes), "--rdzv_backend",
        "c10d", "--rdzv_endpoint", endpoint, "--rdzv_id", request.name,
    ]  # fmt: skip
    # where a machine is lost, the others start their processes anew, once it has joined again
    return [*words, "--max_restarts", str(RESTARTS)] if most > 1 else words


def bleu_options(data: Path, words: Sequence[str]) -> list[str]:
    """The option for --eval-bleu that joins the data's subwords; it overrides the recipe."""
    if "--eval-bleu" not in words:
        return []
    joined_by = JOINED_BY.get(Record.read(data).settings.get("subword", ""))
    return ["--eval-bleu-remove-bpe", joined_by] if joined_by else []


def parse_options(request: TrainingRequest) -> tuple[list[str], argparse.Namespace]:
    """The data and all options of a training as words for fairseq-train, and their parsed values.

    Raises:
        ConfigurationError: an option is unknown, cannot work, or is set by this command.
    """
    in_files = recipes.merge([request.recipe, *request.settings])
    from_files = recipes.words(in_files)
    check_words(request.words, from_files)
    data = os.pathsep.join(map(str, shards(request.data)))
    words = [data, *from_files]
    words += bleu_options(request.data, [*words, *request.words])
    words += request.words
    try:
        given = fairseq_parser.parse(words, [name for name in in_files if in_files[name] is False])
    except ConfigurationError as error:
        unknown = re.search(r"does not take (--[\w-]+)", str(error))
        if not unknown or unknown[1] not in from_files:
            raise
        fairseq_parser.parse([data, *from_files])  # raises for mistakes in files
        name = unknown[1][2:].replace("-", "_")
        raise ConfigurationError(
            f"{unknown[1]}, from the recipe or a --settings file, does not apply to the new model, "
            f"task, optimizer, criterion or scheduler: set '{name}: null' in its "
            "group in a further --settings file (.yaml)"
        ) from None
    check_ranges(lambda _, name: getattr(given, name, None))
    if given.log_format not in (None, "simple"):
        raise ConfigurationError(
            f"--log-format {given.log_format}: this command needs --log-format simple to show "
            "the progress: remove it"
        )
    if len(given.update_freq) != 1:
        raise ConfigurationError("--update-freq: give one number, the same for all epochs")
    if skips_too_long(given) and not given.skip_invalid_size_inputs_valid_test:
        words.append("--skip-invalid-size-inputs-valid-test")  # fairseq skips them in train only
        given.skip_invalid_size_inputs_valid_test = True
    return words, given


def batch_options(given: argparse.Namespace, batch: Batch, processes: int) -> list[str]:
    """The options for the batch of one process; that of validation shrinks with an equal one."""
    words = ["--update-freq", str(batch.update_freq)]
    if processes == 1:
        words += ["--distributed-world-size", "1"]  # not one process per GPU
    for name in ("max_tokens", "batch_size"):
        size = getattr(batch, name)
        if size is not None:
            words += [flag(name), str(size)]
            if str(getattr(given, name + "_valid")) == str(getattr(given, name)):
                words += [flag(name) + "-valid", str(size)]
    return words


def advice_to_go_on(given: argparse.Namespace) -> str:
    """How the user may train longer, for a message."""
    if 0 < settings.schedule_end(given) <= given.max_update:
        return "its learning-rate schedule has ended; to train longer, choose another folder"
    limits = ("max_update", "max_epoch", "stop_time_hours", "patience")
    names = [flag(name) for name in limits if getattr(given, name) > 0]
    ways = [f"a larger {' or '.join(names)}"] if names else []
    ways += ["a smaller --stop-min-lr"] if given.stop_min_lr >= 0 else []
    return f"train longer with {', or '.join(ways)}"


def ends(given: argparse.Namespace) -> list[str]:
    """One line with the options that end the training, if any."""
    limits = {name: getattr(given, name) for name in ("max_update", "max_epoch", "stop_time_hours")}
    told = [f"{flag(name)} {value:,g}" for name, value in limits.items() if value > 0]
    return [f"ends at {' or '.join(told)}"] if told else []


def capture_options(
    request: TrainingRequest,
    words: Sequence[str],
    given: argparse.Namespace,
    begun: bool | None,
    half: bool,
    processes: int,
) -> list[str]:
    """The options that capture the steps of a translator or summarizer on one GPU, and load for it.

    Elsewhere nothing is captured without --cuda-graphs. A training goes on as it began: dropout
    draws other numbers on the other path.

    Args:
        begun: whether the training that resumes began so; None for a new one.
        half: whether a GPU trains in half precision.
    """
    options: list[str] = []
    if given.cuda_graphs and request.eager:
        raise ConfigurationError("--eager and --cuda-graphs exclude each other: remove one")
    if not given.cuda_graphs:
        if request.eager or not half or processes > 1:
            return []
        if begun is False or given.task not in CAPTURED_TASKS:
            return []
        options = ["--cuda-graphs"]
    # fairseq's one process may not load batches as fast as captured steps take them
    if half and "--num-workers" not in {word.split("=")[0] for word in words}:
        options += ["--num-workers", str(WORKERS)]
    return options


def plan(request: TrainingRequest) -> Plan:
    """Work out the command for this machine.

    Raises:
        ConfigurationError: the data, an option or their combination cannot work.
    """
    least, most = request.machines
    place = request.rendezvous
    if (most > 1) != (place is not None) or (place and not re.fullmatch(".+:[0-9]{1,5}", place)):
        raise ConfigurationError(
            f"--nodes {request.nodes} --rendezvous {place or 'is missing'}: several machines need "
            "--rendezvous HOST:PORT, such as node1:29400; remove it for one machine"
        )
    words, given = parse_options(request)
    check_task(request.data, given.task)
    for name in ("share_all_embeddings", "copy_attention"):
        if getattr(given, name, False):
            check_shared_dictionary(request.data, flag(name))
    on_cpu = request.cpu or given.cpu or not torch.cuda.is_available()
    whole = Batch(given.max_tokens, given.batch_size, given.update_freq[0])
    processes, batch, limited = share_batch(request, given, whole, on_cpu)
    total = processes * most
    shares = {}
    for nodes in range(least, most + 1) if least < most else ():
        count = processes * nodes
        fewer = batch_size.for_fewer(batch, total, count)
        told = f"{nodes} of {most} machines train; an update: {fewer.describe(count)}"
        shares[count] = [told, *batch_options(given, fewer, count)]

    run = request.run
    save_dir = run.folder
    if not request.dry_run:
        check_can_hold("--save-dir", save_dir)
    check_path("--save-dir", save_dir)  # for paths fairseq-generate cannot read
    before, end = run.stored(), {name: getattr(given, name) for name in END}
    how = precision.choose(
        request.precision, given, on_cpu, before.get(PRECISION), run.reached(end)
    )
    half = [] if how == "fp32" or getattr(given, how) else [flag(how)]
    words += [*half, *batch_options(given, batch, total)]
    words += ["--cpu"] if on_cpu else []
    in_half = not on_cpu and how in ("bf16", "fp16")
    begun = bool(before.get(CAPTURED)) if before else None
    captured = capture_options(request, words, given, begun, in_half, total)
    words += captured
    for folder in request.user_dir or [PLUGIN]:  # fairseq itself imports the last one
        words += ["--user-dir", str(folder)]
    words += ["--save-dir", str(save_dir)]
    words = resuming(words, given.restore_file, run)
    logging = ["--log-format", "simple", "--log-interval", "50"]
    device = "CPU" if on_cpu else torch.cuda.get_device_name()
    return Plan(
        request=request,
        words=[words[0], *logging, *words[1:]],
        launcher=launcher(request, processes),
        shares=shares,
        processes=processes,
        summary=[
            f"{request.name}: {given.arch} on {request.data}, into {save_dir}",
            f"an update: {batch.describe(total)}; {' '.join([device, *half])}",
            *ends(given),
            *limited,
            *bleu_of_valid.tell(request.data, given),
        ],
        settings={
            **settings.settled(given, whole, request.data, save_dir),
            PRECISION: how,
            SHARING: batch.describe(total),
            CAPTURED: bool(captured) or given.cuda_graphs if begun is None else begun,
        },
        end=end,
        longer=advice_to_go_on(given),
        given=given,
        threads=threads_of(request, processes) if on_cpu else None,
    )
