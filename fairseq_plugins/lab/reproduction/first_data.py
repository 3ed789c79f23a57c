"""Other data on which the training of some rows begins, made from the prepared folder."""

from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict

from fairseq_plugins.preparation.bidirectional import join_directions
from fairseq_plugins.preparation.pretraining import KINDS
from fairseq_plugins.preparation.summarization import prepare_pretraining

# `Row.begins` -> a function that makes a folder (the second argument) from the prepared one, and
# leaves it as it is if it is finished
FIRST_DATA: Dict[str, Callable[[Path, Path], Any]] = {
    "both-directions": join_directions,
    **{kind: partial(prepare_pretraining, kind=kind) for kind in KINDS},
}
