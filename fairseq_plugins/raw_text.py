"""Generate from raw text with a trained model and the subword model of its prepared folder."""

import re
import threading
from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import data_utils
from fairseq.dataclass.configs import GenerationConfig

from fairseq_plugins.compat.data_files import MissingData, SizeMismatch
from fairseq_plugins.compat.generation import check_finite
from fairseq_plugins.errors import ConfigurationError, check_range
from fairseq_plugins.generation.copied import find_copied
from fairseq_plugins.generation.int8 import quantize
from fairseq_plugins.json_files import read_json
from fairseq_plugins.preparation.processing import FILE, Processor, dictionaries
from fairseq_plugins.serving.batches import fill_batches
from fairseq_plugins.serving.search import Options
from fairseq_plugins.serving.text import Output

DIRECTION = ("source_lang", "target_lang")
CHECKPOINTS = ("checkpoint_best.pt", "checkpoint_last.pt")
Place = Union[str, Path]


def find_checkpoint(path: Place, option: str = "--model") -> Path:
    """A checkpoint file, or the checkpoint of a folder: the best one, otherwise the last one.

    Args:
        path: the file or folder.
        option: the name of this argument for the user.

    Raises:
        ConfigurationError: there is no such checkpoint.
    """
    path = Path(path)
    if path.is_file():
        return path
    for name in CHECKPOINTS:
        if (path / name).is_file():
            return path / name
    reason = f"has neither {' nor '.join(CHECKPOINTS)}" if path.is_dir() else "does not exist"
    raise ConfigurationError(
        f"{option} {path} {reason}: give a checkpoint, or the --save-dir of a training"
    )


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

    Attributes:
        processor: converts raw text to subwords and back.
        max_source: the largest number of subwords that the model reads, without the end symbol.
        max_output: the largest number of subwords that the model writes.
        tell_copied: whether outputs contain the positions of copied subwords; in an ensemble, those
            of the first model.

    Raises:
        ConfigurationError: a folder or file is missing, or model and data do not match.
    """

    tell_copied = False

    def __init__(
        self,
        models: Union[Place, Sequence[Place]],
        data: Optional[Place],
        cpu: bool,
        fp16: bool,
        generation: GenerationConfig,
        max_tokens: int,
        int8: bool = False,
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
        folder, loaded, cfg, self.task = load_models(paths, data)
        if not hasattr(getattr(self.task, "cfg", None), "source_lang"):
            raise ConfigurationError(
                f"--model {paths[0]} was trained with a task of fairseq that is not read here "
                f"({type(self.task).__name__}): use fairseq-interactive"
            )
        source, target = self.task.cfg.source_lang, self.task.cfg.target_lang
        self.processor = Processor(folder, source, target)
        for model in loaded:
            if fp16:
                model.half()
            model.to(self.device)
            model.eval()
            model.prepare_for_inference_(cfg)
            if int8:
                quantize(model)
        self.models = loaded
        self.generator = self.task.build_generator(loaded, generation)
        limits = [self.task.max_positions()] + [model.max_positions() for model in loaded]
        longest = utils.resolve_max_positions(*limits)
        self.max_source, self.max_output = int(longest[0]) - 1, int(longest[1]) - 1
        self.max_tokens = max_tokens
        self._searching = threading.Lock()  # fairseq's generator has one limit at a time

    @property
    def tells_copied(self) -> bool:
        """Whether outputs contain the positions of copied subwords."""
        return self.tell_copied and getattr(self.models[0].decoder, "copying", None) is not None

    def max_length(self, source_length: int) -> int:
        """The largest number of subwords to write for a source of this many tokens."""
        raise NotImplementedError

    def generate(self, sources: Sequence[Sequence[str]]) -> List[Output]:
        """Generate an output for each list of subwords; none may be longer than `max_source`.

        Raises:
            ConfigurationError: a batch does not fit into the GPU's memory.
        """
        tokens = [
            self.task.source_dictionary.encode_line(" ".join(pieces), add_if_not_exist=False).long()
            for pieces in sources
        ]
        outputs = [Output("", True)] * len(tokens)
        lengths = [len(source) for source in tokens]
        # one limit for a batch: an output must not depend on the other sources of its batch
        for batch in fill_batches(lengths, self.max_tokens, kind=self.max_length):
            for index, output in self._generate_batch(tokens, batch):
                outputs[index] = output
        return outputs

    def _generate_batch(
        self, tokens: List[torch.Tensor], batch: List[int]
    ) -> List[Tuple[int, Output]]:
        sources = [tokens[index] for index in batch]
        dataset = self.task.build_dataset_for_inference(sources, [len(line) for line in sources])
        sample = dataset.collater([dataset[i] for i in range(len(batch))])
        sample = utils.move_to_cuda(sample) if self.device.type == "cuda" else sample
        longest = self.max_length(len(sources[0]))
        limit = min(longest, self.generator.max_len - 1)
        try:
            with self._searching:
                self.generator.max_len_b = longest
                found = self.task.inference_step(self.generator, self.models, sample)
            written = [hypotheses[0]["tokens"] for hypotheses in found]
            copied: List[List[Optional[int]]] = [[] for _ in written]
            if self.tells_copied:
                copied = find_copied(self.models[0], sample["net_input"], written)
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
        for index, best, positions in zip(sample["id"].tolist(), written, copied):
            best = best.int().cpu()
            output = Output(dictionary.string(best), len(best) <= limit, positions)
            results.append((batch[index], output))
        return results


def load_models(
    paths: List[str], data: Optional[Place], classifier: bool = False, option: str = "--model"
) -> Tuple[Path, List[Any], Any, Any]:
    """Load checkpoints.

    Args:
        paths: the checkpoints.
        data: the prepared folder; None for the folder that the first model was trained on.
        classifier: whether the models must be classifiers; otherwise they must generate text.
        option: the name of `paths` for the user.

    Returns:
        the prepared folder, the models, fairseq's configuration and the task.

    Raises:
        ConfigurationError: the folder or its dictionaries are missing, the models were trained with
            other dictionaries or for several directions, they are of the wrong kind, or a parameter
            is not a number.
    """
    overrides: Dict[str, str] = {}
    tasks = []
    for path in paths:
        state = checkpoint_utils.load_checkpoint_to_cpu(path)
        kept = state.get("cfg")
        options = state["args"] if kept is None else kept["task"]
        tasks.append(vars(options) if isinstance(options, Namespace) else options)
    if data is None:
        data = _trained_on(tasks[0])
        if not data.is_dir():
            raise ConfigurationError(
                f"the model was trained on {data}, which is not there: name the prepared folder "
                "with --data"
            )
    else:
        overrides["data"] = str(data)
    if not dictionaries(Path(data)):
        raise ConfigurationError(
            f"{data} has no dictionaries (dict.*.txt): is it the prepared folder?"
        )
    trained_for = check_same_text(paths, tasks, Path(data))
    if trained_for is not None and trained_for != _pair_of_files(Path(data)):
        overrides.update(zip(DIRECTION, trained_for))
    try:
        # fairseq reads no overrides into a state that it is given
        known = state if len(paths) == 1 and not overrides else None
        models, cfg, task = checkpoint_utils.load_model_ensemble_and_task(
            paths, overrides, state=known
        )
    except SizeMismatch as error:
        if not error.parameter.endswith("embed_tokens.weight"):
            raise
        raise ConfigurationError(
            f"{' '.join(paths)} was not trained with the dictionaries in {data}"
        ) from None
    if classifier and not len(getattr(models[0], "classification_heads", ())):
        raise ConfigurationError(f"{option} {paths[0]} is not a classifier: it writes text")
    if not classifier and not hasattr(models[0], "decoder"):
        raise ConfigurationError(
            f"{option} {paths[0]} writes no text: it is a classifier, for the command classify"
        )
    for path, model in zip(paths, models):
        check_finite(f"{option} {path}", model)
    return Path(data), models, cfg, task


def _trained_on(task: Any) -> Path:
    return Path(utils.split_paths(task["data"])[0])


def direction(task: Any) -> Optional[Tuple[str, str]]:
    """The languages that a model was trained to read and to write.

    Those of its options; where these left them to the data, those of the folder that it was trained
    on.

    Args:
        task: the options of the task of a training.

    Returns:
        None for a task without languages, for a model of both directions, and where the folder is
        gone.
    """
    if any(name not in task for name in DIRECTION):
        return None
    source, target = (task[name] for name in DIRECTION)
    if source and target:
        return source, target
    trained_on = _trained_on(task)
    stored = read_json(trained_on / FILE)
    settings = stored.get("settings") if isinstance(stored, dict) else None
    both = isinstance(settings, dict) and settings.get("bidirectional")
    return None if both else _pair_of_files(trained_on)


def _pair_of_files(folder: Path) -> Optional[Tuple[str, str]]:
    """The languages in the names of prepared files, as fairseq finds them; None without files."""
    try:
        return data_utils.infer_language_pair(str(folder))
    except MissingData:
        return None


def check_same_text(
    paths: Sequence[str], tasks: Sequence[Any], data: Path
) -> Optional[Tuple[str, str]]:
    """Check that models have one direction, and the words of the dictionaries in `data`.

    Sizes alone do not tell: fairseq pads dictionaries to multiples of 8. A training's folder that
    is gone is not compared.

    Args:
        paths: the checkpoints.
        tasks: the options of the task of each.
        data: the prepared folder.

    Returns:
        the direction of the models, None if none of them tells it (see `direction`).

    Raises:
        ConfigurationError: models differ in direction, or one in words.
    """
    directions: Dict[Tuple[str, str], str] = {}
    for path, task in zip(paths, tasks):
        pair = direction(task)
        if pair is not None:
            directions.setdefault(pair, path)
        trained_on = _trained_on(task)
        for dictionary in dictionaries(trained_on):
            same = data / dictionary.relative_to(trained_on)
            if same.is_file() and _words(same) != _words(dictionary):
                raise ConfigurationError(
                    f"{path} was not trained with the dictionaries in {data} but with those in "
                    f"{trained_on}"
                )
    if len(directions) > 1:
        told = ", ".join(f"{path} {pair[0]}-{pair[1]}" for pair, path in directions.items())
        raise ConfigurationError(f"models of two directions are no ensemble: {told}")
    return next(iter(directions), None)


def _words(dictionary: Path) -> List[str]:
    """The words of a dictionary, without their counts."""
    text = dictionary.read_text(encoding="utf-8")
    return [line.rpartition(" ")[0] for line in text.split("\n")]
