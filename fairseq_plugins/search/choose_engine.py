"""Load a model for use: a training's in torch, an exported one in onnxruntime."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import fairseq_plugins
from fairseq_plugins import pretrained
from fairseq_plugins.errors import ConfigurationError, check_number
from fairseq_plugins.options.fields import MOST
from fairseq_plugins.options.search import Options
from fairseq_plugins.options.user_dirs import UserDirs, import_user_dirs
from fairseq_plugins.search.engine import ClassEngine, Engine, Place


def open_engine(
    models: Engine | Place | Sequence[Place],
    data: Place | None = None,
    cpu: bool = False,
    fp16: bool = False,
    int8: bool = False,
    threads: int = 1,
    max_tokens: int | None = None,
    user_dir: UserDirs = (),
    **options: Any,
) -> Engine:
    """Load a model.

    Args:
        models: a checkpoint, or a folder of checkpoints; several form an ensemble. Or a folder
            that `export` wrote, or the name of a pretrained model (see `pretrained`); these need
            neither torch nor fairseq. An existing path is preferred to a name. A loaded engine is
            returned unchanged; other options than `nbest` are then refused.
        data: for checkpoints, the prepared folder; None for the one the model was trained on.
        cpu: do not use a GPU; exported models never do.
        fp16: for checkpoints, half precision, on a GPU only.
        int8: for checkpoints, 8-bit matrix products, on a CPU only (see `torch_backend.int8`).
        threads: for an exported model, its threads.
        max_tokens: subwords in a batch, including padding; a longer source gets its own batch. None
            for 4,000, and for checkpoints on a GPU as many as its memory allows.
        user_dir: for checkpoints, folders to import, as fairseq's `--user-dir`.
        options: the options of the search, see `Options`.

    Raises:
        ConfigurationError: a folder or file is missing, model and data do not match, an option
            cannot work, or a package is missing.
    """
    of_checkpoints: dict[str, Any] = {"data": data, "fp16": fp16, "int8": int8}
    if isinstance(models, Engine):
        options.pop("nbest", None)
        _refuse_beside_an_engine(
            **of_checkpoints, **dict.fromkeys(options, True),
            cpu=cpu, threads=threads != 1, max_tokens=max_tokens is not None, user_dir=user_dir,
        )  # fmt: skip
        return models
    wanted = Options.of(options)
    by_memory = max_tokens is None
    max_tokens = 4000 if max_tokens is None else max_tokens
    check_number("max_tokens", max_tokens, 1)
    places, exported = find_models(models, threads, of_checkpoints, user_dir=user_dir)
    if exported:
        from fairseq_plugins.search.onnx_backend.exported_model import ExportedModel

        return ExportedModel(places[0], threads, max_tokens, wanted)
    from fairseq_plugins.search.torch_backend.trained_model import TrainedModel, generation_options

    generation = generation_options(wanted)
    return TrainedModel(
        places, data, cpu, fp16, generation, max_tokens, int8, seed=wanted.seed, by_memory=by_memory
    )


def open_classifier(
    model: ClassEngine | Place,
    data: Place | None = None,
    cpu: bool = False,
    threads: int = 1,
    user_dir: UserDirs = (),
) -> ClassEngine:
    """Load a classifier; the arguments are as in `open_engine`."""
    if isinstance(model, ClassEngine):
        _refuse_beside_an_engine(data=data, cpu=cpu, threads=threads != 1, user_dir=user_dir)
        return model
    alone = isinstance(model, (list, tuple)) and len(model) == 1  # as an ensemble of one
    (place,), exported = find_models(
        model if alone else [model], threads, {"data": data}, user_dir=user_dir
    )
    if exported:
        from fairseq_plugins.search.onnx_backend.exported_model import ExportedClassifier

        return ExportedClassifier(place, threads)
    from fairseq_plugins.search.torch_backend.trained_model import TrainedClassifier

    return TrainedClassifier.load(place, data, cpu)


def _refuse_beside_an_engine(**given: Any) -> None:
    for name, value in given.items():
        if value:
            raise ConfigurationError(
                f"{name} has no effect on a loaded engine: give it when the engine is made"
            )


def find_models(
    models: Place | Sequence[Place],
    threads: int,
    of_checkpoints: dict[str, Any],
    option: str = "--model",
    user_dir: UserDirs = (),
) -> tuple[list[Path], bool]:
    """Where the models are, and whether they are an export; otherwise fairseq is made ready.

    Args:
        models: as in `open_engine`.
        threads: of an exported model.
        of_checkpoints: options that only checkpoints take.
        option: the user's option that gives `models`.
        user_dir: folders to import for checkpoints.

    Raises:
        ConfigurationError: a model is missing, an option is not for it, an exported model is in an
            ensemble, or a package is missing.
    """
    check_number("threads", threads, 1, MOST)
    given: Any = models
    if isinstance(models, (str, bytes)) or not isinstance(models, Iterable):
        given = [models]
    places = [pretrained.find(model, option) for model in given]
    if not places:
        raise ConfigurationError("no model: give a checkpoint, or a folder of checkpoints")
    exported = next(filter(pretrained.is_export, places), None)
    for place in places:
        if place.is_file() and pretrained.is_export(place.parent):
            raise ConfigurationError(
                f"{option} {place} is a file of an exported model: give its folder, {place.parent}"
            )
    of_others, kind = {"threads": threads != 1}, "exported models"
    if exported is not None:
        of_others = of_checkpoints
        kind = f"checkpoints, but {option} {exported} is an exported model"
    for name, given in of_others.items():
        if given:
            raise ConfigurationError(f"--{name} is for {kind}: remove it")
    if exported is not None:
        if len(places) > 1:
            raise ConfigurationError(
                f"{option} {exported}: an exported model cannot join an ensemble"
            )
    else:
        fairseq_plugins.register(f"{option} {places[0]}, which is not an exported model,")
        import_user_dirs(user_dir)
    return places, exported is not None
