"""Beam search over real sentences of a prepared folder, contenders side by side.

    python -m fairseq_plugins benchmark generate DATA \\
        --contender "transformer_iwslt_de_en --plain" \\
        --contender "transformer_ftc_iwslt_de_en --encoder-blocks 6,6 --decoder-layers 1"
    python -m fairseq_plugins benchmark generate DATA --contender plain/checkpoint_best.pt \\
        --contender "plain/checkpoint_best.pt --int8"

A contender is an architecture with options (its weights are random), a checkpoint, `export:DIR`
(what the command `export` wrote) or `ctranslate2:DIR`. Among its words, --int8 quantises a model,
--plain takes fairseq's own decoding where the plugin has a faster one, --recorded replays steps as
CUDA graphs, and --beam N, as the last words, gives a
folder its own beam. All contenders take the same batches in turn; the first one, not a folder, is
the baseline. So that models compare which do not end their sentences alike, each batch is searched
up to the length of its longest reference and not ended before, unless --free-length lets trained
models end themselves. --bleu translates the whole subset as well; the plot then shows time against
BLEU.
"""

import argparse
import contextlib
import io
import shlex
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fairseq_plugins.arguments import add_flag, add_number
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate import TOKENISED_BLEU

from . import contenders, exports, machine, plots, results, timing
from .operations import count_flops

INT8, PLAIN, RECORDED = "--int8", "--plain", "--recorded"
SUBSET = "test"  # of the data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, help="the prepared folder")
    parser.add_argument(
        "--contender",
        action="append",
        required=True,
        metavar="WORDS",
        help="an architecture, a checkpoint, export:DIR or ctranslate2:DIR, with its options in "
        "one word; repeatable",
    )
    parser.add_argument("--options", default="", help="options that all architectures get")
    add_number(parser, "--beam", "hypotheses a sentence", 5)
    add_number(parser, "--batch-size", "sentences", 32)
    add_number(parser, "--batches", "different batches", 4)
    timing.add_arguments(parser, rounds=3)
    add_flag(parser, "--free-length", "let models end sentences")
    add_flag(parser, "--bleu", "score translations of the subset, too")
    machine.add_arguments(parser)


def run(args: argparse.Namespace) -> results.Report:
    """Time beam search of all contenders; the module's docstring describes the measurement.

    Raises:
        ConfigurationError: arguments, checkpoints or data are invalid.
    """
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
        else searcher(*found, args, batches, shlex.split(words))
        for words, found in zip(args.contender, built)
    ]
    numbers = range(len(batches))
    times = timing.interleave(
        works, numbers, args.rounds, args.warmup, device, "beam search", args.clock
    )
    flops = [
        None if found is None or INT8 in shlex.split(words) else count_flops(work, numbers)
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
    if args.bleu:
        for row, scored in zip(rows, scores(args, built, device)):
            row["scores"] = scored
            row["bleu"] = (scored.get(TOKENISED_BLEU) or scored["BLEU"])["score"]
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
            *([("tokenised BLEU", results.number("bleu", ".2f"))] if args.bleu else []),
        ],
        [
            f"{SUBSET}, beam {args.beam}, {len(batches)} batches of at most {args.batch_size} "
            f"sentences x {args.rounds} rounds, {args.dtype}, {ends}; operations of 8-bit products "
            "are not counted"
        ],
        partial(
            plots.time_and_bleu if args.bleu else plots.bars,
            rows=rows,
            title=f"Beam {args.beam}, batch {args.batch_size}: time",
        ),
    )


def load(words: str, args: argparse.Namespace, device: torch.device) -> tuple[Any, Any]:
    """The task and the model of a contender, prepared for generation on the device.

    Raises:
        ConfigurationError: the words name no architecture, and no checkpoint that can be loaded.
    """
    own = shlex.split(words)
    int8 = INT8 in own
    own = [word for word in own if word not in (INT8, PLAIN, RECORDED)]
    if own and own[0].endswith(".pt"):
        if len(own) > 1:
            raise ConfigurationError(
                f"`{words}`: a checkpoint takes {INT8}, {PLAIN} and {RECORDED} only"
            )
        task, model = _from_checkpoint(Path(own[0]), args.data)
    else:
        rest = shlex.join(own)
        found = contenders.build_on_data(rest, args.options, args.data, "fp32", True)
        task, model = found.task, found.model
    model = model.to(device, machine.DTYPES[args.dtype]).eval()
    model.prepare_for_inference_(Namespace(generation=_generation_configuration(args)))
    if int8:
        from fairseq_plugins.generation.int8 import quantize

        model = quantize(model)
    return task, model


