"""Report the first parameter in which a checkpoint and the model differ, in one line."""

import os
import re
from collections.abc import Callable
from typing import Any

from fairseq import checkpoint_utils
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer

from fairseq_plugins.compat.data_files import remake
from fairseq_plugins.compat.patch import around
from fairseq_plugins.errors import ConfigurationError


class SizeMismatch(ConfigurationError):
    """The size of `parameter` differs between checkpoint and model."""

    def __init__(self, message: str, parameter: str):
        super().__init__(message)
        self.parameter = parameter


def explain_models_that_do_not_fit() -> None:
    """Name the first parameter that differs if a checkpoint has another dictionary or model.

    Sizes come first, then parameters that the checkpoint or the model lacks.
    """

    @around(Trainer, "load_checkpoint")
    @around(checkpoint_utils, "load_model_ensemble_and_task")
    def load(original: Callable, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except Exception as error:
            cause = error if isinstance(error, RuntimeError) else error.__context__
            found = _MISMATCH.search(str(cause))
            if found is None:
                lacking = _what_is_lacking(str(cause))
                if lacking is None:
                    raise
                raise ConfigurationError(lacking) from None
            given = [*args, *kwargs.values(), getattr(args[0], "task", None)]
            task = next((one for one in given if isinstance(one, FairseqTask)), None)
            message = _why_it_does_not_fit(task, *found.groups())
            raise SizeMismatch(message, found.group(1)) from None


_MISMATCH = re.compile(
    r"size mismatch for (\S+): .*?\[([\d, ]*)\]\) from checkpoint, .*?\[([\d, ]*)\]"
)


_LACKING = re.compile(r"(Missing|Unexpected) key\(s\) in state_dict: (\".*?\")\. *(?:\n|$)")


def _what_is_lacking(error: str) -> str | None:
    """The line for torch's error if the checkpoint or the model lacks parameters, or None."""
    found = []
    for kind, listed in _LACKING.findall(error):
        names = [name.strip('"') for name in listed.split(", ")]
        more = f" and {len(names) - 1:,} more" if names[1:] else ""
        found.append(
            f"it has no {names[0]}{more}"
            if kind == "Missing"
            else f"the model has no {names[0]}{more}"
        )
    if not found:
        return None
    return (
        f"the checkpoint does not fit: {', and '.join(found)}; "
        "give the options that the model was trained with"
    )


def _why_it_does_not_fit(task: Any, parameter: str, before: str, now: str) -> str:
    message = f"the checkpoint does not fit: its {parameter} is of size {before}, not {now}"
    side = re.match(r"(encoder|decoder)\.(embed_tokens|output_projection)", parameter)
    sizes = [size.split(", ") for size in (before, now)]
    if side is None or sizes[0][1:] != sizes[1][1:] or not isinstance(task, TranslationTask):
        return message + "; give the options that the model was trained with"
    folder = str(task.cfg.data).split(os.pathsep)[0]
    language = task.cfg.source_lang if side.group(1) == "encoder" else task.cfg.target_lang
    path = os.path.join(folder, f"dict.{language}.txt")
    return message + f"; {path} was cut or belongs to other data: {remake(folder)}"
