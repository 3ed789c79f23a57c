"""Generate from raw text with a trained model and the subword model of its prepared folder."""

import re
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch
from fairseq import utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models.nat import FairseqNATModel
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError, check_range
from fairseq_plugins.generation.copied import find_copied
from fairseq_plugins.generation.int8 import quantize
from fairseq_plugins.serving.batches import fill_batches
from fairseq_plugins.serving.search import Options
from fairseq_plugins.serving.text import Lock, Output, with_characters
from fairseq_plugins.text.processing import Processor
from fairseq_plugins.trained_models import Place, find_checkpoint, load_models


class RawTextGenerator:
    """Beam search over lists of subwords; the base class of `Translator` and `Summarizer`.

    Args:
        models: a checkpoint, or a folder of them; several form an ensemble.
        data: the prepared folder; None for the folder that the model was trained on.
        cpu: do not use a GPU.
        fp16: half precision, on a GPU only.
        generation: fairseq's options of beam search.
        max_tokens: subwords in a batch, padding included.
        int8: 8-bit matrix products, on a CPU only.
        max_sentences: the most sources in a batch.
        overrides: values that replace options of the checkpoints.

    Attributes:
        processor: converts raw text to subwords and back.
        max_source: the largest number of subwords that the model reads, without the end symbol.
        max_output: the largest number of subwords that the model writes.
        wants_copied: whether outputs are to have the positions of copied subwords; in an ensemble,
            those of the first model.
        on_batch: called with the number of sources of each batch that is done.

    Raises:
        ConfigurationError: a folder or file is missing, or model and data do not match.
    """

    wants_copied = False
    word_by_word = True  # whether only models that write so are taken
    on_batch: Callable[[int], None] = staticmethod(lambda count: None)

    def __init__(
        self,
        models: Union[Place, Sequence[Place]],
        data: Optional[Place],
        cpu: bool,
        fp16: bool,
        generation: GenerationConfig,
        max_tokens: int,
        int8: bool = False,
        max_sentences: Optional[int] = None,
        overrides: Optional[Dict[str, Any]] = None,
    ):
        Options(
            beam=generation.beam,
            lenpen=generation.lenpen,
            min_len=generation.min_len,
            no_repeat_ngram=generation.no_repeat_ngram_size,
        ).check()
        check_range("--max-tokens", max_tokens, 1)
        places = [models] if isinstance(models, (str, Path)) else models
        paths = [str(find_checkpoint(place)) for place in places]
        if not paths:
            raise ConfigurationError("no model is given: give a checkpoint, or a folder of them")
        self.device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
        if fp16 and self.device.type == "cpu":
            reason = "--cpu is given" if cpu else "torch sees none here"
            raise ConfigurationError(f"--fp16 needs a GPU, and {reason}")
        folder, loaded, _, self.task = load_models(paths, data, overrides=overrides)
        if not hasattr(getattr(self.task, "cfg", None), "source_lang"):
            raise ConfigurationError(
                f"--model {paths[0]} was trained with a task of fairseq that is not read here "
                f"({type(self.task).__name__}): use fairseq-generate or fairseq-interactive"
            )
        source, target = self.task.cfg.source_lang, self.task.cfg.target_lang
        self.processor = Processor(folder, source, target)
        for model in loaded:
            if fp16:
                model.half()
            model.to(self.device)
            model.eval()
            # the beam of the search: fairseq's convolutional decoders group their rows by it
            model.prepare_for_inference_(Namespace(generation=generation))
            if int8:
                quantize(model)
        self.models = loaded
        self.generator = self.task.build_generator(loaded, generation)
        for path, model in zip(paths, loaded):
            by_word = isinstance(self.generator, SequenceGenerator)
            if self.word_by_word and (not by_word or isinstance(model, FairseqNATModel)):
                raise ConfigurationError(
                    f"--model {path} does not write word by word ({type(model).__name__}): use "
                    "fairseq-interactive"
                )
        limits = [self.task.max_positions()] + [model.max_positions() for model in loaded]
        longest = utils.resolve_max_positions(*limits)
        self.max_source, self.max_output = int(longest[0]) - 1, int(longest[1]) - 1
        self.max_tokens, self.max_sentences = max_tokens, max_sentences or sys.maxsize
        self._searching = Lock()  # fairseq's generator has one limit at a time

    @property
    def tells_copied(self) -> bool:
        """Whether outputs contain the positions of copied subwords."""
        return self.wants_copied and getattr(self.models[0].decoder, "copying", None) is not None

    def max_length(self, source_length: int) -> int:
        """The largest number of subwords to write for a source of this many tokens."""
        raise NotImplementedError

    def generate(self, sources: Sequence[Sequence[str]]) -> List[Output]:
        """The best output for each list of subwords; see `best`."""
        return [outputs[0] for outputs in self.best(sources, 1)]

    def best(self, sources: Sequence[Sequence[str]], count: int) -> List[List[Output]]:
        """Up to `count` outputs for each list of subwords, the best first.

        Args:
            sources: none may be longer than `max_source`.
            count: at least 1; there are no more outputs than the beam has hypotheses.

        Raises:
            ConfigurationError: a batch does not fit into the GPU's memory.
        """
        tokens = [
            self.task.source_dictionary.encode_line(" ".join(pieces), add_if_not_exist=False).long()
            for pieces in sources
        ]
        found: List[List[Output]] = [[] for _ in tokens]
        lengths = [len(source) for source in tokens]
        # one limit for a batch: an output must not depend on the other sources of its batch
        most = self.max_sentences
        for batch in fill_batches(lengths, self.max_tokens, most, kind=self.max_length):
            for index, output in self._generate_batch(sources, tokens, batch, count):
                found[index].append(output)
            self.on_batch(len(batch))
        return found

    def _generate_batch(
        self, sources: Sequence[Sequence[str]], tokens: List[Tensor], batch: List[int], count: int
    ) -> List[Tuple[int, Output]]:
        lines = [tokens[index] for index in batch]
        dataset = self.task.build_dataset_for_inference(lines, [len(line) for line in lines])
        sample = dataset.collater([dataset[i] for i in range(len(batch))])
        sample = utils.move_to_cuda(sample) if self.device.type == "cuda" else sample
        longest = self.max_length(len(lines[0]))
        limit = min(longest, getattr(self.generator, "max_len", self.max_output + 1) - 1)
        try:
            with self._searching:
                self.generator.max_len_a, self.generator.max_len_b = 0, longest
                found = self.task.inference_step(self.generator, self.models, sample)
            rows, written = zip(
                *((row, each["tokens"]) for row, all in enumerate(found) for each in all[:count])
            )
            copied = self._copied(sample["net_input"], rows, written)
        except RuntimeError as error:
            # of a GPU, and of the CPU
            if not re.search("out of memory|can't allocate memory", str(error)):
                raise
            raise ConfigurationError(
                f"the memory is too small for --max-tokens {self.max_tokens}: give a smaller number"
            ) from None
        dictionary = self.task.target_dictionary
        results = []
        # fairseq sorts a batch by length; `id` restores the order
        order = sample["id"].tolist()
        for row, best, positions in zip(rows, written, copied):
            index, best = order[row], best.int().cpu()
            pieces = dictionary.string(best)
            if positions:
                unknown = best.eq(dictionary.unk()).tolist()
                pieces = with_characters(
                    pieces.split(" "), unknown, positions, sources[batch[index]]
                )
            results.append((batch[index], Output(pieces, len(best) <= limit, positions)))
        return results

    def _copied(
        self, net_input: Dict[str, Tensor], rows: Sequence[int], written: Sequence[Tensor]
    ) -> List[List[Optional[int]]]:
        """The source positions of copied subwords, empty where they need not be known.

        Args:
            net_input: of a batch.
            rows: for each output, the row of its source.
            written: the outputs, as tokens.
        """
        copied: List[List[Optional[int]]] = [[] for _ in written]
        copiers = [m for m in self.models if getattr(m.decoder, "copying", None) is not None]
        unknown = self.task.target_dictionary.unk()
        wanted = [
            place
            for place, tokens in enumerate(written)
            if copiers and (self.tells_copied or bool(tokens.eq(unknown).any()))
        ]
        if wanted:
            of = [rows[place] for place in wanted]
            those = {name: net_input[name][of] for name in ("src_tokens", "src_lengths")}
            found = find_copied(copiers[0], those, [written[place] for place in wanted])
            for place, positions in zip(wanted, found):
                copied[place] = positions
        return copied
