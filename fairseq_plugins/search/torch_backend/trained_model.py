"""Runs trained models with torch and fairseq's search."""

import contextlib
import copy
import os
import re
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq import utils
from fairseq.data.data_utils import collate_tokens
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models.nat import FairseqNATModel
from fairseq.sequence_generator import SequenceGenerator
from fairseq.token_generation_constraints import pack_constraints
from torch import Tensor

from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.errors import OUT_OF_MEMORY, ConfigurationError
from fairseq_plugins.options.search import FAIRSEQ_NAMES, OFF_IN_FAIRSEQ, Options
from fairseq_plugins.pretrained import find_checkpoint
from fairseq_plugins.search.batches import fill_batches
from fairseq_plugins.search.checkpoints import limits, load_models
from fairseq_plugins.search.engine import IN_EACH_PROCESS, Done, Input, Loaded, Place
from fairseq_plugins.search.text import Output, write
from fairseq_plugins.search.text import number_unknown as number_line

from .batch_sizes import fill_by_memory
from .copied import find_attention, find_copied, number_copied, of_rows
from .generator import LIMITS, BeamGenerator
from .int8 import quantize
from .unknown import NUMBERS, number_unknown


def generation_options(options: Options) -> GenerationConfig:
    """The same options under fairseq's names, without the seed."""
    given = {FAIRSEQ_NAMES.get(name, name): value for name, value in vars(options).items()}
    given.pop("seed")
    given.update({name: given[name] or -1 for name in OFF_IN_FAIRSEQ})
    return GenerationConfig(**given)


class _Batch(NamedTuple):
    """A batch to search, with the inputs in the order of its rows."""

    inputs: list[Input]
    order: list[int]  # which of the given inputs each row is
    sample: dict[str, Any]  # fairseq's
    lacking: list[list[str]]  # unknown subwords of each source
    begin: Tensor | None  # tokens with which the hypotheses must begin, padded


