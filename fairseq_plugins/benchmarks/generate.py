"""Beam search over real sentences of a prepared folder, contenders side by side.

    python -m fairseq_plugins benchmark generate DATA \\
        --contender "transformer_iwslt_de_en --plain" \\
        --contender "transformer_ftc_iwslt_de_en --encoder-blocks 6,6 --decoder-layers 1"
    python -m fairseq_plugins benchmark generate DATA --contender plain/checkpoint_best.pt \\
        --contender "plain/checkpoint_best.pt --int8"

A contender is an architecture with options (its weights are random), a checkpoint, `export:DIR`
(what the command `export` wrote) or `ctranslate2:DIR`; --int8 among its words quantises a model,
--plain takes fairseq's own decoding where the plugin has a faster one. All contenders take the same
batches in turn; the first, which is no folder, is the baseline. So that models compare which do not
end their sentences alike, each batch is searched up to the length of its longest reference and not
ended before, unless --free-length lets trained models end themselves.
"""

import argparse
import contextlib
import io
import shlex
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import torch

from fairseq_plugins.errors import ConfigurationError

from . import contenders, exports, machine, plots, results, timing
from .operations import count_flops

INT8, PLAIN = "--int8", "--plain"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="folder that fairseq-preprocess made")
    parser.add_argument(
        "--contender", action="append", required=True, help="arch or checkpoint; repeatable"
    )
    parser.add_argument("--options", default="", help="options that all architectures get")
    parser.add_argument("--subset", default="test", help="of the data (test)")
    parser.add_argument("--beam", type=int, default=5, help="hypotheses a sentence (5)")
    parser.add_argument("--batch-size", type=int, default=32, help="sentences (32)")
    parser.add_argument("--batches", type=int, default=4, help="different batches (4)")
    parser.add_argument("--rounds", type=int, default=3, help="times each is counted (3)")
    parser.add_argument("--warmup", type=int, default=1, help="times before that (1)")
    parser.add_argument("--free-length", action="store_true", help="let models end sentences")
    machine.add_arguments(parser)


def run(args: argparse.Namespace) -> results.Report:
    """Time beam search of all contenders; the module's docstring describes the measurement.

    Raises:
        ConfigurationError: arguments, checkpoints or data are invalid.
    """
    for name, least in (
        ("beam", 1), ("batch_size", 1), ("batches", 1), ("rounds", 1), ("warmup", 0),
    ):  # fmt: skip
        if getattr(args, name) < least:
            option = name.replace("_", "-")
            raise ConfigurationError(f"--{option} {getattr(args, name)}: at least {least}")
    device = machine.choose_device(args)
    if exports.is_folder(args.contender[0]):
        raise ConfigurationError(
            f"--contender {args.contender[0]}: the first must be an architecture or a checkpoint"
        )
    built = [
        None if exports.is_folder(words) else load(words, args, device) for words in args.contender
    ]
    baseline = built[0]
    assert baseline is not None
    batches = load_batches(*baseline, args, device)
    works = [
        exports.searcher(words, baseline[0], args, batches)
        if found is None
        else searcher(*found, args, batches, PLAIN in shlex.split(words))
        for words, found in zip(args.contender, built)
    ]
    numbers = range(len(batches))
    times = timing.interleave(
        works, numbers, args.rounds, args.warmup, device, "beam search", args.clock
    )
    flops = [
        None if found is None or INT8 in shlex.split(words) else count_flops(partial(work, 0))
        for words, work, found in zip(args.contender, works, built)
    ]
    rows = timing.comparison(args.contender, times, flops)
    sentences = sum(batch["nsentences"] for batch in batches) * args.rounds
    for row, found in zip(rows, built):
        row["speed"] = 1 / row["time_ratio"]
        row["speed_quartiles"] = [1 / value for value in row["time_ratio_quartiles"][::-1]]
        row["sentences_a_second"] = sentences / sum(row["seconds"])
        if found is not None:
            row["parameters"] = contenders.count_parameters(found[1])
    ends = "models end sentences" if args.free_length else "length of the longest reference"
    return results.Report(
        rows,
        [
            ("contender", results.code("contender")),
            ("speed, ratio", results.number("speed")),
            ("quartiles", results.quartiles("speed_quartiles")),
            ("time, ratio", results.number("time_ratio")),
            ("operations, ratio", results.number("flop_ratio")),
            ("time over operations", results.number("ratio_to_flop_limit")),
            ("sentences a second", results.number("sentences_a_second", ".2f")),
        ],
        [
            f"{args.subset}, beam {args.beam}, {len(batches)} batches of at most {args.batch_size} "
            f"sentences x {args.rounds} rounds, {args.dtype}, {ends}; operations of 8-bit products "
            "are not counted"
        ],
        lambda path: plots.bars(path, rows, f"Beam {args.beam}, batch {args.batch_size}: time"),
    )


