"""Report the first parameter in which a checkpoint and the model differ, in one line."""

import re
from collections.abc import Callable
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_plugins.compat.patch import repair
from fairseq_plugins.errors import ConfigurationError

# of torch's error
SIZE = re.compile(r"size mismatch for (\S+): .*?\[([\d, ]*)\]\) from checkpoint, .*?\[([\d, ]*)\]")
LACKING = re.compile(r"(Missing|Unexpected) key\(s\) in state_dict: \"(.*?)\"")


class ModelMismatch(ConfigurationError):
    """`parameter` differs in size, or the checkpoint or the model lacks it."""

    def __init__(self, message: str, parameter: str):
        super().__init__(message)
        self.parameter = parameter


@repair(Trainer, "load_checkpoint")
@repair(checkpoint_utils, "load_model_ensemble_and_task")
def explain_models_that_do_not_fit(original: Callable, *args: Any, **kwargs: Any) -> Any:
    """Name the first parameter that differs if a checkpoint has another dictionary or model."""
    try:
        return original(*args, **kwargs)
    except Exception as error:
        cause = str(error if isinstance(error, RuntimeError) else error.__context__)
        size, lacking = SIZE.search(cause), LACKING.search(cause)
        if size:
            parameter = size[1]
            difference = f"its {parameter} is of size {size[2]}, not {size[3]}"
        elif lacking:
            parameter = lacking[2]
            who = "it" if lacking[1] == "Missing" else "the model"
            difference = f"{who} has no {parameter}"
        else:
            raise
        raise ModelMismatch(
            f"the checkpoint does not fit: {difference}; give the options and the data that "
            "the model was trained with",
            parameter,
        ) from None