class TrainedModel(Loaded):
    """The `Engine` of checkpoints: one model or an ensemble.

    Args:
        places: checkpoints, or folders of them.
        data: the prepared folder; None for the folder that the first model was trained on.
        cpu: do not use a GPU.
        fp16: half precision, on a GPU only.
        generation: fairseq's options of the search.
        max_tokens: subwords in a batch, including padding.
        int8: 8-bit matrix products, on a CPU only.
        seed: seed of sampling; None to draw from torch's current state.
        max_sentences: maximum number of sources in a batch.
        overrides: values that replace options of the checkpoints.
        word_by_word: whether to refuse models that do not generate word by word.
        by_memory: on a GPU, fill batches as its memory allows instead (see `fill_by_memory`).

    Raises:
        ConfigurationError: a folder or file is missing, or model and data do not match.
    """

    def __init__(
        self,
        places: Sequence[Place],
        data: Place | None,
        cpu: bool,
        fp16: bool,
        generation: Any,
        max_tokens: int,
        int8: bool = False,
        seed: int | None = None,
        max_sentences: int | None = None,
        overrides: dict[str, Any] | None = None,
        word_by_word: bool = True,
        by_memory: bool = False,
    ):
        paths = [str(find_checkpoint(place)) for place in places]
        self.name = " ".join(map(str, places))
        self.device = _device(cpu)
        super().__init__("a GPU" if self.device.type == "cuda" else "")
        if fp16 and self.device.type == "cpu":
            reason = "--cpu is given" if cpu else "torch sees no GPU here"
            raise ConfigurationError(f"--fp16 needs a GPU, but {reason}")
        folder, loaded, self.task = load_models(paths, data, overrides=overrides)
        if not hasattr(getattr(self.task, "cfg", None), "source_lang"):
            raise ConfigurationError(
                f"--model {paths[0]} was trained with a fairseq task that is not supported here "
                f"({type(self.task).__name__}): use fairseq-generate or fairseq-interactive"
            )
        languages = self.task.cfg.source_lang, self.task.cfg.target_lang
        self.processor: Any = Prepared(folder).processor(*languages)
        for model in loaded:
            if fp16:
                model.half()
            model.to(self.device)
            model.eval()
            # the beam of the search: fairseq's convolutional decoders group their rows by it
            model.prepare_for_inference_(Namespace(generation=generation))
            if int8:
                quantize(model)
        if generation.sampling_topk >= len(self.task.target_dictionary):
            generation.sampling_topk = -1  # all words; torch refuses more than there are
        self.models, self.generation, self.seed = loaded, generation, seed
        self.generator = self.task.build_generator(loaded, generation)
        for path, model in zip(paths, loaded):
            by_word = isinstance(self.generator, SequenceGenerator)
            if word_by_word and (not by_word or isinstance(model, FairseqNATModel)):
                raise ConfigurationError(
                    f"--model {path} does not write word by word ({type(model).__name__}): use "
                    "fairseq-interactive"
                )
        self.max_source, self.max_output = limits(loaded, self.task)
        self.min_len: int = generation.min_len
        self.takes_terms = not generation.sampling and generation.diverse_beam_groups < 1
        self.max_tokens, self.max_sentences = max_tokens, max_sentences or sys.maxsize
        self.by_memory = by_memory
        self.summarizes = getattr(self.task, "summarizes", False)
        self._copiers = [m for m in loaded if getattr(m.decoder, "copying", None) is not None]
        self.copies = loaded[0] in self._copiers
        # of each process, as whoever holds one does not exist in a fork
        self._locks: dict[int, threading.Lock] = {}

    def search(
        self,
        inputs: Sequence[Input],
        count: int,
        copied: bool,
        done: Done,
        aligned: bool = False,
    ) -> list[list[Output]]:
        """See `Engine.search`."""
        self.check_process()
        tokens = _encode(self.task.source_dictionary, [each.pieces for each in inputs])
        outputs: list[list[Output]] = [[] for _ in inputs]
        lengths = [len(source) for source in tokens]
        # fairseq has the minimum length of any source with a prefix, and its own loop has one limit
        # per batch; but an output must not depend on the other sources of its batch
        one_limit = not isinstance(self.generator, BeamGenerator)
        # a text with terms is alone
        kinds = [
            (len(each.prefix), each.limit * one_limit, n * bool(each.terms))
            for n, each in enumerate(inputs, 1)
        ]
        steps = [each.limit for each in inputs]
        batches = fill_batches(lengths, self.max_tokens, self.max_sentences, kinds)
        if self.by_memory:
            batches = fill_by_memory(self.generator, lengths, steps, kinds=kinds) or batches

        def prepare(batch: list[int]) -> _Batch:
            return self._prepare([inputs[n] for n in batch], [tokens[n] for n in batch])

        with ThreadPoolExecutor(1) as pool:
            # a GPU searches one batch while the host prepares the next ones
            compute: Any = pool.map if self.device.type == "cuda" else map
            for numbers, batch in zip(batches, compute(prepare, batches)):
                with _told_if_memory_is_short(self.max_tokens):
                    found = self._search_batch(batch, count, copied, aligned)
                for row, hypotheses in zip(batch.order, found):
                    outputs[numbers[row]] = hypotheses
                done(len(numbers))
        return outputs

    def _prepare(self, inputs: list[Input], tokens: list[Tensor]) -> _Batch:
        """The batch of these inputs, on the CPU."""
        dataset = self.task.build_dataset_for_inference(tokens, [len(line) for line in tokens])
        sample = dataset.collater([dataset[i] for i in range(len(tokens))])
        order = sample["id"].tolist()  # fairseq sorts them by length
        inputs, dictionary = [inputs[number] for number in order], self.task.target_dictionary
        lacking: list[list[str]] = [[] for _ in inputs]
        if self._copiers:
            lacking = number_unknown(sample, dictionary, [each.pieces for each in inputs])
        return _Batch(inputs, order, sample, lacking, self._prefixes(inputs, lacking))

    def _search_batch(
        self, batch: _Batch, count: int, copied: bool, aligned: bool
    ) -> list[list[Output]]:
        """The outputs for each row of a batch."""
        inputs, _, sample, lacking, begin = batch
        generator, dictionary, constraints = self.generator, self.task.target_dictionary, None
        if self.device.type == "cuda":
            sample, begin = utils.move_to_cuda((sample, begin))
        if inputs[0].terms:
            options = copy.copy(self.generation)
            options.constraints = "unordered"
            generator = self.task.build_generator(self.models, options)
            # the hypotheses with all terms may have ended before the limit
            generator.search.stop_on_max_len = True
            terms = _encode(dictionary, inputs[0].terms)
            constraints = pack_constraints([[term[:-1] for term in terms]])
        most = getattr(generator, "max_len", self.max_output + 1) - 1
        longest = [min(each.limit, most) for each in inputs]
        sample[LIMITS] = torch.tensor(longest)
        seed = self.seed if self.generation.sampling else None
        # fairseq's generator has one limit at a time
        lock = self._locks.setdefault(os.getpid(), threading.Lock())
        with lock, torch.random.fork_rng(enabled=seed is not None):
            if seed is not None:
                number, part = min((each.number, each.part) for each in inputs)
                torch.manual_seed(seed + number + 1_000_003 * part)
            generator.max_len_a, generator.max_len_b = 0, max(longest)
            found = self.task.inference_step(
                generator, self.models, sample, prefix_tokens=begin, constraints=constraints
            )
        if not found[0]:  # the terms do not fit
            batch = batch._replace(inputs=[inputs[0]._replace(terms=())])
            return self._search_batch(batch, count, copied, aligned)
        best = [(row, h) for row, each in enumerate(found) for h in each[:count]]
        rows = [row for row, _ in best]
        written = [hypothesis["tokens"] for _, hypothesis in best]
        written = number_copied(self.models, sample, written, rows)
        positions: list[list[int | None]] = [[] for _ in best]
        if copied and self.copies:
            numbers = sample[NUMBERS][rows] if NUMBERS in sample else None
            positions = find_copied(self.models[0], of_rows(sample, rows), written, numbers)
        attention = find_attention(self.models, of_rows(sample, rows), written) if aligned else None
        outputs: list[list[Output]] = [[] for _ in inputs]
        weights = attention or [None] * len(best)
        for (row, hypothesis), line, places, each in zip(best, written, positions, weights):
            pieces = write(line.tolist(), dictionary.symbols, lacking[row], inputs[row].prefix)
            complete, score = len(line) <= longest[row], float(hypothesis["score"])
            scores = hypothesis["positional_scores"].tolist()
            output = Output(pieces, complete, places, score, scores, each)
            outputs[row].append(output)
        return outputs

    def _prefixes(self, inputs: list[Input], lacking: list[list[str]]) -> Tensor | None:
        """The tokens with which hypotheses must begin, padded; `lacking` has unknown subwords."""
        if not any(each.prefix for each in inputs):
            return None
        dictionary = self.task.target_dictionary
        lines = [line[:-1] for line in _encode(dictionary, [each.prefix for each in inputs])]
        if isinstance(self.generator, BeamGenerator):  # others do not know these numbers
            for line, each, own in zip(lines, inputs, lacking):
                numbers, _ = number_line(
                    each.prefix, line.tolist(), dictionary.unk(), len(dictionary), own
                )
                line.copy_(torch.tensor(numbers))
        return collate_tokens(lines, dictionary.pad())


