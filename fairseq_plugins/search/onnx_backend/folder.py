"""Loads the folder that `export` writes, without torch and fairseq."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import digest, read_lines
from fairseq_plugins.pretrained import CONFIG
from fairseq_plugins.search.engine import Loaded
from fairseq_plugins.system import cpu
from fairseq_plugins.text.subwords import SPECIAL

FORMAT = 1
# numbers in `CONFIG` with the least and the largest allowed value
NUMBERS = {"length_multiple": (1, 1 << 16), "max_source": (1, 1 << 31), "pair_bytes": (0, 1 << 16)}
OF_TEXT = {"max_output": (1, 1 << 31), "most_candidates": (2, 1 << 31)}
OF_CLASSES = {"max_positions": (1, 1 << 31)}
LANGUAGES = ("source_lang", "target_lang")
LABELS = "labels"  # in `CONFIG`, of classifiers only
ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
PADDING, END, UNKNOWN = 1, 2, 3
DICTIONARY = "dict.txt"  # of a classifier
PROBABILITIES = "probabilities"  # the output of a classifier's graph, B x classes
# outputs of the decoder's graph, see `export.decoder.build`
ATTENTION, COPIED, QUERY = "copying", "copied", "query"
ONNXRUNTIME = (1, 21)  # the first release with correct attention on a cache of beams


def _wrong(config: dict[str, Any]) -> list[str]:
    """Names of entries in `CONFIG` that are missing, out of range or of a wrong type."""
    labels, files, start = (config.get(key) for key in (LABELS, "files", "start"))
    numbers = {**NUMBERS, **(OF_CLASSES if LABELS in config else OF_TEXT)}
    named = isinstance(files, dict) and all(map(_is_name, files))
    right = {"files": files and named and all(isinstance(each, str) for each in files.values())}
    for key, (least, most) in numbers.items():
        right[key] = type(config.get(key)) is int and least <= config[key] <= most
    if LABELS in config:
        strings = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
        right.update({LABELS: strings, "start": start is None or type(start) is int})
    else:
        right.update({key: _is_name(config.get(key)) for key in LANGUAGES})
        right["summarizes"] = type(config.get("summarizes")) is bool
    return [key for key, fits in right.items() if not fits]


def _is_name(value: Any) -> bool:
    """Whether this can be (part of) the name of a file in the folder."""
    return isinstance(value, str) and value not in ("", ".", "..") and not set(value) & set("/\\\0")


class Dictionary:
    """fairseq's `dict.*.txt`: maps tokens to numbers and back."""

    def __init__(self, path: Path):
        self.words: list[str] = list(SPECIAL)
        self.numbers = {word: number for number, word in enumerate(self.words)}
        for line in filter(None, read_lines(path)):
            word, _, last = line.rpartition(" ")
            if not word:
                raise ConfigurationError(
                    f"{path}: {line!r} is not a token and its count: export the model again"
                )
            if last == "#fairseq:overwrite":
                word = word.rsplit(" ", 1)[0]
            self.numbers[word] = len(self.words)
            self.words.append(word)

    def encode(self, pieces: Sequence[str]) -> list[int]:
        """Numbers of subwords, with the end symbol."""
        return [self.numbers.get(piece, UNKNOWN) for piece in pieces] + [END]


def _import_onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise ConfigurationError(
            "an exported model needs onnxruntime: pip install onnxruntime"
        ) from None
    release = onnxruntime.__version__
    if tuple(int(part) for part in release.split(".")[:2]) < ONNXRUNTIME:
        raise ConfigurationError(
            "onnxruntime {} decodes wrongly: install {}.{} or newer".format(release, *ONNXRUNTIME)
        )
    return onnxruntime