def _from_checkpoint(path: Path, data: Path) -> tuple[Any, Any]:
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
) -> list[dict[str, Any]]:
    """Full batches of sentences of similar length, shuffled so that all lengths occur.

    fairseq-generate forms batches in the same way.

    Raises:
        ConfigurationError: the folder lacks the subset, or the subset has too few full batches.
    """
    found = _all_batches(task, model, args, shuffle=True)
    full = [batch for batch in found if batch["nsentences"] == args.batch_size]
    if len(full) < args.batches:
        raise ConfigurationError(
            f"--batches {args.batches}: {SUBSET} has {len(full)} of --batch-size {args.batch_size}"
        )
    return [_on(batch, device) for batch in full[: args.batches]]


def _on(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    from fairseq import utils

    return utils.move_to_cuda(batch) if device.type == "cuda" else batch


def _all_batches(
    task: Any, model: Any, args: argparse.Namespace, shuffle: bool
) -> list[dict[str, Any]]:
    from fairseq import utils

    task.load_dataset(SUBSET)
    iterator = task.get_batch_iterator(
        task.dataset(SUBSET),
        max_sentences=args.batch_size,
        max_positions=utils.resolve_max_positions(task.max_positions(), model.max_positions()),
        ignore_invalid_inputs=True,
        seed=1,
    ).next_epoch_itr(shuffle=shuffle)
    return list(iterator)


def scores(
    args: argparse.Namespace, built: list[tuple[Any, Any] | None], device: torch.device
) -> list[dict[str, dict[str, Any]]]:
    """BLEU and chrF of each contender on the whole subset; models end their sentences.

    Raises:
        ConfigurationError: the folder was not prepared by this package.
    """
    from fairseq_plugins.evaluate.translation import Translations

    assert built[0] is not None
    task, model = built[0]
    test = Translations(args.data, SUBSET, task.cfg.target_lang)
    free = argparse.Namespace(**{**vars(args), "free_length": True})
    batches = [_on(batch, device) for batch in _all_batches(task, model, args, shuffle=False)]
    figures = []
    for words, found in zip(args.contender, built):
        if found is None:
            search = exports.searcher(words, task, free, batches)
        else:
            search = searcher(*found, free, batches, shlex.split(words))
        lines = [""] * test.total
        for number, batch in enumerate(batches):
            for index, result in zip(batch["id"].tolist(), search(number)):
                lines[index] = _subwords(result, task.target_dictionary)
        figures.append(test.score(test.text(lines)))
    return figures


def _subwords(result: Any, dictionary: Any) -> str:
    """The best hypothesis of fairseq, of an export or of CTranslate2."""
    if hasattr(result, "hypotheses"):
        return " ".join(result.hypotheses[0])
    best = result[0]
    return str(dictionary.string(best.tokens if hasattr(best, "tokens") else best["tokens"]))


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
    batches: list[dict[str, Any]],
    words: Sequence[str],
) -> Callable[[int], Any]:
    """Return the function to time, which runs beam search on the batch of a given number.

    The generators are built in advance, so that the time contains the search only.
    """
    from fairseq.tasks import FairseqTask

    build = FairseqTask.build_generator
    if PLAIN in words:
        build = getattr(build, "__wrapped__", build)
    lengths = [batch["target"].size(1) for batch in batches]
    generators = {
        length: build(task, [model], _generation_configuration(args, length))
        for length in sorted(set(lengths))
    }
    for generator in generators.values():
        generator.records = RECORDED in words

    def search(number: int) -> Any:
        generator = generators[lengths[number]]
        return task.inference_step(generator, [model], batches[number])

    return search