@contextlib.contextmanager
def _told_if_memory_is_short(tokens: int) -> Iterator[None]:
    """Raise a ConfigurationError if a batch of so many tokens needs too much memory."""
    try:
        yield
    except RuntimeError as error:
        if not re.search(OUT_OF_MEMORY, str(error)):
            raise
        raise ConfigurationError(
            f"a batch of {tokens} tokens needs too much memory: give a smaller --max-tokens"
        ) from None


def _encode(dictionary: Any, lines: Sequence[Sequence[str]]) -> list[Tensor]:
    """Numbers of subwords, with the end symbol."""
    return [
        dictionary.encode_line(" ".join(pieces), add_if_not_exist=False).long() for pieces in lines
    ]


def _device(cpu: bool) -> torch.device:
    if not cpu and torch.cuda._is_in_bad_fork():
        raise ConfigurationError(
            f"this process was forked from one that uses a GPU: give cpu=True, or {IN_EACH_PROCESS}"
        )
    return torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")


class TrainedClassifier(Loaded):
    """The `ClassEngine` of a checkpoint.

    Args:
        name: the checkpoint's name, for messages.
        folder: the prepared folder.
        model, task: as `load_models` returns them.
        cpu: do not use a GPU.

    Raises:
        ConfigurationError: the model has no labels.
    """

    pair_bytes = 0

    def __init__(self, name: str, folder: Path, model: Any, task: Any, cpu: bool):
        cfg, dictionary = task.cfg, task.label_dictionary
        if getattr(cfg, "regression_target", False):
            raise ConfigurationError(
                f"--model {name} is trained with --regression-target: it has no labels"
            )
        self.name, self.folder, self.task, self.device = name, folder, task, _device(cpu)
        super().__init__("a GPU" if self.device.type == "cuda" else "")
        self.model = model.to(self.device).eval()
        self.labels: list[str] = dictionary.symbols[dictionary.nspecial :][: cfg.num_classes]
        self.start: int | None = cfg.init_token
        self.max_positions: int = task.max_positions()
        self.max_source = self.max_positions - (self.start is not None)
        if str(cfg.shorten_method) == "none":  # otherwise a truncated text has no end symbol
            self.max_source -= 1

    @classmethod
    def load(cls, place: Place, data: Place | None, cpu: bool) -> "TrainedClassifier":
        """Load a checkpoint, or that of a training's folder; `data` as in `open_engine`.

        Raises:
            ConfigurationError: a file is missing, the model is not a classifier, or model and data
                do not match.
        """
        path = str(find_checkpoint(place))
        folder, (model,), task = load_models([path], data, classifier=True)
        return cls(path, folder, model, task, cpu)

    def numbers(self, pieces: Sequence[str]) -> list[int]:
        """See `ClassEngine.numbers`."""
        (line,) = _encode(self.task.source_dictionary, [pieces])
        return line.tolist()

    def probabilities(self, texts: Sequence[Sequence[int]]) -> Any:
        """See `ClassEngine.probabilities`."""
        self.check_process()
        pad = self.task.source_dictionary.pad()
        tokens = collate_tokens([torch.tensor(text) for text in texts], pad)
        head = self.task.cfg.classification_head_name
        with torch.no_grad(), _told_if_memory_is_short(tokens.numel()):
            tokens = tokens.to(self.device)
            output = self.model(tokens, features_only=True, classification_head_name=head)
            return self.model.get_normalized_probs(output, log_probs=False).cpu().numpy()