class Folder(Loaded):
    """A folder that `export` wrote.

    Args:
        folder: the folder.
        threads: threads that compute; concurrent runs share them.

    Raises:
        ConfigurationError: a file is missing or damaged, the format has another version, the model
            is of another kind, or onnxruntime is missing.
    """

    classifies = False

    def __init__(self, folder: Path, threads: int = 1):
        super().__init__(f"threads={threads}" if threads > 1 else "")
        self.folder, self.threads = Path(folder), threads
        self.config = self._read_config()
        self._check_files()
        self._onnxruntime = _import_onnxruntime()
        self.length_multiple: int = self.config["length_multiple"]
        self.max_source: int = self.config["max_source"]
        # of attention, for each pair of positions
        self.pair_bytes: int = self.config["pair_bytes"]

    def value(self, array: np.ndarray) -> Any:
        """An array as a value of onnxruntime that shares its memory."""
        return self._onnxruntime.OrtValue.ortvalue_from_numpy(array)

    def padded(self, sources: Sequence[Sequence[int]]) -> np.ndarray:
        """The numbers of the tokens of a batch, B x S, padded at the end."""
        longest = max(map(len, sources))
        longest += -longest % self.length_multiple
        numbers = np.full((len(sources), longest), PADDING, np.int64)
        for row, tokens in enumerate(sources):
            numbers[row, : len(tokens)] = tokens
        return numbers

    def session(self, name: str) -> Any:
        """A graph of the folder, ready to run."""
        options = self._onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        if cpu.overflows_in_8_bits():  # without overflow, these products would only be slower
            options.add_session_config_entry("session.x64quantprecision", "1")
        try:
            return self._onnxruntime.InferenceSession(
                str(self.folder / name),
                options,
                providers=["CPUExecutionProvider"],
                # the fused operator takes 5 times as long as the two operators it replaces
                disabled_optimizers=["SkipLayerNormFusion"],
            )
        except Exception as error:  # onnxruntime's errors have no common class
            reason = str(error).splitlines()[0]
            raise self.error(f"{name} cannot be loaded: {reason}") from None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Report an error of onnxruntime while a graph runs: the files do not belong together."""
        try:
            yield
        except Exception as error:  # onnxruntime's errors have no common class
            if not type(error).__module__.startswith("onnxruntime."):
                raise
            raise self.mismatch(str(error).splitlines()[0]) from None

    def error(self, problem: str) -> ConfigurationError:
        return ConfigurationError(f"--model {self.folder}: {problem}")

    def mismatch(self, reason: str) -> ConfigurationError:
        return self.error(
            f"its graphs and dictionaries do not match ({reason}): export the model again"
        )

    def check_listed(self, *names: str) -> None:
        """Raise a ConfigurationError unless `CONFIG` has the digests of these files."""
        for name in names:
            if name not in self.config["files"]:
                raise self.error(f"{CONFIG} has no digest of {name}: export the model again")

    def _check_files(self) -> None:
        for name, expected in self.config["files"].items():
            path = self.folder / name
            if path.is_symlink():
                raise self.error(f"{name} is a link: put the file itself there")
            problem = "" if path.is_file() else "missing"
            if not problem and digest(path) != expected:
                problem = f"damaged (its SHA-256 is not the one in {CONFIG})"
            if problem:
                raise self.error(f"{name} is {problem}: copy or export it again")

    def _read_config(self) -> dict[str, Any]:
        path = self.folder / CONFIG
        if (self.folder / "model.bin").exists():
            raise self.error(
                "this folder is for CTranslate2; export the model without --format ctranslate2"
            )
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
            found = config["format"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise self.error(
                f"{CONFIG} cannot be read ({error}): give a folder written by `fairseq-plugins "
                "export`"
            ) from None
        if found != FORMAT:
            raise self.error(
                f"it was made by another version (format {found}, not {FORMAT}): make it anew with "
                "`fairseq-plugins export`"
            )
        if (LABELS in config) != self.classifies:
            other = "writes text: use the command translate or summarize"
            if not self.classifies:
                other = "is a classifier: use the command classify"
            raise ConfigurationError(f"--model {self.folder} {other}")
        wrong = ", ".join(_wrong(config))
        if wrong:
            raise self.error(f"{CONFIG} has no valid {wrong}: export the model again")
        return config


class Export(Folder):
    """An exported model that writes text; arguments and errors are those of `Folder`."""

    def __init__(self, folder: Path, threads: int = 1):
        super().__init__(folder, threads)
        self.source_lang: str = self.config["source_lang"]
        self.target_lang: str = self.config["target_lang"]
        source, target = (f"dict.{lang}.txt" for lang in (self.source_lang, self.target_lang))
        self.check_listed(ENCODER, DECODER, source, target)
        self.source = Dictionary(self.folder / source)
        files = self.config["files"]
        joined = files[source] == files[target]
        self.target = self.source if joined else Dictionary(self.folder / target)
        self.encoder = self.session(ENCODER)
        self.decoder = self.session(DECODER)
        # the most candidates that a step can return per hypothesis
        self.most_candidates: int = self.config["most_candidates"]
        self.max_output: int = self.config["max_output"]
        self.memory_names = [output.name for output in self.encoder.get_outputs()]
        inputs = self.decoder.get_inputs()
        if not self.memory_names or not {"ancestors", *self.memory_names} <= {
            i.name for i in inputs
        }:
            raise self.error("its encoder and decoder do not match: export the model again")
        caches = [i for i in inputs if i.name.startswith(("keys_", "values_"))]
        self.cache_names = [cache.name for cache in caches]
        self.cache_shapes = [cache.shape for cache in caches]
        # floats of each source position, and of each position of a hypothesis
        self.source_size, self.step_size = (
            sum(i.shape[1] * i.shape[3] for i in inputs if i.name in names)
            for names in (self.memory_names, self.cache_names)
        )
        self.last_keys = self.memory_names.index(self.memory_names[-1].replace("values", "keys"))
        of_heads = next(i.shape for i in inputs if i.name == self.memory_names[-1])
        self.query_size: int = of_heads[1] * of_heads[3]
        names = {each.name for each in inputs}
        self.copies, self.goes_on_copying = "source_words" in names, "source_before" in names

    def encode(self, tokens: np.ndarray) -> list[Any]:
        """The source keys and values of all decoder layers, for tokens of B x S."""
        binding = self.encoder.io_binding()
        binding.bind_ortvalue_input("tokens", self.value(tokens))
        for name in self.memory_names:
            binding.bind_output(name)
        self.encoder.run_with_iobinding(binding)
        return list(binding.get_outputs())
