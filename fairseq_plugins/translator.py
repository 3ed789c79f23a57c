"""Raw text in, raw text out, with a trained model and the folder its data was prepared in."""

import math
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from fairseq import checkpoint_utils, utils
from fairseq.dataclass.configs import GenerationConfig

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.preparation.processing import Processor

CHECKPOINTS = ("checkpoint_best.pt", "checkpoint_last.pt")
# Sources of up to so many subwords may get translations of up to twice as many, those of up to
# twice as many up to four times, and so on: fairseq's own limit for short sources, and never one
# that depends on what else is in the batch.
LENGTH_STEP = 100


def find_checkpoint(path: Path) -> Path:
    """A checkpoint file, or the best or else the last checkpoint of a folder."""
    path = Path(path)
    if path.is_file():
        return path
    for name in CHECKPOINTS:
        if (path / name).is_file():
            return path / name
    reason = "has neither {} nor {}".format(*CHECKPOINTS) if path.is_dir() else "does not exist"
    raise ConfigurationError(
        "--model {} {}: give a checkpoint, or the --save-dir of a training".format(path, reason)
    )


class _Part(NamedTuple):
    """A line, or one of the parts of a line too long for the model."""

    line: int
    tokens: torch.Tensor


class Translator:
    """Translates lines with beam search.

    Args:
        models: checkpoints, or folders of them; several are used together as an ensemble.
        data: the prepared folder; None for the one the model was trained on.
        cpu: do not use a GPU.
        fp16: half precision, on a GPU only.
        beam, lenpen: as in fairseq-generate.
        max_tokens: subwords in a batch, padding included.

    Attributes:
        split: numbers (from 1) of the lines that were too long for the model, and so translated in
            parts.
        cut_off: numbers of the lines whose translation was stopped at the length limit.

    Raises:
        ConfigurationError: a folder or file is missing, or model and data do not fit together.
    """

    def __init__(
        self,
        models: Sequence[Path],
        data: Optional[Path] = None,
        cpu: bool = False,
        fp16: bool = False,
        beam: int = 5,
        lenpen: float = 1.0,
        max_tokens: int = 4000,
    ):
        paths = [str(find_checkpoint(path)) for path in models]
        self.device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
        if fp16 and self.device.type == "cpu":
            raise ConfigurationError(
                "--fp16 needs a GPU, and {}".format(
                    "--cpu is given" if cpu else "torch sees none here"
                )
            )
        folder, loaded, cfg, self.task = _load(paths, data)
        source, target = self.task.cfg.source_lang, self.task.cfg.target_lang
        self.processor = Processor(folder, source, target)
        for model in loaded:
            if fp16:
                model.half()
            model.to(self.device)
            model.eval()
            model.prepare_for_inference_(cfg)
        self.models = loaded
        self.generator = self.task.build_generator(
            loaded, GenerationConfig(beam=beam, lenpen=lenpen)
        )
        limits = [self.task.max_positions()] + [model.max_positions() for model in loaded]
        self.max_source = int(utils.resolve_max_positions(*limits)[0]) - 1  # and end of sentence
        self.max_tokens = max_tokens
        self.split: List[int] = []
        self.cut_off: List[int] = []
        self._lines_seen = 0

    def translate(self, lines: Sequence[str]) -> List[str]:
        """One translation a line, in the order of `lines`; a line without words stays empty."""
        parts: List[_Part] = []
        for number, line in enumerate(lines):
            pieces = self.processor.encode(line).split()
            if len(pieces) > self.max_source:
                self.split.append(self._lines_seen + number + 1)
            for some in self._within_limit(pieces):
                tokens = self.task.source_dictionary.encode_line(
                    " ".join(some), add_if_not_exist=False
                )
                parts.append(_Part(number, tokens.long()))
        found: Dict[int, str] = {}
        for batch in self._batches(parts):
            for index, text, ended in self._translate_batch(parts, batch):
                found[index] = text
                number = self._lines_seen + parts[index].line + 1
                if not ended and number not in self.cut_off:
                    self.cut_off.append(number)
        pieces_of: List[List[str]] = [[] for _ in lines]
        for index, part in enumerate(parts):
            pieces_of[part.line].append(found[index])
        self._lines_seen += len(lines)
        return [self.processor.decode(" ".join(pieces)) if pieces else "" for pieces in pieces_of]

    def _within_limit(self, pieces: List[str]) -> List[List[str]]:
        """Cut a line that is too long, after a sentence if there is one to end late enough, else
        after a word."""
        parts = []
        while len(pieces) > self.max_source:
            window = range(self.max_source, self.max_source // 2, -1)
            words = [end for end in window if self.processor.subwords.is_word_end(pieces, end)]
            sentences = [end for end in words if pieces[end - 1][-1] in ".!?\u2026\u3002"]
            end = (sentences or words or [self.max_source])[0]
            parts.append(pieces[:end])
            pieces = pieces[end:]
        return parts + [pieces] if pieces else parts

    def _batches(self, parts: List[_Part]) -> List[List[int]]:
        """Indices of parts of similar length, the longest first."""
        batches: List[List[int]] = []
        for index in sorted(range(len(parts)), key=lambda index: -len(parts[index].tokens)):
            if batches:
                longest = len(parts[batches[-1][0]].tokens)
                fits = longest * (len(batches[-1]) + 1) <= self.max_tokens
                if fits and _max_length(longest) == _max_length(len(parts[index].tokens)):
                    batches[-1].append(index)
                    continue
            batches.append([index])
        return batches

    def _translate_batch(self, parts: List[_Part], batch: List[int]) -> List[Tuple[int, str, bool]]:
        """For each part its index, the subwords of its translation, and whether it ended."""
        tokens = [parts[index].tokens for index in batch]
        dataset = self.task.build_dataset_for_inference(tokens, [len(line) for line in tokens])
        sample = dataset.collater([dataset[i] for i in range(len(batch))])
        sample = utils.move_to_cuda(sample) if self.device.type == "cuda" else sample
        self.generator.max_len_b = _max_length(len(tokens[0]))
        limit = min(self.generator.max_len_b, self.generator.max_len - 1)
        try:
            found = self.task.inference_step(self.generator, self.models, sample)
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            raise ConfigurationError(
                "the GPU's memory is too small for --max-tokens {}: give a smaller number".format(
                    self.max_tokens
                )
            ) from None
        dictionary = self.task.target_dictionary
        results = []
        # fairseq sorts a batch by length
        for index, hypotheses in zip(sample["id"].tolist(), found):
            best = hypotheses[0]["tokens"].int().cpu()
            results.append((batch[index], dictionary.string(best), len(best) <= limit))
        return results


def _max_length(source_length: int) -> int:
    return 2 * LENGTH_STEP * math.ceil(source_length / LENGTH_STEP)


def _load(paths: List[str], data: Optional[Path]) -> Tuple[Path, List[Any], Any, Any]:
    """The prepared folder, and the models, configuration and task of the checkpoints."""
    state, overrides = None, {}
    if data is None:
        state = checkpoint_utils.load_checkpoint_to_cpu(paths[0])
        cfg = state.get("cfg")
        trained_on = cfg["task"]["data"] if cfg is not None else state["args"].data
        data = Path(utils.split_paths(trained_on)[0])
        if not data.is_dir():
            raise ConfigurationError(
                "the model was trained on {}, which is not there: name the folder that "
                "scripts/prepare_translation.py or prepare_iwslt14.py made with --data".format(data)
            )
    else:
        overrides["data"] = str(data)
    if not list(Path(data).glob("dict.*.txt")):
        raise ConfigurationError(
            "{} has no dictionaries (dict.*.txt): is it the prepared folder?".format(data)
        )
    try:
        models, cfg, task = checkpoint_utils.load_model_ensemble_and_task(
            paths, overrides, state=state if len(paths) == 1 else None
        )
    except RuntimeError as error:
        if "size mismatch" not in str(error):
            raise
        raise ConfigurationError(
            "{} was not trained with the dictionaries in {}".format(" ".join(paths), data)
        ) from None
    return Path(data), models, cfg, task