def load(words: str, args: argparse.Namespace, device: torch.device) -> Tuple[Any, Any]:
    """The task and the model of a contender, prepared for generation on the device.

    Raises:
        ConfigurationError: the words name no architecture, and no checkpoint that can be loaded.
    """
    own = shlex.split(words)
    int8 = INT8 in own
    own = [word for word in own if word not in (INT8, PLAIN)]
    if own and own[0].endswith(".pt"):
        if len(own) > 1:
            raise ConfigurationError(f"`{words}`: a checkpoint takes {INT8} and {PLAIN} only")
        task, model = _from_checkpoint(Path(own[0]), args.data)
    else:
        rest = " ".join(map(shlex.quote, own))
        found = contenders.build_on_data(rest, args.options, args.data, "fp32", True)
        task, model = found.task, found.model
    model = model.to(device, machine.DTYPES[args.dtype]).eval()
    model.prepare_for_inference_(Namespace(generation=_generation_configuration(args)))
    if int8:
        from fairseq_plugins.generation.int8 import quantize

        model = quantize(model)
    return task, model


def _from_checkpoint(path: Path, data: Path) -> Tuple[Any, Any]:
    from fairseq import checkpoint_utils

    if not path.is_file():
        raise ConfigurationError(f"{path}: no such checkpoint")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            models, _, task = checkpoint_utils.load_model_ensemble_and_task(
                [str(path)], arg_overrides={"data": str(data)}
            )
    except Exception as error:  # torch and fairseq raise many types for unsuitable files
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigurationError(f"{path} cannot be loaded: {reason}") from error
    return task, models[0]


def load_batches(
    task: Any, model: Any, args: argparse.Namespace, device: torch.device
) -> List[Dict[str, Any]]:
    """Full batches of sentences of similar length, shuffled so that all lengths occur.

    fairseq-generate forms batches in the same way.

    Raises:
        ConfigurationError: the folder lacks the subset, or the subset has too few full batches.
    """
    from fairseq import utils

    try:
        task.load_dataset(args.subset)
    except FileNotFoundError as error:
        raise ConfigurationError(f"--subset {args.subset}: {error}") from None
    iterator = task.get_batch_iterator(
        task.dataset(args.subset),
        max_sentences=args.batch_size,
        max_positions=utils.resolve_max_positions(task.max_positions(), model.max_positions()),
        ignore_invalid_inputs=True,
        seed=1,
    ).next_epoch_itr(shuffle=True)
    found = list(iterator)
    full = [batch for batch in found if batch["nsentences"] == args.batch_size]
    if len(full) < args.batches:
        raise ConfigurationError(
            f"--batches {args.batches}: {args.subset} has {len(full)} of --batch-size "
            f"{args.batch_size}"
        )
    full = full[: args.batches]
    return [utils.move_to_cuda(batch) if device.type == "cuda" else batch for batch in full]


def _generation_configuration(args: argparse.Namespace, length: int = 0) -> Any:
    from fairseq.dataclass.configs import GenerationConfig

    cfg = GenerationConfig()
    cfg.beam = args.beam
    if not args.free_length:
        words = max(1, length - 1)  # fairseq's limits do not count </s>
        cfg.max_len_a, cfg.max_len_b, cfg.min_len = 0.0, words, words
    return cfg


def searcher(
    task: Any,
    model: Any,
    args: argparse.Namespace,
    batches: List[Dict[str, Any]],
    plain: bool,
) -> Callable[[int], Any]:
    """Return the function to time, which runs beam search on the batch of a given number.

    The generators are built in advance, so that the time contains the search only.
    """
    from fairseq.tasks import FairseqTask

    build = FairseqTask.build_generator
    if plain:
        build = getattr(build, "__wrapped__", build)
    lengths = [batch["target"].size(1) for batch in batches]
    generators = {
        length: build(task, [model], _generation_configuration(args, length))
        for length in sorted(set(lengths))
    }

    def search(number: int) -> Any:
        generator = generators[lengths[number]]
        return task.inference_step(generator, [model], batches[number])

    return search
