"""The folder of an export: its graphs, `config.json`, and what raw text needs."""

import contextlib
import json
import os
import platform
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import fairseq_plugins
from fairseq_plugins.data.prepared_folder import RECORD, Prepared, load_cut, subword_models
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import (
    FULL,
    PART,
    alone_in,
    check_can_hold,
    digest,
    open_to_read,
    write_bytes,
)
from fairseq_plugins.search.checkpoints import limits
from fairseq_plugins.search.onnx_backend import folder as served
from fairseq_plugins.search.torch_backend.trained_model import TrainedClassifier
from fairseq_plugins.text.subwords import KINDS
from fairseq_plugins.version import __version__

from . import architecture

LOCK = "export.lock"  # beside the unfinished folder


def check_new_folder(out: Path) -> None:
    """Raise a ConfigurationError if this path exists, or cannot."""
    if os.path.lexists(out):
        raise ConfigurationError(f"--out {out} already exists: give a new folder")
    check_can_hold("--out", out)


@contextlib.contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """An empty folder that becomes `out` at the end, and is removed after an error.

    It lies in `out`.part, which one export at a time locks, and replaces what a killed one left.

    Raises:
        ConfigurationError: another export to `out` is running, or the disk is full.
    """
    scratch = out.with_name(out.name + PART)
    part = scratch / out.name

    def remove() -> None:
        shutil.rmtree(part, ignore_errors=True)
        (scratch / LOCK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the user's own folder, with more in it
            scratch.rmdir()

    try:
        with alone_in(scratch, "export", 0, LOCK), _ended_at_once(remove):
            try:
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
                yield part
                check_new_folder(out)  # nobody else made it meanwhile
                os.replace(part, out)
            finally:
                remove()
    except OSError as error:
        if error.errno in FULL:
            raise ConfigurationError(f"--out {out} cannot be written: {error.strerror}") from None
        raise


@contextlib.contextmanager
def _ended_at_once(remove: Callable[[], None]) -> Iterator[None]:
    """Let a signal end the command here: call `remove`, and exit without raising an exception.

    Where torch's exporter and onnx call Python from C++, an exception aborts the process.
    """

    def end(number: int, frame: Any) -> None:
        remove()
        print("stopped", file=sys.stderr, flush=True)
        os._exit(128 + number)

    before = {}
    if fairseq_plugins.PROGRAM == fairseq_plugins.__name__:  # no other program ends so
        numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
        heard = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def write_graphs(model: Any, out: Path) -> None:
    """Write the graphs in float32: of the encoder, and of one decoder step unless it classifies.

    Raises:
        ConfigurationError: a package is missing, or a part of the model cannot be exported.
    """
    try:
        import onnx
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        advice = "pip install onnx onnxscript, or bash scripts/install.sh --extras onnx"
        raise ConfigurationError(f"export needs {error.name}: {advice}") from None
    from . import decoder, encoder

    architecture.check(model)
    if not architecture.classifies(model):
        onnx.save(decoder.build(model.decoder), out / served.DECODER)
    onnx.save(encoder.build(model), out / served.ENCODER)


def quantize_graphs(folder: Path) -> None:
    """Replace the graphs of a folder by 8-bit graphs, with one copy of the embeddings."""
    import onnx

    from .quantization import quantize

    graphs = {
        name: onnx.load(folder / name)
        for name in (served.ENCODER, served.DECODER)
        if (folder / name).exists()
    }
    quantize(graphs.values(), folder)
    for name, graph in graphs.items():
        onnx.save(graph, folder / name)


def describe(checkpoint: dict[str, str], int8: bool) -> dict[str, Any]:
    """The origin of an export, for `config.json`; `checkpoint` has its name and its digest."""
    import onnx
    import onnxruntime

    return {
        **checkpoint,
        "int8": int8,
        "fairseq_plugins": __version__,
        "torch": torch.__version__,
        "onnx": onnx.__version__,
        "onnxruntime": onnxruntime.__version__,
        "python": platform.python_version(),
    }


def write_config(model: Any, task: Any, out: Path, made: dict[str, Any], licence: str) -> None:
    """Write `config.json`, with the SHA-256 of all other files."""
    from .encoder import length_multiple, pair_bytes

    of_kind = _of_classes if architecture.classifies(model) else _of_text
    config = {
        "format": served.FORMAT,
        "licence": licence,
        **of_kind(model, task),
        "length_multiple": length_multiple(model),
        "pair_bytes": pair_bytes(model),
        "made": made,
        "files": {
            path.name: digest(path) for path in sorted(out.iterdir()) if path.name != served.CONFIG
        },
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (out / served.CONFIG).write_text(text, encoding="utf-8")


def _of_text(model: Any, task: Any) -> dict[str, Any]:
    from fairseq_plugins.tasks.summarization import SummarizationTask

    from .decoder import grouping

    max_source, max_output = limits([model], task)
    return {
        "summarizes": isinstance(task, SummarizationTask),
        "source_lang": task.cfg.source_lang,
        "target_lang": task.cfg.target_lang,
        "max_source": max_source,
        "max_output": max_output,
        "most_candidates": grouping(len(task.target_dictionary))[1],
    }


def _of_classes(model: Any, task: Any) -> dict[str, Any]:
    reading = TrainedClassifier("RUN", Path(task.cfg.data), model, task, cpu=True)
    names = served.LABELS, "start", "max_source", "max_positions"
    return {name: getattr(reading, name) for name in names}


def copy_text_processing(folder: Path, task: Any, out: Path) -> None:
    """Copy what raw text needs: settings, subword model and dictionaries of the prepared folder."""
    if hasattr(task, "label_dictionary"):
        load_cut(folder)  # it can be used
        names = [path.name for path in subword_models(folder)]
    else:
        names = [KINDS[Prepared(folder).processing.subword].file_name]
    for name in (RECORD, *names):
        with open_to_read(folder / name) as file:
            write_bytes(out / name, file.read())
    write_dictionaries(task, out)


def write_dictionaries(task: Any, out: Path) -> None:
    """Write the dictionaries of both languages, or that of texts to classify."""
    if hasattr(task, "label_dictionary"):
        task.source_dictionary.save(str(out / served.DICTIONARY))
        return
    task.source_dictionary.save(str(out / f"dict.{task.cfg.source_lang}.txt"))
    task.target_dictionary.save(str(out / f"dict.{task.cfg.target_lang}.txt"))
